// Package enforce applies limiters for the middlewares of this module, which say what is charged
// and how a rejection is answered. It bounds the calls of a limiter, pauses them while they fail,
// falls back, waits for reserved tokens, and reports every decision.
package enforce

import (
	"context"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/random"
	"github.com/penstock-go/penstock/internal/rules"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/access"
	"github.com/penstock-go/penstock/limit/adapter"
	"github.com/penstock-go/penstock/limit/observe"
)

// A Limit is a limiter, or several that decide together, with options.
type Limit struct {
	opts     Options
	limiter  *guarded
	fallback *guarded // nil without Options.Fallback

	policy, fallbackPolicy string // the names of their policies
}

// New returns a limit. It panics if limiter is nil or an option is invalid.
func New(limiter limit.Limiter, opts Options) *Limit {
	if limiter == nil {
		opts.panicf("New needs a limiter")
	}
	opts.mustBeValid(limiter)
	l := newLimit(opts, limiter)
	l.limiter.limiter, l.policy = limiter, policyName(limiter, opts.Name)
	if opts.Fallback != nil {
		l.fallback = &guarded{limiter: opts.Fallback, breaker: newBreaker(l.opts.Timeout, func(bool) {}, opts.Fallback)}
		l.fallbackPolicy = policyName(opts.Fallback, opts.Name)
	}
	return l
}

// newLimit returns the limit of limiters, without the limiter that decides for a [Request] without
// Joint.
func newLimit(opts Options, limiters ...limit.Limiter) *Limit {
	if opts.Timeout == 0 {
		opts.Timeout = DefaultTimeout
	}
	l := &Limit{opts: opts, policy: opts.Name}
	l.limiter = &guarded{breaker: newBreaker(opts.Timeout, l.breakerChanged, limiters...)}
	return l
}

// IsDirect reports whether the limiter decides in this process, and no option concerns requests
// that it admits. A caller may then call the limiter itself, and [Limit.Conclude] unless it has
// admitted.
func (l *Limit) IsDirect() bool {
	return l.limiter.breaker == nil && l.opts.Observe == nil && l.opts.MaxWait == 0 && !l.opts.DryRun
}

// ErrDenied rejects a client that an access list denies.
var ErrDenied = &errors.Error{Code: errors.PermissionDenied, Message: "access is denied"}

// CheckAccess reports whether a client is not limited, and returns [ErrDenied] if it is rejected. A
// dry run limits and rejects no listed client.
func (l *Limit) CheckAccess(a access.Access) (exempt bool, err error) {
	var outcome observe.Outcome
	switch a {
	case access.Limited:
		return false, nil
	case access.Allowed:
		outcome = observe.Exempt
	case access.Denied:
		outcome = observe.Denied
		if !l.opts.DryRun {
			err = ErrDenied
		}
	}
	if l.opts.Observe != nil {
		l.opts.Observe(observe.Observation{Limit: l.opts.Name, Kind: observe.Rate, Outcome: outcome, DryRun: l.opts.DryRun})
	}
	return err == nil, err
}

// Decide takes the tokens of q, and waits if MaxWait allows it. The Decision is Allowed if the
// limit admits q, or would admit it in a dry run; otherwise its RetryAfter has the Jitter.
// DeniedCost of q is 0 if no limiter has denied it. The Limit of the Decision is 0 if no limiter
// has decided.
//
// The error is that of ctx or, if no limiter could decide, one with the code UNAVAILABLE. A dry run
// returns the zero Decision instead of the latter.
func (l *Limit) Decide(ctx context.Context, q *Request) (limit.Decision, error) {
	if !q.ChargeOnly {
		q.Take.MaxWait = l.opts.MaxWait
	}
	d, err := l.observed(ctx, q)
	return l.conclude(ctx, q, d, err)
}

// Conclude is Decide after a call of the limiter, which returned d and err.
func (l *Limit) Conclude(ctx context.Context, q *Request, d limit.Decision, err error) (limit.Decision, error) {
	if err != nil {
		d, err = l.takeFallback(ctx, q, nil, err)
	}
	return l.conclude(ctx, q, d, err)
}

// conclude returns what the result of the limiter or the fallback means for q.
func (l *Limit) conclude(ctx context.Context, q *Request, d limit.Decision, err error) (limit.Decision, error) {
	switch {
	case ctx.Err() != nil:
		return limit.Decision{}, ctx.Err()
	case err != nil && (l.opts.FailOpen || q.ChargeOnly):
		return limit.Decision{Allowed: true}, nil
	case err != nil && l.opts.DryRun:
		return limit.Decision{}, nil
	case err != nil:
		return limit.Decision{}, Unavailable(err)
	case d.Allowed && !l.opts.DryRun:
		return d, rules.Sleep(ctx, d.RetryAfter)
	case d.Allowed || q.ChargeOnly:
		d.Allowed = true
		return d, nil
	}
	q.DeniedCost, q.DeniedBy = q.costOf(&d), l.policyOf(q, &d)
	d.RetryAfter = l.jittered(d.RetryAfter)
	return d, nil
}

// Unavailable returns the error of a limit that could not decide because of err.
func Unavailable(err error) error {
	return &errors.Error{Code: errors.Unavailable, Message: "limits cannot be checked", Err: err}
}

// Charge takes cost from key's bucket, whatever it holds, but no more than a full bucket holds.
func (l *Limit) Charge(ctx context.Context, key limit.Key, cost int64) error {
	return l.limiter.charge(ctx, key, cost)
}

// Undo returns what q has taken.
func (l *Limit) Undo(ctx context.Context, q *Request, receipt limit.Receipt) error {
	g := l.limiter
	if q.fellBack {
		g = l.fallback
	}
	return g.undo(ctx, q, receipt)
}

// take calls the limiter, and the fallback if the limiter cannot decide. The fallback never
// overrides a denial. take records the calls in o, which may be nil.
func (l *Limit) take(ctx context.Context, q *Request, o *observe.Observation) (d limit.Decision, err error) {
	if o == nil {
		d, err = l.limiter.take(ctx, q)
	} else {
		start := time.Now()
		d, err = l.limiter.take(ctx, q)
		Record(o, start, err)
	}
	if err == nil {
		return d, nil
	}
	return l.takeFallback(ctx, q, o, err)
}

// takeFallback calls the fallback because the limiter has returned an error.
func (l *Limit) takeFallback(ctx context.Context, q *Request, o *observe.Observation, err error) (limit.Decision, error) {
	if ctx.Err() != nil {
		return limit.Decision{}, err
	}
	q.Failure = err
	if l.fallback == nil {
		return limit.Decision{}, err
	}
	q.fellBack = true
	if o != nil {
		o.Fallback = true
	}
	return l.fallback.take(ctx, q)
}

// policyOf returns the name of the policy that made a decision.
func (l *Limit) policyOf(q *Request, d *limit.Decision) string {
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
	if describer, ok := limiter.(adapter.Describer); ok {
		if descriptions := describer.Describe(); len(descriptions) == 1 && descriptions[0].Name != "" {
			return descriptions[0].Name
		}
	}
	return limitName
}

// jittered returns a random time from retryAfter up to retryAfter+Jitter. A time of 0 is unknown.
func (l *Limit) jittered(retryAfter time.Duration) time.Duration {
	if l.opts.Jitter == 0 || retryAfter <= 0 || retryAfter == limit.Never {
		return retryAfter
	}
	return retryAfter + min(random.N(l.opts.Jitter), limit.Never-1-retryAfter)
}
