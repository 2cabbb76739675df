package enforce

import (
	"context"
	"time"

	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/adapter"
)

// A guarded limiter is a limiter behind a breaker, if it has one. A limiter in this process
// cannot fail and has none.
type guarded struct {
	limiter limit.Limiter // nil for rules
	breaker *Breaker

	// For rules, limit.Take.All and limit.Receipt.UndoAll; otherwise nil. They are values, so that only NewAll links them.
	takeAll func(limit.Take, context.Context, ...limit.Request) (limit.Decision, error)
	undoAll func(limit.Receipt, context.Context, ...limit.Request) error
}

// newBreaker returns nil if all limiters decide in this process.
func newBreaker(timeout time.Duration, changed func(open bool), limiters ...limit.Limiter) *Breaker {
	for _, l := range limiters {
		if _, ok := l.(adapter.InProcess); !ok {
			return &Breaker{Timeout: timeout, Changed: changed}
		}
	}
	return nil
}

// take takes the tokens. With an error, the Decision is the zero one.
func (g *guarded) take(ctx context.Context, q *Request) (limit.Decision, error) {
	if g.breaker == nil {
		return g.takeNow(ctx, q)
	}
	var d limit.Decision
	err := g.breaker.Call(ctx, func(ctx context.Context) (err error) {
		d, err = g.takeNow(ctx, q)
		return err
	})
	if err != nil {
		return limit.Decision{}, err
	}
	return d, nil
}

// takeNow is take without the breaker.
func (g *guarded) takeNow(ctx context.Context, q *Request) (limit.Decision, error) {
	switch {
	case q.Joint != nil:
		return g.takeAll(limit.Take{Receipt: q.Take.Receipt}, ctx, q.Joint...)
	case q.ChargeOnly:
		return q.chargeTo(ctx, g.limiter)
	default:
		return g.limiter.Take(ctx, q.Key, q.Take)
	}
}

// call calls f, behind the breaker if there is one.
func (g *guarded) call(ctx context.Context, f func(context.Context) error) error {
	if g.breaker == nil {
		return f(ctx)
	}
	return g.breaker.Call(ctx, f)
}

// charge takes cost from key's bucket, whatever it holds, but no more than a full bucket holds: a
// message of a larger tier denies a smaller one for at most the time in which it fills.
func (g *guarded) charge(ctx context.Context, key limit.Key, cost int64) error {
	if d, ok := g.limiter.(adapter.Describer); ok && cost > 1 {
		for _, part := range d.Describe() { // several of limit.AllOf
			cost = min(cost, part.Limit)
		}
	}
	return g.call(ctx, func(ctx context.Context) error { return limit.Charge(ctx, g.limiter, key, cost) })
}

// undo returns what a request has taken.
func (g *guarded) undo(ctx context.Context, q *Request, receipt limit.Receipt) error {
	return g.call(ctx, func(ctx context.Context) error {
		if q.Joint != nil {
			return g.undoAll(receipt, ctx, q.Joint...)
		}
		return receipt.Undo(ctx, g.limiter, q.Key)
	})
}
