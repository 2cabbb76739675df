package ratelimit

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/access"
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

// isSimple reports whether the limiter decides in this process, and no option concerns messages that it
// admits, except for their key and cost.
func (l *rateLimit) isSimple() bool {
	return l.limiter.breaker == nil && l.Observe == nil && l.Access == nil && l.ChargeOnly == nil && l.Keep == nil && l.MaxWait == 0 && !l.DryRun && !l.Refund
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
	d, err := l.limiter.limiter.Take(ctx, key, limit.Take{Cost: cost})
	if err == nil && d.Allowed {
		return ctx.Err()
	}
	q := request{key: key, take: limit.Take{Cost: cost}}
	if err != nil {
		d, err = l.consumeFallback(ctx, &q, nil, err)
	}
	_, err = l.conclude(ctx, &q, false, d, err)
	return err
}

// A rateLimit is a limiter with its options.
type rateLimit struct {
	Options

	limiter  *guarded
	fallback *guarded // nil without Options.Fallback
	rules    []Rule   // of NewAll, which has no limiter, key, cost and fallback

	policy, fallbackPolicy string // the names of their policies
}

func newRateLimit(limiter limit.Limiter, opts *Options) *rateLimit {
	if limiter == nil {
		panic("ratelimit: New needs a limiter")
	}
	l := &rateLimit{}
	if opts != nil {
		l.Options = *opts
	}
	l.mustBeValid(limiter)
	if l.Timeout == 0 {
		l.Timeout = defaultTimeout
	}
	if l.Key == nil {
		l.Key = KeyPerUserOrIPPerType
	}
	if l.AccessKey == nil {
		l.AccessKey = KeyPerUser
	}
	l.limiter, l.policy = newGuarded(limiter, l.Timeout, l.breakerChanged), policyName(limiter, l.Name)
	if l.Fallback != nil {
		l.fallbackPolicy = policyName(l.Fallback, l.Name)
		l.fallback = newGuarded(l.Fallback, l.Timeout, func(bool) {})
	}
	return l
}

func (l *rateLimit) ingress(ctx context.Context, in router.IngressContext) error {
	_, err := l.admit(ctx, &in)
	return err
}

// admit returns nil if the message is admitted, which every message is in a dry run.
func (l *rateLimit) admit(ctx context.Context, in *router.IngressContext) (limit.Decision, error) {
	if exempt, err := l.checkAccess(in); exempt || err != nil {
		return limit.Decision{}, err
	}
	d, err := l.decide(ctx, in)
	if err != nil && l.DryRun {
		err = l.admitInDryRun(in, err)
	}
	return d, err
}

// checkAccess reports whether the message is not limited, which every message of a denied client
// is in a dry run.
func (l *rateLimit) checkAccess(in *router.IngressContext) (exempt bool, err error) {
	var outcome Outcome
	switch l.access(in) {
	case access.Limited:
		return false, nil
	case access.Allowed:
		outcome = Exempt
	case access.Denied:
		outcome = Denied
		if !l.DryRun {
			err = errDenied
		}
	}
	if l.Observe != nil {
		l.Observe(Observation{Limit: l.Name, Kind: router.LimitRate, Outcome: outcome, DryRun: l.DryRun})
	}
	return err == nil, err
}

// admitInDryRun reports an error of decide if it is a rejection, and returns it if it is a
// mistake of the application or the end of the connection.
func (l *rateLimit) admitInDryRun(in *router.IngressContext, err error) error {
	if exceeded, ok := errors.AsType[*router.LimitExceeded](err); ok {
		if l.OnDryRun != nil {
			l.OnDryRun(*in, exceeded)
		}
		return nil
	}
	if errors.CodeOf(err) == errors.Unavailable {
		return nil
	}
	return err
}

// decide returns nil if the limit admits the message when it is enforced. Without a decision,
// the Decision is the zero one.
func (l *rateLimit) decide(ctx context.Context, in *router.IngressContext) (limit.Decision, error) {
	q, chargeOnly, err := l.request(in)
	if err != nil || q.take.Cost == 0 {
		return limit.Decision{}, err
	}
	q.take.Receipt = l.Refund
	d, err := l.instrumented(ctx, &q, chargeOnly)
	if d.Receipt != (limit.Receipt{}) {
		l.refundLater(in, q, d.Receipt)
	}
	return l.conclude(ctx, &q, chargeOnly, d, err)
}

// conclude returns what a decision means for the message.
func (l *rateLimit) conclude(ctx context.Context, q *request, chargeOnly bool, d limit.Decision, err error) (limit.Decision, error) {
	switch {
	case ctx.Err() != nil:
		return limit.Decision{}, ctx.Err()
	case err != nil && (l.FailurePolicy == limit.FailOpen || chargeOnly):
		return limit.Decision{}, nil
	case err != nil:
		return limit.Decision{}, &errors.Error{Code: errors.Unavailable, Message: "limits cannot be checked", Err: err}
	case !d.Allowed && !chargeOnly:
		return d, l.exceeded(q, d)
	case d.Allowed && !l.DryRun:
		return d, wait(ctx, d.RetryAfter)
	}
	return d, nil
}

// request returns what the message takes; if its cost is 0, the message is not limited.
func (l *rateLimit) request(in *router.IngressContext) (q request, chargeOnly bool, err error) {
	if l.rules != nil {
		q, err = jointRequest(l.rules, in)
	} else if q.take.Cost = l.cost(in); q.take.Cost < 0 {
		err = invalidCost("Cost", q.take.Cost, in.Type)
	}
	if err != nil || q.take.Cost == 0 {
		return q, false, err
	}
	chargeOnly = l.ChargeOnly != nil && l.ChargeOnly(*in)
	if l.rules != nil {
		return q, chargeOnly, nil
	}
	q.key = l.Key(*in)
	if !chargeOnly {
		q.take.MaxWait, q.take.Keep = l.MaxWait, l.keep(in)
	}
	if q.take.Keep < 0 {
		err = invalidCost("Keep", q.take.Keep, in.Type)
	}
	return q, chargeOnly, err
}

// wait waits until reserved tokens have returned to the bucket.
func wait(ctx context.Context, d time.Duration) error {
	if d == 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *rateLimit) cost(in *router.IngressContext) int64 {
	if l.Cost == nil {
		return defaultCost(in)
	}
	return l.Cost(*in)
}

// defaultCost returns 1, or the number of topics that a message of the protocol subscribes.
func defaultCost(in *router.IngressContext) int64 { return int64(max(1, in.Work.Topics)) }

func (l *rateLimit) keep(in *router.IngressContext) int64 {
	if l.Keep == nil {
		return 0
	}
	return l.Keep(*in)
}

func invalidCost(function string, result int64, typ string) error {
	return &errors.Error{
		Code:    errors.InvalidArgument,
		Message: "the message has no valid cost",
		Err:     fmt.Errorf("ratelimit: %s returned %d for %q; it must not be negative", function, result, typ),
	}
}

func (l *rateLimit) exceeded(q *request, d limit.Decision) *router.LimitExceeded {
	return &router.LimitExceeded{
		Kind: router.LimitRate, Observed: q.costOf(&d), Limit: d.Limit, Policy: l.policyOf(q, &d),
		Reason: d.Reason.String(), RetryAfter: l.jittered(d.RetryAfter),
	}
}

// policyOf returns the name of the policy that made a decision.
func (l *rateLimit) policyOf(q *request, d *limit.Decision) string {
	switch {
	case d.Policy != "":
		return d.Policy
	case q.fellBack:
		return l.fallbackPolicy
	default:
		return l.policy
	}
}

// policyName returns the name of the only policy of a limiter, or, without one, that of the limit.
// Names of policies never change.
func policyName(limiter limit.Limiter, limitName string) string {
	if describer, ok := limiter.(limit.Describer); ok {
		if descriptions := describer.Describe(); len(descriptions) == 1 && descriptions[0].Name != "" {
			return descriptions[0].Name
		}
	}
	return limitName
}

// jittered returns a random time from retryAfter up to retryAfter+Jitter. A time of 0 is unknown.
func (l *rateLimit) jittered(retryAfter time.Duration) time.Duration {
	if l.Jitter == 0 || retryAfter <= 0 || retryAfter == limit.Never {
		return retryAfter
	}
	return retryAfter + min(rand.N(l.Jitter), limit.Never-1-retryAfter)
}

// consume calls the limiter, and the fallback if the limiter cannot decide. The fallback never
// overrides a denial. consume records the calls in o, which may be nil.
func (l *rateLimit) consume(ctx context.Context, q *request, o *Observation) (limit.Decision, error) {
	d, err := o.timed(ctx, l.limiter, q)
	if err == nil {
		return d, nil
	}
	return l.consumeFallback(ctx, q, o, err)
}

// consumeFallback calls the fallback because the limiter has returned an error.
func (l *rateLimit) consumeFallback(ctx context.Context, q *request, o *Observation, err error) (limit.Decision, error) {
	if ctx.Err() != nil {
		return limit.Decision{}, err
	}
	if l.OnError != nil {
		l.OnError(err)
	}
	if l.fallback == nil {
		return limit.Decision{}, err
	}
	q.fellBack = true
	if o != nil {
		o.Fallback = true
	}
	return l.fallback.consume(ctx, q)
}
