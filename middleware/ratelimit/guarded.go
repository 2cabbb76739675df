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
	key     limit.Key
	cost    int64
	keep    int64         // tokens to leave in the bucket; if not 0, the limiter is a limit.Keeper
	maxWait time.Duration // if not 0, the limiter is a limit.Reserver

	fellBack bool // Options.Fallback has decided

	joint []limit.Request // of NewAll, instead of the limiter, key and keep; cost is then their sum
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
	case q.joint != nil:
		return limit.ConsumeAll(ctx, q.joint...)
	case q.maxWait > 0:
		return l.(limit.Reserver).Reserve(ctx, q.key, q.cost, q.maxWait)
	case q.keep > 0:
		return l.(limit.Keeper).ConsumeKeeping(ctx, q.key, q.cost, q.keep)
	default:
		return l.Consume(ctx, q.key, q.cost)
	}
}

// charge takes cost from key's bucket, whatever it holds, but no more than a full bucket holds:
// a larger cost would be an error, and take nothing. The limiter must be a limit.Charger.
func (g *guarded) charge(ctx context.Context, key limit.Key, cost int64) error {
	if d, ok := g.limiter.(limit.Describer); ok && cost > 1 {
		for _, part := range d.Describe() { // several of limit.AllOf
			cost = min(cost, part.Limit)
		}
	}
	charger := g.limiter.(limit.Charger)
	if g.breaker == nil {
		return charger.Charge(ctx, key, cost)
	}
	return g.breaker.call(ctx, func(ctx context.Context) error { return charger.Charge(ctx, key, cost) })
}
