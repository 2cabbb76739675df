package ratelimit

import (
	"context"
	"fmt"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/router"
)

// Options configure a limit. The zero value is a working configuration.
type Options struct {
	// Name identifies the limit in Observe and in the response headers of [Handshake].
	Name string

	// Key returns the key of the bucket that a message is charged to. If nil, it is
	// [KeyPerUserOrIPPerType].
	Key func(router.IngressContext) limit.Key

	// Cost returns the cost of a message in tokens. If nil, every message costs 1. A message
	// that costs 0 is not limited. A negative cost is a programming error: the message is
	// rejected with INVALID_ARGUMENT, and the router's OnError receives the error.
	Cost func(router.IngressContext) int64

	// ChargeOnly reports whether a message is charged but never rejected, such as one that leaves
	// a topic or acknowledges, even if the limiter cannot decide. Any shortfall of its bucket
	// is forgiven. If nil, there are no such messages.
	ChargeOnly func(router.IngressContext) bool

	// MaxWait lets a message wait for tokens instead of being rejected, for at most this time
	// and in the order of arrival. Later messages of its connection wait behind it. A message
	// whose connection ends while it waits is charged. The limiter and the Fallback must
	// implement [limit.Reserver]. If 0, no message waits; it must be at most an hour. A call
	// whose deadline passes while it waits is answered with that error and is not handled, but
	// is charged: MaxWait should be much shorter than the router's Timeouts.Call.
	MaxWait time.Duration

	// DryRun makes the limit decide, charge and report, but reject no message. Use it to test
	// a policy before enforcing it.
	DryRun bool

	// OnDryRun is called with every message that a dry run would have rejected. It may be nil,
	// and must be nil without DryRun.
	OnDryRun func(router.IngressContext, *router.LimitExceeded)

	// FailurePolicy says what happens to a message if the limiter cannot decide: it is
	// rejected with UNAVAILABLE (limit.FailClosed, the default) or admitted (limit.FailOpen).
	FailurePolicy limit.FailurePolicy

	// Fallback decides if the limiter cannot. FailurePolicy applies if the Fallback cannot
	// decide either. If nil, FailurePolicy applies immediately.
	Fallback limit.Limiter

	// OnError is called with every error of the limiter, before Fallback and FailurePolicy
	// apply. It may be nil.
	OnError func(error)

	// Observe is called with the outcome of every message that costs something. It may be
	// nil. Many goroutines call it concurrently; it must not block or panic. Package
	// middleware/metrics provides one.
	Observe func(Observation)

	// Timeout bounds a call of the limiter. If 0, it is 50 ms. It does not apply to limiters
	// that implement [limit.InProcess].
	Timeout time.Duration
}

const defaultTimeout = 50 * time.Millisecond

// New returns the ingress function that admits a message if its bucket holds the cost, and
// otherwise rejects it with a [*router.LimitExceeded]. It panics if limiter is nil or an
// option is invalid.
func New(limiter limit.Limiter, opts *Options) router.IngressFunc {
	l := newRateLimit(limiter, opts)
	return func(ctx context.Context, in router.IngressContext) error {
		_, err := l.admit(ctx, in)
		return err
	}
}

// A rateLimit is a limiter with its options.
type rateLimit struct {
	Options

	limiter  *guarded
	fallback *guarded // nil without Options.Fallback
}

func newRateLimit(limiter limit.Limiter, opts *Options) *rateLimit {
	if limiter == nil {
		panic("ratelimit: New needs a limiter")
	}
	l := &rateLimit{}
	if opts != nil {
		l.Options = *opts
	}
	mustBeValid(l.Timeout, l.FailurePolicy)
	l.checkMaxWait(limiter)
	if l.OnDryRun != nil && !l.DryRun {
		panic("ratelimit: OnDryRun is set, but DryRun is false; set DryRun too")
	}
	if l.Timeout == 0 {
		l.Timeout = defaultTimeout
	}
	if l.Key == nil {
		l.Key = KeyPerUserOrIPPerType
	}
	l.limiter = newGuarded(limiter, l.Timeout, l.breakerChanged)
	if l.Fallback != nil {
		l.fallback = newGuarded(l.Fallback, l.Timeout, func(bool) {})
	}
	return l
}

func mustBeValid(timeout time.Duration, policy limit.FailurePolicy) {
	if timeout < 0 {
		panic(fmt.Sprintf("ratelimit: Timeout is %v; it must not be negative", timeout))
	}
	if policy > limit.FailOpen {
		panic(fmt.Sprintf("ratelimit: FailurePolicy is %d; it must be limit.FailClosed or limit.FailOpen", policy))
	}
}

func (l *rateLimit) checkMaxWait(limiter limit.Limiter) {
	if l.MaxWait < 0 || l.MaxWait > limit.MaxReserve {
		panic(fmt.Sprintf("ratelimit: MaxWait is %v; it must be from 0 to %v", l.MaxWait, limit.MaxReserve))
	}
	for _, one := range []limit.Limiter{limiter, l.Fallback} {
		if _, ok := one.(limit.Reserver); !ok && one != nil && l.MaxWait > 0 {
			panic(fmt.Sprintf("ratelimit: MaxWait needs a limit.Reserver, such as a limiter of package memory or redis; %T is none", one))
		}
	}
}

// admit returns nil if the message is admitted, which every message is in a dry run.
func (l *rateLimit) admit(ctx context.Context, in router.IngressContext) (limit.Decision, error) {
	d, err := l.decide(ctx, in)
	if err != nil && l.DryRun {
		err = l.admitInDryRun(in, err)
	}
	return d, err
}

// admitInDryRun reports an error of decide if it is a rejection, and returns it if it is a
// mistake of the application or the end of the connection.
func (l *rateLimit) admitInDryRun(in router.IngressContext, err error) error {
	if exceeded, ok := errors.AsType[*router.LimitExceeded](err); ok {
		if l.OnDryRun != nil {
			l.OnDryRun(in, exceeded)
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
func (l *rateLimit) decide(ctx context.Context, in router.IngressContext) (limit.Decision, error) {
	cost := l.cost(in)
	switch {
	case cost == 0:
		return limit.Decision{}, nil
	case cost < 0:
		return limit.Decision{}, &errors.Error{
			Code:    errors.InvalidArgument,
			Message: "the message has no valid cost",
			Err:     fmt.Errorf("ratelimit: Cost returned %d for %q; it must not be negative", cost, in.Type),
		}
	}
	chargeOnly := l.ChargeOnly != nil && l.ChargeOnly(in)
	q := request{key: l.Key(in), cost: cost, maxWait: l.MaxWait}
	if chargeOnly {
		q.maxWait = 0
	}
	d, err := l.instrumented(ctx, &q, chargeOnly)
	switch {
	case ctx.Err() != nil:
		return limit.Decision{}, ctx.Err()
	case err != nil && (l.FailurePolicy == limit.FailOpen || chargeOnly):
		return limit.Decision{}, nil
	case err != nil:
		return limit.Decision{}, &errors.Error{Code: errors.Unavailable, Message: "limits cannot be checked", Err: err}
	case !d.Allowed && !chargeOnly:
		return d, exceeded(cost, d)
	case d.Allowed && !l.DryRun:
		return d, wait(ctx, d.RetryAfter)
	}
	return d, nil
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

// reasonName returns the reason as it is sent to clients, "" if the bucket does not hold the cost.
func reasonName(r limit.Reason) string {
	switch r {
	case limit.BurstExceeded:
		return "burst"
	case limit.InCooldown:
		return "cooldown"
	case limit.Blocked:
		return "blocked"
	default:
		return ""
	}
}

func (l *rateLimit) cost(in router.IngressContext) int64 {
	if l.Cost == nil {
		return 1
	}
	return l.Cost(in)
}

func exceeded(cost int64, d limit.Decision) *router.LimitExceeded {
	return &router.LimitExceeded{
		Kind: router.LimitRate, Observed: cost, Limit: d.Limit, Reason: reasonName(d.Reason), RetryAfter: d.RetryAfter,
	}
}

// consume calls the limiter, and the fallback if the limiter cannot decide. The fallback never
// overrides a denial. consume records the calls in o, which may be nil.
func (l *rateLimit) consume(ctx context.Context, q *request, o *Observation) (limit.Decision, error) {
	d, err := o.timed(ctx, l.limiter, q)
	if err == nil || ctx.Err() != nil {
		return d, err
	}
	if l.OnError != nil {
		l.OnError(err)
	}
	if l.fallback == nil {
		return d, err
	}
	if o != nil {
		o.Fallback = true
	}
	return l.fallback.consume(ctx, q)
}
