package ratelimit

import (
	"context"

	"github.com/penstock-go/penstock/internal/enforce"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/router"
)

// refundLater returns what a message has taken, of which there is a receipt, if a concurrency limit
// rejects it.
func (l *rateLimit) refundLater(in *router.IngressContext, q enforce.Request, receipt limit.Receipt) {
	copied := *in // it ends with the ingress function
	in.OnConcurrencyExceeded(func(ctx context.Context) {
		copied.Report(ctx, l.enforced.Undo(ctx, &q, receipt))
	})
}
