package ratelimit

import (
	"context"
	"time"

	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/router"
)

// An Observation describes the decision about one message or, with [Connections], one
// connection, or a change of a limit's breaker.
type Observation struct {
	Limit   string           // Options.Name; with [Tiers], followed by the tier: "chat/free", or "free" without a name
	Kind    router.LimitKind // LimitRate, LimitConcurrency for [Concurrency], or LimitConnections for [Connections]
	Outcome Outcome
	Reason  limit.Reason // why the limiter denied the cost; limit.NoTokens without a denial
	Policy  string       // name of the policy that decided, if [limit.AllOf] or [NewAll] combines several
	DryRun  bool         // the message was admitted whatever the Outcome

	// Called reports whether the limiter was called, and Duration how long the call took. An
	// open breaker prevents the call.
	Called   bool
	Duration time.Duration

	// Err is why the limiter could not decide. Fallback reports whether Options.Fallback was
	// called because of it.
	Err      error
	Fallback bool
}

// An Outcome is the decision of a limit.
type Outcome uint8

// The outcomes. The last two describe the breaker and no message.
const (
	Admitted         Outcome = iota + 1 // the cost was taken from the bucket
	Delayed                             // the cost was taken from the bucket; the message waits as Options.MaxWait allows
	ChargedOverLimit                    // the bucket does not hold the cost; the message is admitted because of Options.ChargeOnly
	Rejected                            // the bucket does not hold the cost yet, or no permit is free
	NeverAllowed                        // the cost is above the capacity of the bucket
	Failed                              // the limiter could not decide; the message is rejected (limit.FailClosed)
	FailedOpen                          // the limiter could not decide; the message is admitted (limit.FailOpen, Options.ChargeOnly)
	Canceled                            // the connection ended before the decision
	Exempt                              // Options.Access allows the client; nothing was charged
	Denied                              // Options.Access denies the client; nothing was charged
	BreakerOpened                       // the limiter failed several times in a row; calls are paused
	BreakerClosed                       // the limiter has answered again
)

// outcome returns the outcome for a message whose connection has not ended.
func (l *rateLimit) outcome(d limit.Decision, err error, chargeOnly bool) Outcome {
	switch {
	case err != nil && (l.FailurePolicy == limit.FailOpen || chargeOnly):
		return FailedOpen
	case err != nil:
		return Failed
	case d.Allowed && d.RetryAfter > 0:
		return Delayed
	case d.Allowed:
		return Admitted
	case chargeOnly:
		return ChargedOverLimit
	case d.RetryAfter == limit.Never:
		return NeverAllowed
	default:
		return Rejected
	}
}

// instrumented calls consume and reports the outcome to Options.Observe.
func (l *rateLimit) instrumented(ctx context.Context, q *request, chargeOnly bool) (limit.Decision, error) {
	if l.Observe == nil {
		return l.consume(ctx, q, nil)
	}
	o := Observation{Limit: l.Name, Kind: router.LimitRate, DryRun: l.DryRun}
	d, err := l.consume(ctx, q, &o)
	if o.Outcome = Canceled; ctx.Err() == nil {
		o.Outcome, o.Reason, o.Policy = l.outcome(d, err, chargeOnly), d.Reason, d.Policy
	}
	l.Observe(o)
	return d, err
}

// timed calls the limiter and records the duration and the error. o may be nil.
func (o *Observation) timed(ctx context.Context, l *guarded, q *request) (d limit.Decision, err error) {
	if o == nil {
		return l.consume(ctx, q)
	}
	start := time.Now()
	d, err = l.consume(ctx, q)
	o.called(start, err)
	return d, err
}

// called records the call of a limiter or a semaphore behind a breaker.
func (o *Observation) called(start time.Time, err error) {
	if o.Err = err; err == errOpen { //nolint:errorlint // never wrapped
		return
	}
	o.Called, o.Duration = true, time.Since(start)
}

func (l *rateLimit) breakerChanged(open bool) {
	if l.Observe != nil {
		l.Observe(Observation{Limit: l.Name, Kind: router.LimitRate, DryRun: l.DryRun, Outcome: breakerOutcome(open)})
	}
}

func breakerOutcome(open bool) Outcome {
	if open {
		return BreakerOpened
	}
	return BreakerClosed
}
