package ratelimit

import (
	"context"
	"time"

	"github.com/penstock-go/penstock/router"
)

// An Observation is what became of one message, or of a limit's breaker, for metrics.
type Observation struct {
	Limit   string           // Options.Name; of [Tiers], the tier's name behind it: "chat/free", or "free" alone
	Kind    router.LimitKind // rate, or in_flight of [InFlight]
	Outcome Outcome
	DryRun  bool // so that the message entered whatever the Outcome

	// Asked reports whether the limiter was called; it took so long. It is not called
	// while the breaker is open.
	Asked bool
	Took  time.Duration

	// Err is why the limiter could not decide. If Fallback is set, its Fallback was asked
	// then.
	Err      error
	Fallback bool
}

// An Outcome is what a limit has decided.
type Outcome uint8

// The outcomes there are. The last two are no decisions.
const (
	Admitted        Outcome = iota + 1 // the bucket has paid
	AdmittedLater                      // it will have, after the wait that Options.MaxWait allows
	Charged                            // ChargeOnly: the bucket could not pay, the message enters
	Refused                            // the bucket cannot pay yet, or no place is free
	RefusedForever                     // it never can: the cost is above its capacity
	Undecided                          // the limiter could not tell, and OnUnavailable is Deny
	UndecidedEnters                    // the same, and OnUnavailable is Admit
	Cancelled                          // the connection ended meanwhile
	BreakerOpened                      // the limiter has failed so often that it is left alone for a while
	BreakerClosed                      // it has answered again
)

// outcome is for a message that was not cancelled.
func (l *limit) outcome(d Decision, err error, chargeOnly bool) Outcome {
	switch {
	case err != nil && l.OnUnavailable == Admit:
		return UndecidedEnters
	case err != nil:
		return Undecided
	case d.Allowed && d.RetryAfter > 0:
		return AdmittedLater
	case d.Allowed:
		return Admitted
	case chargeOnly:
		return Charged
	case d.RetryAfter == Never:
		return RefusedForever
	default:
		return Refused
	}
}

// observed is consume, and tells Options.Observe.
func (l *limit) observed(ctx context.Context, key Key, cost int64, maxWait time.Duration, chargeOnly bool) (Decision, error) {
	if l.Observe == nil {
		return l.consume(ctx, key, cost, maxWait, nil)
	}
	o := Observation{Limit: l.Name, Kind: router.LimitRate, DryRun: l.OnDryRun != nil}
	d, err := l.consume(ctx, key, cost, maxWait, &o)
	if o.Outcome = Cancelled; ctx.Err() == nil {
		o.Outcome = l.outcome(d, err, chargeOnly)
	}
	l.Observe(o)
	return d, err
}

// clocked is ask, and notes how it went.
func (o *Observation) clocked(ctx context.Context, l Limiter, key Key, cost int64, maxWait time.Duration) (d Decision, err error) {
	if o == nil {
		return ask(ctx, l, key, cost, maxWait)
	}
	start := time.Now()
	d, err = ask(ctx, l, key, cost, maxWait)
	if o.Err = err; err == errOpen { //nolint:errorlint // never wrapped
		return d, err
	}
	o.Asked, o.Took = true, time.Since(start)
	return d, err
}

func (l *limit) breakerChanged(open bool) {
	if l.Observe == nil {
		return
	}
	outcome := BreakerClosed
	if open {
		outcome = BreakerOpened
	}
	l.Observe(Observation{Limit: l.Name, Kind: router.LimitRate, DryRun: l.OnDryRun != nil, Outcome: outcome})
}
