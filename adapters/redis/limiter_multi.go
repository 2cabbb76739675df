package redis

import (
	"context"
	"fmt"

	"github.com/penstock-go/penstock/limit"
)

// A multiLimiter decides with several limiters in one round trip.
type multiLimiter struct {
	limiters []*Limiter
	calls    *scriptBatcher
}

var (
	_ limit.BatchLimiter = (*Limiter)(nil)
	_ limit.Refunder     = (*multiLimiter)(nil)
)

// Batch implements [limit.BatchLimiter] for limiters with the same client. It returns false for
// the client of a Cluster, where the buckets of one key are on different nodes.
func (l *Limiter) Batch(others []limit.Limiter) (limit.Limiter, bool) {
	m := &multiLimiter{limiters: []*Limiter{l}}
	for _, other := range others {
		o, ok := other.(*Limiter)
		if !ok || o.client != l.client || !l.oneNode {
			return nil, false
		}
		m.limiters = append(m.limiters, o)
	}
	m.calls = newScriptBatcher("redis: limiter", l.client, l.consumeAll, len(m.limiters))
	return m, true
}

// Consume takes cost from every limiter, or from none.
func (m *multiLimiter) Consume(ctx context.Context, key limit.Key, cost int64) (limit.Decision, error) {
	if cost < 0 {
		return limit.Decision{}, fmt.Errorf("redis: cost is %d; it must not be negative", cost)
	}
	held, err := m.call(ctx, &key, cost)
	if err != nil {
		return limit.Decision{}, err
	}
	decisions := make([]limit.Decision, len(m.limiters))
	for i, l := range m.limiters {
		decisions[i] = bucketState(held[i]).Decision(l.units.CostUnits(cost), &l.units)
	}
	d := limit.MostRestrictive(decisions)
	if d.Allowed {
		for _, l := range m.limiters {
			l.denials.Delete(key.Hash(l.seed))
		}
	}
	return d, nil
}

// call returns what the buckets held.
func (m *multiLimiter) call(ctx context.Context, key *limit.Key, cost int64) ([]int64, error) {
	first := m.limiters[0]
	args := make([]any, 0, 2+4*len(m.limiters))
	args = append(args, len(m.limiters))
	for _, l := range m.limiters {
		args = append(args, keyName(l.prefix, keyParts(key)))
	}
	for _, l := range m.limiters {
		args = append(args, l.policy[0], l.policy[1], l.scriptUnits(l.units.CostUnits(cost)))
	}
	if first.time != nil {
		args = append(args, first.time()...)
	}
	c := &scriptCall{Request: args}
	if err := m.calls.Do(ctx, c); err != nil {
		return nil, err
	}
	return c.Response, nil
}

// Refund returns tokens to every limiter.
func (m *multiLimiter) Refund(ctx context.Context, key limit.Key, tokens int64) error {
	return m.each(func(l *Limiter) error { return l.Refund(ctx, key, tokens) })
}

// Reset fills key's bucket of every limiter.
func (m *multiLimiter) Reset(ctx context.Context, key limit.Key) error {
	return m.each(func(l *Limiter) error { return l.Reset(ctx, key) })
}

// each calls f for every limiter and returns the first error.
func (m *multiLimiter) each(f func(*Limiter) error) (err error) {
	for _, l := range m.limiters {
		if e := f(l); err == nil {
			err = e
		}
	}
	return err
}
