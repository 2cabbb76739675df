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
	return l.enforced.IsDirect() && l.Access == nil && l.ChargeOnly == nil && l.Keep == nil && !l.Refund
}

// simpleIngress is ingress if isSimple. An admitted message costs little more than the limiter.
func (l *rateLimit) simpleIngress(ctx context.Context, in router.IngressContext) error {
	cost := l.cost(&in)
	if cost <= 0 {
		if cost < 0 {
			return invalidCost("Cost", cost, in.Type)
		}
		return nil
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

// A rateLimit is a limiter with its options.
type rateLimit struct {
	Options

	enforced *enforce.Limit
	limiter  limit.Limiter // nil with rules
	rules    []Rule        // of NewAll
}

func newRateLimit(limiter limit.Limiter, opts *Options) *rateLimit {
	l := newOptions(opts)
	if l.Key == nil {
		l.Key = KeyPerUserOrIPPerType
	}
	l.limiter, l.enforced = limiter, enforce.New(limiter, l.enforcement())
	return l
}

// newOptions returns a limit that has its options, but no limiter yet. It panics if one is invalid,
// except for those of enforcement.
func newOptions(opts *Options) *rateLimit {
	l := &rateLimit{}
	if opts != nil {
		l.Options = *opts
	}
	l.mustBeValid()
	if l.AccessKey == nil {
		l.AccessKey = KeyPerUser
	}
	return l
}

// ingress returns nil if the message is admitted, which every message is in a dry run.
func (l *rateLimit) ingress(ctx context.Context, in router.IngressContext) error {
	if exempt, err := l.enforced.CheckAccess(l.access(&in)); exempt || err != nil {
		return err
	}
	_, err := l.decide(ctx, &in)
	return err
}

// decide reports whether the limit admits the message, or would admit it in a dry run. Without an
// error, the message is not rejected.
func (l *rateLimit) decide(ctx context.Context, in *router.IngressContext) (admits bool, err error) {
	q, err := l.request(in)
	if err != nil || q.Take.Cost == 0 {
		return err == nil, err
	}
	q.Take.Receipt = l.Refund
	d, err := l.enforced.Decide(ctx, &q)
	switch {
	case err != nil:
		return false, err
	case q.Failure != nil:
		in.Report(ctx, couldNotDecide(l.Name, q.Failure))
	}
	switch {
	case d.Receipt != (limit.Receipt{}):
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

// request returns what the message takes; if its cost is 0, the message is not limited.
func (l *rateLimit) request(in *router.IngressContext) (q enforce.Request, err error) {
	if l.rules != nil {
		q, err = jointRequest(l.rules, in)
	} else if q.Take.Cost = l.cost(in); q.Take.Cost < 0 {
		err = invalidCost("Cost", q.Take.Cost, in.Type)
	}
	if err != nil || q.Take.Cost == 0 {
		return q, err
	}
	q.ChargeOnly = l.ChargeOnly != nil && l.ChargeOnly(*in)
	if l.rules != nil {
		return q, nil
	}
	q.Key = l.Key(*in)
	if l.Keep != nil && !q.ChargeOnly {
		if q.Take.Keep = l.Keep(*in); q.Take.Keep < 0 {
			err = invalidCost("Keep", q.Take.Keep, in.Type)
		}
	}
	return q, err
}

func (l *rateLimit) cost(in *router.IngressContext) int64 {
	if l.Cost == nil {
		return defaultCost(in)
	}
	return l.Cost(*in)
}

// defaultCost returns 1, or the number of topics that a message of the protocol subscribes.
func defaultCost(in *router.IngressContext) int64 { return int64(max(1, in.Work.Topics)) }

func invalidCost(function string, result int64, typ string) error {
	return &errors.Error{
		Code:    errors.InvalidArgument,
		Message: "the message has no valid cost",
		Err:     fmt.Errorf("ratelimit: %s returned %d for %q; it must not be negative", function, result, typ),
	}
}

// couldNotDecide returns the error that is reported when a limiter fails and the client does not receive that.
func couldNotDecide(name string, err error) error {
	return fmt.Errorf("ratelimit: the limit %q could not decide: %w", name, err)
}

// exceededBy returns the rejection of a request that was denied.
func exceededBy(q *enforce.Request, d limit.Decision) *router.LimitExceeded {
	return &router.LimitExceeded{
		Kind: router.LimitRate, Observed: q.DeniedCost, Limit: d.Limit, Policy: q.DeniedBy,
		Reason: d.Reason.String(), RetryAfter: d.RetryAfter,
	}
}
