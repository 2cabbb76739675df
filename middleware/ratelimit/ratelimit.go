package ratelimit

import (
	"context"
	"fmt"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/enforce"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/router"
)

// New returns the ingress function that admits a message if its bucket holds the cost, and
// otherwise rejects it with a [*router.LimitExceeded]. It panics if limiter is nil or an
// option is invalid.
func New(limiter limit.Limiter, opts *Options) router.IngressFunc {
	l := newRateLimit(limiter, opts)
	if l.isSimple() {
		return l.simpleIngress
	}
	return l.ingress
}

// isSimple reports whether the limiter decides in this process, and no option concerns messages
// that it admits, except for their key and cost.
func (l *rateLimit) isSimple() bool {
	return l.enforced.IsDirect() && l.Access == nil && l.ChargeOnly == nil && l.Keep == nil && !l.Refunds
}

// simpleIngress is ingress if isSimple. An admitted message costs little more than the limiter.
func (l *rateLimit) simpleIngress(ctx context.Context, in router.IngressContext) error {
	cost := l.Cost(in)
	if cost <= 0 {
		_, err := l.NotNegative("Cost", cost, &in)
		return invalidCost(err)
	}
	key := l.Key(in)
	d, err := l.limiter.Take(ctx, key, limit.Take{Cost: cost})
	if err == nil && d.Allowed {
		return ctx.Err()
	}
	q := enforce.Request{Key: key, Take: limit.Take{Cost: cost}}
	d, err = l.enforced.Conclude(ctx, &q, d, err)
	if err == nil && q.Failure != nil {
		in.Report(ctx, couldNotDecide(l.Name, q.Failure))
	}
	if err != nil || d.Allowed {
		return err
	}
	return exceededBy(&q, d)
}

// A rateLimit is a limiter, or several that decide together, with its options.
type rateLimit struct {
	enforce.Charges[router.IngressContext]

	enforced *enforce.Limit
	limiter  limit.Limiter // nil with rules
}

func newRateLimit(limiter limit.Limiter, opts *Options) *rateLimit {
	l := newOptions(opts)
	l.limiter, l.enforced = limiter, l.Limit(limiter)
	return l
}

// newOptions returns a limit that has its options, but no limiter yet.
func newOptions(opts *Options) *rateLimit {
	if opts == nil {
		opts = &Options{}
	}
	return &rateLimit{Charges: opts.charges()}
}

// ingress returns nil if the message is admitted, which every message is in a dry run.
func (l *rateLimit) ingress(ctx context.Context, in router.IngressContext) error {
	if exempt, err := l.enforced.CheckAccess(l.AccessOf(&in)); exempt || err != nil {
		return err
	}
	_, err := l.decide(ctx, &in)
	return err
}

// decide reports whether the limit admits the message, or would admit it in a dry run. Without an
// error, the message is not rejected.
func (l *rateLimit) decide(ctx context.Context, in *router.IngressContext) (admits bool, err error) {
	q, err := l.Request(in)
	if err != nil || q.Take.Cost == 0 {
		return err == nil, invalidCost(err)
	}
	q.Take.Receipt = l.Refunds
	d, err := l.enforced.Decide(ctx, &q)
	switch {
	case err != nil:
		return false, err
	case q.Failure != nil:
		in.Report(ctx, couldNotDecide(l.Name, q.Failure))
	}
	if d.Receipt != (limit.Receipt{}) {
		l.refundLater(in, q, d.Receipt)
	}
	switch {
	case d.Allowed:
		return true, nil
	case !l.DryRun:
		return false, exceededBy(&q, d)
	case q.DeniedCost > 0:
		in.Report(ctx, exceededBy(&q, d))
	}
	return false, nil
}

// invalidCost returns the rejection of a message because of err, which may be nil.
func invalidCost(err error) error {
	if err == nil {
		return nil
	}
	return &errors.Error{Code: errors.InvalidArgument, Message: "the message has no valid cost", Err: err}
}

// couldNotDecide returns the error that is reported when a limiter fails and the client does not receive that.
func couldNotDecide(name string, err error) error {
	return fmt.Errorf("ratelimit: the limit %q could not decide: %w", name, err)
}

// exceededBy returns the rejection of a request that was denied.
func exceededBy(q *enforce.Request, d limit.Decision) error {
	d.Policy = q.DeniedBy
	return Exceeded(d, q.DeniedCost)
}
