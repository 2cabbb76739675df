package ratelimit

import (
	"context"

	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/router"
)

// refundLater returns what a message has taken, of which there is a receipt, if a concurrency limit
// rejects it.
func (l *rateLimit) refundLater(in *router.IngressContext, q request, receipt limit.Receipt) {
	in.OnConcurrencyExceeded(func(ctx context.Context) {
		g := l.limiter
		if q.fellBack {
			g = l.fallback
		}
		if err := g.refund(ctx, &q, receipt); err != nil && l.OnError != nil {
			l.OnError(err)
		}
	})
}

// refund returns what a request has taken.
func (g *guarded) refund(ctx context.Context, q *request, receipt limit.Receipt) error {
	undo := func(ctx context.Context) error {
		if q.joint != nil {
			return limit.UndoAll(ctx, receipt, q.joint...)
		}
		return limit.Undo(ctx, g.limiter, q.key, receipt)
	}
	if g.breaker == nil {
		return undo(ctx)
	}
	return g.breaker.call(ctx, undo)
}
