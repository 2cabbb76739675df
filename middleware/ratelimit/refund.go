package ratelimit

import (
	"context"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/router"
)

// refundLater returns what a message has taken if a concurrency limit rejects it.
func (l *rateLimit) refundLater(in *router.IngressContext, q request) {
	in.OnConcurrencyExceeded(func(ctx context.Context) {
		g := l.limiter
		if q.fellBack {
			g = l.fallback
		}
		if err := g.refund(ctx, &q); err != nil && l.OnError != nil {
			l.OnError(err)
		}
	})
}

// refund returns what a request has taken.
func (g *guarded) refund(ctx context.Context, q *request) error {
	if g.breaker == nil {
		return q.refund(ctx, g.limiter)
	}
	return g.breaker.call(ctx, func(ctx context.Context) error { return q.refund(ctx, g.limiter) })
}

func (q *request) refund(ctx context.Context, l limit.Limiter) error {
	if q.joint == nil {
		return l.(limit.Refunder).Refund(ctx, q.key, q.cost)
	}
	var failed []error
	for _, r := range q.joint {
		failed = append(failed, r.Limiter.(limit.Refunder).Refund(ctx, r.Key, r.Cost))
	}
	return errors.Join(failed...)
}
