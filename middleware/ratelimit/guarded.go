package ratelimit

import (
	"context"
	"time"

	"github.com/penstock-go/penstock/limit"
)

// A guarded limiter is a limiter behind a breaker, if it has one. A limiter in this process
// cannot fail and has none.
type guarded struct {
	limiter limit.Limiter // nil for the rules of NewAll
	breaker *breaker
}

func newGuarded(l limit.Limiter, timeout time.Duration, changed func(open bool)) *guarded {
	return &guarded{limiter: l, breaker: newBreaker(timeout, changed, l)}
}

// newBreaker returns nil if all limiters decide in this process.
func newBreaker(timeout time.Duration, changed func(open bool), limiters ...limit.Limiter) *breaker {
	for _, l := range limiters {
		if _, ok := l.(limit.InProcess); !ok {
			return &breaker{timeout: timeout, changed: changed}
		}
	}
	return nil
}

// A request describes the tokens that a message takes.
type request struct {
	key  limit.Key
	take limit.Take

	fellBack bool // Options.Fallback has decided

	joint []limit.Request // of NewAll, instead of the limiter, key and take; the cost is then their sum
}

// consume takes the tokens. With an error, the Decision is the zero one.
func (g *guarded) consume(ctx context.Context, q *request) (limit.Decision, error) {
	if g.breaker == nil {
		return q.consume(ctx, g.limiter)
	}
	var d limit.Decision
	err := g.breaker.call(ctx, func(ctx context.Context) (err error) {
		d, err = q.consume(ctx, g.limiter)
		return err
	})
	if err != nil {
		return limit.Decision{}, err
	}
	return d, nil
}

func (q *request) consume(ctx context.Context, l limit.Limiter) (limit.Decision, error) {
	switch {
	case q.joint == nil:
		return l.Take(ctx, q.key, q.take)
	case q.take.Receipt:
		return limit.TakeAll(ctx, q.joint...)
	default:
		return limit.ConsumeAll(ctx, q.joint...)
	}
}

// charge takes cost from key's bucket, whatever it holds, but no more than a full bucket holds: a
// message of a larger tier denies a smaller one for at most the time in which it fills.
func (g *guarded) charge(ctx context.Context, key limit.Key, cost int64) error {
	if d, ok := g.limiter.(limit.Describer); ok && cost > 1 {
		for _, part := range d.Describe() { // several of limit.AllOf
			cost = min(cost, part.Limit)
		}
	}
	if g.breaker == nil {
		return limit.Charge(ctx, g.limiter, key, cost)
	}
	return g.breaker.call(ctx, func(ctx context.Context) error { return limit.Charge(ctx, g.limiter, key, cost) })
}
