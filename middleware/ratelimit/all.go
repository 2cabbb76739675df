package ratelimit

import (
	"context"
	"hash/maphash"
)

// A Joiner is a limiter that can decide together with others, in one call.
type Joiner interface {
	Limiter

	// Join returns a limiter that decides as [All] says, or false if that cannot be done
	// with these limiters.
	Join(others []Limiter) (Limiter, bool)
}

// All returns a limiter that admits what every one of limiters admits, and otherwise
// takes from none of them: so many a second and so many a day, say. A denial is that of
// the limiter that refuses longest, so that waiting for it is enough; an admission tells
// of the one that has the fewest tokens left.
//
// Limiters of one Redis decide in one round trip; on a Cluster, and of different kinds,
// they are asked one after the other, and what was taken is given back if one denies.
// Others that use the same limiters by themselves may then see the tokens missing for
// that long. All panics if there is no limiter, one comes twice, or one is not
// [Adjustable].
func All(limiters ...Limiter) Limiter {
	a := &all{seed: maphash.MakeSeed()}
	seen := map[Limiter]bool{}
	for _, l := range limiters {
		adjustable, ok := l.(Adjustable)
		switch {
		case !ok:
			panic("ratelimit: All needs limiters that can give back what was taken: Adjustable ones")
		case seen[l]:
			panic("ratelimit: All has got one limiter twice; it would be charged twice")
		}
		seen[l] = true
		a.limiters = append(a.limiters, adjustable)
	}
	if len(limiters) == 0 {
		panic("ratelimit: All needs a limiter")
	}
	for i := range a.turns {
		a.turns[i] = make(chan struct{}, 1)
	}
	if j, ok := limiters[0].(Joiner); ok {
		if joint, ok := j.Join(limiters[1:]); ok {
			return joint
		}
	}
	for _, l := range limiters {
		if _, ok := l.(Local); !ok {
			return a
		}
	}
	return localAll{a}
}

// all asks limiters one after the other. Calls for one key wait for each other, so that
// none sees what another takes and gives back.
type all struct {
	limiters []Adjustable
	seed     maphash.Seed
	turns    [64]chan struct{} // keys that share one wait for each other too
}

type localAll struct{ *all }

// Local marks limiters that decide in this process.
func (localAll) Local() {}

// Consume takes cost from every limiter, or from none.
func (a *all) Consume(ctx context.Context, key Key, cost int64) (Decision, error) {
	turn := a.turns[key.Hash(a.seed)%uint64(len(a.turns))]
	select {
	case turn <- struct{}{}:
		defer func() { <-turn }()
	case <-ctx.Done():
		return Decision{}, ctx.Err()
	}
	decisions := make([]Decision, 0, len(a.limiters))
	for _, l := range a.limiters {
		d, err := l.Consume(ctx, key, cost)
		if err != nil {
			a.giveBack(ctx, key, cost, decisions)
			return Decision{}, err
		}
		decisions = append(decisions, d)
	}
	strictest := Strictest(decisions)
	if !strictest.Allowed {
		a.giveBack(ctx, key, cost, decisions)
	}
	return strictest, nil
}

// giveBack undoes what was taken, for which nobody waits longer than for a call. If a store
// cannot, the tokens come back with time.
func (a *all) giveBack(ctx context.Context, key Key, cost int64, decisions []Decision) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), defaultTimeout)
	defer cancel()
	for i, d := range decisions {
		if d.Allowed && cost > 0 {
			_ = a.limiters[i].Refund(ctx, key, cost)
		}
	}
}

// Refund gives tokens back to every limiter.
func (a *all) Refund(ctx context.Context, key Key, tokens int64) error {
	return a.each(func(l Adjustable) error { return l.Refund(ctx, key, tokens) })
}

// Reset fills key's bucket of every limiter.
func (a *all) Reset(ctx context.Context, key Key) error {
	return a.each(func(l Adjustable) error { return l.Reset(ctx, key) })
}

func (a *all) each(f func(Adjustable) error) (err error) {
	for _, l := range a.limiters {
		if e := f(l); err == nil {
			err = e
		}
	}
	return err
}

// Strictest returns the Decision that stands for all: the denial with the longest wait,
// or else the admission that leaves the fewest tokens. It is for adapters that decide
// about several buckets.
func Strictest(decisions []Decision) Decision {
	strictest := decisions[0]
	for _, d := range decisions[1:] {
		switch {
		case d.Allowed != strictest.Allowed:
			if !d.Allowed {
				strictest = d
			}
		case !d.Allowed && d.RetryAfter > strictest.RetryAfter, d.Allowed && d.Remaining < strictest.Remaining:
			strictest = d
		}
	}
	return strictest
}
