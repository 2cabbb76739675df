package limit

import (
	"context"
	"hash/maphash"
	"time"
)

// refundTimeout bounds how long a denied call waits for its refunds.
const refundTimeout = 50 * time.Millisecond

// AllOf returns a limiter that admits a call if every limiter does, and otherwise takes
// tokens from none of them: for example, a limit per second and a limit per day. A denial is
// the one with the longest RetryAfter, so waiting for it is enough. An admission is the one
// with the fewest tokens left.
//
// Limiters on one Redis server decide in one round trip. Limiters on a Redis Cluster and
// limiters of different kinds are called one after the other, and tokens are refunded if one
// of them denies; until then, other users of the same limiters see those tokens missing.
// AllOf panics if there is no limiter, if a limiter is passed twice, or if one is not a
// [Refunder].
func AllOf(limiters ...Limiter) Limiter {
	a := &allOf{seed: maphash.MakeSeed()}
	seen := map[Limiter]bool{}
	for _, l := range limiters {
		refunder, ok := l.(Refunder)
		switch {
		case !ok:
			panic("limit: AllOf needs limiters that implement Refunder")
		case seen[l]:
			panic("limit: AllOf was given one limiter twice; every call would be charged twice")
		}
		seen[l] = true
		a.limiters = append(a.limiters, refunder)
	}
	if len(limiters) == 0 {
		panic("limit: AllOf needs a limiter")
	}
	for i := range a.locks {
		a.locks[i] = make(chan struct{}, 1)
	}
	if b, ok := limiters[0].(BatchLimiter); ok {
		if multi, ok := b.Batch(limiters[1:]); ok {
			return multi
		}
	}
	for _, l := range limiters {
		if _, ok := l.(InProcess); !ok {
			return a
		}
	}
	return inProcessAllOf{a}
}

// An allOf calls limiters one after the other. Calls for one key exclude each other, so that
// no call sees tokens missing that another call takes and refunds.
type allOf struct {
	limiters []Refunder
	seed     maphash.Seed
	locks    [64]chan struct{} // by hash of the key; channels, because waiting ends with the context
}

type inProcessAllOf struct{ *allOf }

// InProcess marks limiters that decide in this process.
func (inProcessAllOf) InProcess() {}

// Consume takes cost from every limiter, or from none.
func (a *allOf) Consume(ctx context.Context, key Key, cost int64) (Decision, error) {
	lock := a.locks[key.Hash(a.seed)%uint64(len(a.locks))]
	select {
	case lock <- struct{}{}:
		defer func() { <-lock }()
	case <-ctx.Done():
		return Decision{}, ctx.Err()
	}
	decisions := make([]Decision, 0, len(a.limiters))
	for _, l := range a.limiters {
		d, err := l.Consume(ctx, key, cost)
		if err != nil {
			a.refund(ctx, key, cost, decisions)
			return Decision{}, err
		}
		decisions = append(decisions, d)
	}
	decision := MostRestrictive(decisions)
	if !decision.Allowed {
		a.refund(ctx, key, cost, decisions)
	}
	return decision, nil
}

// refund returns the tokens of the allowed decisions, even if the caller's context is done.
// Tokens that a store fails to take back return with time.
func (a *allOf) refund(ctx context.Context, key Key, cost int64, decisions []Decision) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), refundTimeout)
	defer cancel()
	for i, d := range decisions {
		if d.Allowed && cost > 0 {
			_ = a.limiters[i].Refund(ctx, key, cost)
		}
	}
}

// Refund returns tokens to every limiter.
func (a *allOf) Refund(ctx context.Context, key Key, tokens int64) error {
	return a.each(func(l Refunder) error { return l.Refund(ctx, key, tokens) })
}

// Reset fills key's bucket of every limiter.
func (a *allOf) Reset(ctx context.Context, key Key) error {
	return a.each(func(l Refunder) error { return l.Reset(ctx, key) })
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

// MostRestrictive returns the Decision that represents all of them: the denial with the
// longest RetryAfter, or without a denial the admission with the fewest tokens left. It is
// for adapters that decide about several buckets. It panics if there is no decision.
func MostRestrictive(decisions []Decision) Decision {
	most := decisions[0]
	for _, d := range decisions[1:] {
		switch {
		case d.Allowed != most.Allowed:
			if !d.Allowed {
				most = d
			}
		case !d.Allowed && d.RetryAfter > most.RetryAfter, d.Allowed && d.Remaining < most.Remaining:
			most = d
		}
	}
	return most
}
