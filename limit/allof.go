package limit

import (
	"context"
	"fmt"
	"hash/maphash"
	"time"
)

// AllOf returns a limiter that admits a call if every limiter does, and otherwise takes
// tokens from none of them: for example, a limit per second and a limit per day. A denial is
// the one with the longest RetryAfter, so waiting for it is enough. An admission is the one
// with the fewest tokens left. [ConsumeAll] does the same with a key for each limiter.
//
// Token buckets in memory, and those on one Redis server, decide in one atomic step. Those on a
// Redis Cluster, and other limiters, are called one after the other, and tokens are
// refunded if one of them denies; until then, other users of the same limiters see those tokens
// missing.
//
// The limiter is a [Refunder] and a [Describer]. It is a [Reserver], a [Blocker] and a [Charger] if
// all limiters are all three: it blocks a key by each of them, and charges each.
//
// AllOf panics if there is no limiter, if a limiter is passed twice, or if one is not a
// [Refunder].
func AllOf(limiters ...Limiter) Limiter {
	if len(limiters) == 0 {
		panic("limit: AllOf needs a limiter")
	}
	a := &allOf{seed: maphash.MakeSeed(), batcher: batcherOf(limiters)}
	seen := map[Limiter]bool{}
	inProcess, complete := true, true
	for _, l := range limiters {
		refunder, ok := l.(Refunder)
		switch {
		case !ok:
			panic(fmt.Sprintf("limit: AllOf needs limiters that implement Refunder; %T does not", l))
		case seen[l]:
			panic("limit: AllOf was given one limiter twice; every call would be charged twice")
		}
		seen[l] = true
		a.limiters = append(a.limiters, refunder)
		_, isInProcess := l.(InProcess)
		_, isReserver := l.(Reserver)
		_, isBlocker := l.(Blocker)
		_, isCharger := l.(Charger)
		inProcess, complete = inProcess && isInProcess, complete && isReserver && isBlocker && isCharger
	}
	for i := range a.locks {
		a.locks[i] = make(chan struct{}, 1)
	}
	switch {
	case inProcess && complete:
		return inProcessCompleteAllOf{completeAllOf{a}}
	case inProcess:
		return inProcessAllOf{a}
	case complete:
		return completeAllOf{a}
	default:
		return a
	}
}

// An allOf calls limiters with the same key.
type allOf struct {
	limiters []Refunder
	batcher  BatchLimiter // decides for all limiters; nil if none can

	// Without a batcher, calls for one key exclude each other, so that no call sees tokens
	// missing that another call takes and refunds.
	seed  maphash.Seed
	locks [64]chan struct{} // by hash of the key; channels, because waiting ends with the context
}

// A completeAllOf combines limiters that can reserve, block and charge.
type completeAllOf struct{ *allOf }

// An inProcessAllOf combines limiters that decide in this process.
type inProcessAllOf struct{ *allOf }

type inProcessCompleteAllOf struct{ completeAllOf }

// InProcess marks limiters that decide in this process.
func (inProcessAllOf) InProcess() {}

// InProcess marks limiters that decide in this process.
func (inProcessCompleteAllOf) InProcess() {}

// Consume takes cost from every limiter, or from none.
func (a *allOf) Consume(ctx context.Context, key Key, cost int64) (Decision, error) {
	return a.consume(ctx, key, cost, 0)
}

// Reserve takes cost from every limiter if all hold it, or will within maxWait, or from none.
func (a completeAllOf) Reserve(ctx context.Context, key Key, cost int64, maxWait time.Duration) (Decision, error) {
	if err := CheckReserve(cost, maxWait); err != nil {
		return Decision{}, fmt.Errorf("limit: %w", err)
	}
	return a.consume(ctx, key, cost, maxWait)
}

func (a *allOf) consume(ctx context.Context, key Key, cost int64, maxWait time.Duration) (Decision, error) {
	requests := make([]Request, len(a.limiters))
	for i, l := range a.limiters {
		requests[i] = Request{l, key, cost}
	}
	if a.batcher != nil {
		return consumeBatch(ctx, a.batcher, requests, maxWait)
	}
	lock := a.locks[key.Hash(a.seed)%uint64(len(a.locks))]
	select {
	case lock <- struct{}{}:
		defer func() { <-lock }()
	case <-ctx.Done():
		return Decision{}, ctx.Err()
	}
	return consumeEach(ctx, requests, maxWait)
}

// Refund returns tokens to every limiter.
func (a *allOf) Refund(ctx context.Context, key Key, tokens int64) error {
	return a.each(func(l Refunder) error { return l.Refund(ctx, key, tokens) })
}

// Reset fills key's bucket of every limiter and ends blocks.
func (a *allOf) Reset(ctx context.Context, key Key) error {
	return a.each(func(l Refunder) error { return l.Reset(ctx, key) })
}

// Block denies key for d by every limiter.
func (a completeAllOf) Block(ctx context.Context, key Key, d time.Duration) error {
	return a.each(func(l Refunder) error { return l.(Blocker).Block(ctx, key, d) })
}

// Charge charges every limiter. A cost above the smallest capacity is an error.
func (a completeAllOf) Charge(ctx context.Context, key Key, cost int64) error {
	for _, d := range a.Describe() {
		if cost > d.Limit {
			return fmt.Errorf("limit: a charge of %d; it must be at most the capacity of %d", cost, d.Limit)
		}
	}
	return a.each(func(l Refunder) error { return l.(Charger).Charge(ctx, key, cost) })
}

// Describe returns the limits of all limiters.
func (a *allOf) Describe() (all []Description) {
	for _, l := range a.limiters {
		if d, ok := l.(Describer); ok {
			all = append(all, d.Describe()...)
		}
	}
	return all
}

// each calls f for every limiter and returns the first error.
func (a *allOf) each(f func(Refunder) error) (err error) {
	for _, l := range a.limiters {
		if e := f(l); err == nil {
			err = e
		}
	}
	return err
}
