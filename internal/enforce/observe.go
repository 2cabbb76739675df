package enforce

import (
	"context"
	"time"

	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/observe"
)

// outcome returns the outcome of a request whose context has not ended.
func (l *Limit) outcome(q *Request, d limit.Decision, err error) observe.Outcome {
	switch {
	case err != nil && (l.opts.FailOpen || q.ChargeOnly):
		return observe.FailedOpen
	case err != nil:
		return observe.Failed
	case d.Allowed && d.RetryAfter > 0:
		return observe.Delayed
	case d.Allowed:
		return observe.Admitted
	case q.ChargeOnly:
		return observe.ChargedOverLimit
	case d.RetryAfter == limit.Never:
		return observe.NeverAllowed
	default:
		return observe.Rejected
	}
}

// observed calls take and reports the outcome.
func (l *Limit) observed(ctx context.Context, q *Request) (limit.Decision, error) {
	if l.opts.Observe == nil {
		return l.take(ctx, q, nil)
	}
	o := observe.Observation{Limit: l.opts.Name, Kind: observe.Rate, DryRun: l.opts.DryRun}
	d, err := l.take(ctx, q, &o)
	if o.Outcome = observe.Canceled; ctx.Err() == nil {
		o.Outcome, o.Reason, o.Policy = l.outcome(q, d, err), d.Reason, d.Policy
	}
	l.opts.Observe(o)
	return d, err
}

// Record records in o the call of a limiter or a semaphore behind a breaker, with its result.
func Record(o *observe.Observation, start time.Time, err error) {
	if o.Err = err; err == errOpen { //nolint:errorlint // never wrapped
		return
	}
	o.Called, o.Duration = true, time.Since(start)
}

func (l *Limit) breakerChanged(open bool) {
	if l.opts.Observe != nil {
		l.opts.Observe(observe.Observation{Limit: l.opts.Name, Kind: observe.Rate, DryRun: l.opts.DryRun, Outcome: BreakerOutcome(open)})
	}
}

// BreakerOutcome returns the outcome for a breaker that has changed.
func BreakerOutcome(open bool) observe.Outcome {
	if open {
		return observe.BreakerOpened
	}
	return observe.BreakerClosed
}
