package limit

import (
	"context"
	"fmt"
	"hash/maphash"
	"slices"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/limit/mode"
)

// AllOf returns a limiter that admits a call if every limiter does, and otherwise takes
// tokens from none of them: for example, a limit per second and a limit per day. A denial is
// the one with the longest RetryAfter, so waiting for it is enough if all limiters were asked. An
// admission is the one with the fewest tokens left. [ConsumeAll] does the same with a key for each
// limiter, and describes which limiters decide in one atomic step, and when no store is asked.
//
// The limiter can be reset and describes its limits, and is a [Blocker] if all limiters are: it blocks a
// key by each of them. A [Take] with Keep and the mode Partial are errors. MaxWait and the mode
// Charging are, if one of the limiters cannot do them. Each limiter counts what is reserved from
// the time on at which it alone would allow the call.
//
// AllOf panics if there is no limiter, if a limiter is passed twice, or if one cannot undo what it
// has taken.
func AllOf(limiters ...Limiter) Limiter {
	if len(limiters) == 0 {
		panic("limit: AllOf needs a limiter")
	}
	a := &allOf{seed: maphash.MakeSeed(), limiters: slices.Clone(limiters), batcher: batcherOf(limiters)}
	seen := map[Limiter]bool{}
	local, blocks := true, true
	for _, l := range limiters {
		if err := check(l, Take{Mode: mode.Undoing}); err != nil {
			panic(fmt.Sprintf("limit: AllOf needs limiters that can undo a Take: %v", err))
		}
		if seen[l] {
			panic("limit: AllOf was given one limiter twice; every call would be charged twice")
		}
		seen[l] = true
		_, isLocal := l.(inProcess)
		_, isBlocker := l.(Blocker)
		local, blocks = local && isLocal, blocks && isBlocker
	}
	for i := range a.locks {
		a.locks[i] = make(chan struct{}, 1)
	}
	switch {
	case local && blocks:
		return inProcessBlockingAllOf{blockingAllOf{a}}
	case local:
		return inProcessAllOf{a}
	case blocks:
		return blockingAllOf{a}
	default:
		return a
	}
}

// An allOf calls limiters with the same key.
type allOf struct {
	limiters []Limiter
	batcher  batcher // decides for all limiters; nil if none can

	// Without a batcher, calls for one key exclude each other, so that no call sees tokens
	// missing that another call takes and undoes.
	seed  maphash.Seed
	locks [64]chan struct{} // by hash of the key; channels, because waiting ends with the context
}

// A blockingAllOf combines blockers.
type blockingAllOf struct{ *allOf }

// An inProcessAllOf combines limiters that decide in this process.
type inProcessAllOf struct{ *allOf }

type inProcessBlockingAllOf struct{ blockingAllOf }

// InProcess marks limiters that decide in this process.
func (inProcessAllOf) InProcess() {}

// InProcess marks limiters that decide in this process.
func (inProcessBlockingAllOf) InProcess() {}

// Take takes from every limiter, or from none.
func (a *allOf) Take(ctx context.Context, key Key, take Take) (Decision, error) {
	if err := a.Check(take); err != nil {
		return Decision{}, err
	}
	requests := a.requests(key, take.Cost)
	switch take.Mode {
	case mode.Charging, mode.Returning:
		return Decision{}, a.each(func(l Limiter) error {
			_, err := l.Take(ctx, key, take)
			return err
		})
	case mode.Undoing:
		return Decision{}, take.Undone().UndoAll(ctx, requests...)
	case mode.Settling:
		return Decision{}, settleAll(ctx, take.Undone(), take.Cost, requests)
	}
	if a.batcher == nil {
		lock := a.locks[key.Hash(a.seed)%uint64(len(a.locks))]
		select {
		case lock <- struct{}{}:
			defer func() { <-lock }()
		case <-ctx.Done():
			return Decision{}, ctx.Err()
		}
	}
	return takeJointly(ctx, a.batcher, requests, take)
}

func (a *allOf) requests(key Key, cost int64) []Request {
	requests := make([]Request, len(a.limiters))
	for i, l := range a.limiters {
		requests[i] = Request{l, key, cost}
	}
	return requests
}

// RemembersDenial returns a denial that one of the limiters remembers.
func (a *allOf) RemembersDenial(key Key, take Take) (Decision, bool) {
	if take.Mode > mode.Looking || a.Check(take) != nil {
		return Decision{}, false
	}
	requests := a.requests(key, take.Cost)
	decisions := rememberedDenials(requests, take.MaxWait)
	if decisions == nil {
		return Decision{}, false
	}
	return mostRestrictive(requests, decisions), true
}

// Check returns an error if one of the limiters cannot do a Take.
func (a *allOf) Check(take Take) error {
	if take.Keep > 0 || take.Mode == mode.Partial {
		return errors.New("limit: several limiters together cannot keep tokens or take a part; use one limiter")
	}
	for _, l := range a.limiters {
		if err := check(l, take); err != nil {
			return err
		}
	}
	return nil
}

// Reset fills key's bucket of every limiter and ends blocks.
func (a *allOf) Reset(ctx context.Context, key Key) error {
	return a.each(func(l Limiter) error {
		if r, ok := l.(resetter); ok {
			return r.Reset(ctx, key)
		}
		return fmt.Errorf("limit: a %T cannot be reset", l)
	})
}

// Block denies key for d by every limiter.
func (a blockingAllOf) Block(ctx context.Context, key Key, d time.Duration) error {
	return a.each(func(l Limiter) error { return l.(Blocker).Block(ctx, key, d) })
}

func (a *allOf) Describe() (all []Description) {
	for _, l := range a.limiters {
		if d, ok := l.(describer); ok {
			all = append(all, d.Describe()...)
		}
	}
	return all
}

// each calls f for every limiter and returns the first error.
func (a *allOf) each(f func(Limiter) error) (err error) {
	for _, l := range a.limiters {
		if e := f(l); err == nil {
			err = e
		}
	}
	return err
}
