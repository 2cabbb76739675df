package redis

import (
	"context"
	"fmt"

	"github.com/penstock-go/penstock/middleware/ratelimit"
)

// A joint decides with several limiters in one round trip.
type joint struct {
	limiters []*Limiter
	flights  *flights
}

var (
	_ ratelimit.Joiner     = (*Limiter)(nil)
	_ ratelimit.Adjustable = (*joint)(nil)
)

// Join is for [ratelimit.All]. It needs limiters of one client, which is not a Cluster's:
// there, the buckets of one key are on different nodes.
func (l *Limiter) Join(others []ratelimit.Limiter) (ratelimit.Limiter, bool) {
	j := &joint{limiters: []*Limiter{l}}
	for _, other := range others {
		o, ok := other.(*Limiter)
		if !ok || o.client != l.client || !l.oneNode {
			return nil, false
		}
		j.limiters = append(j.limiters, o)
	}
	j.flights = newFlights("limiter", l.client, l.joint, len(j.limiters))
	return j, true
}

// Consume takes cost from every limiter, or from none.
func (j *joint) Consume(ctx context.Context, key ratelimit.Key, cost int64) (ratelimit.Decision, error) {
	if cost < 0 {
		return ratelimit.Decision{}, fmt.Errorf("redis: cost is %d; it must not be negative", cost)
	}
	have, err := j.ask(ctx, &key, cost)
	if err != nil {
		return ratelimit.Decision{}, err
	}
	decisions := make([]ratelimit.Decision, len(j.limiters))
	for i, l := range j.limiters {
		decisions[i] = decide(have[i], l.units.Need(cost), &l.units)
	}
	d := ratelimit.Strictest(decisions)
	if d.Allowed {
		for _, l := range j.limiters {
			l.denials.forget(key.Hash(l.seed))
		}
	}
	return d, nil
}

// ask returns what the buckets held.
func (j *joint) ask(ctx context.Context, key *ratelimit.Key, cost int64) ([]int64, error) {
	first := j.limiters[0]
	args := make([]any, 0, 2+4*len(j.limiters))
	args = append(args, len(j.limiters))
	for _, l := range j.limiters {
		args = append(args, name(l.prefix, parts(key)))
	}
	for _, l := range j.limiters {
		args = append(args, l.policy[0], l.policy[1], min(l.units.Need(cost), l.units.Full()+1))
	}
	if first.time != nil {
		args = append(args, first.time()...)
	}
	c := &call{args: args}
	if err := j.flights.do(ctx, c); err != nil {
		return nil, err
	}
	return c.state, nil
}

// Refund gives tokens back to every limiter.
func (j *joint) Refund(ctx context.Context, key ratelimit.Key, tokens int64) error {
	return j.each(func(l *Limiter) error { return l.Refund(ctx, key, tokens) })
}

// Reset fills key's bucket of every limiter.
func (j *joint) Reset(ctx context.Context, key ratelimit.Key) error {
	return j.each(func(l *Limiter) error { return l.Reset(ctx, key) })
}

func (j *joint) each(f func(*Limiter) error) (err error) {
	for _, l := range j.limiters {
		if e := f(l); err == nil {
			err = e
		}
	}
	return err
}
