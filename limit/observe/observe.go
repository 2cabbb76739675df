// Package observe describes what limits decide, for metrics and logs. The middlewares of this
// module report an [Observation] of every decision to the Observe function of their options.
// Package middleware/metrics has one.
package observe

import (
	"time"

	"github.com/penstock-go/penstock/limit"
)

// An Observation describes the decision about one message, HTTP request or connection, or a change
// of a limit's breaker.
type Observation struct {
	Limit   string // Options.Name; with ratelimit.Tiers, followed by the tier: "chat/free", or "free" without a name
	Kind    Kind
	Outcome Outcome
	Reason  limit.Reason // why the limiter denied the cost; limit.NoTokens without a denial
	Policy  string       // name of the policy that decided, if [limit.AllOf] or NewAll combines several
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

// A Kind names what a limit bounds, as router.LimitKind does.
type Kind string

// The kinds of limits.
const (
	Rate        Kind = "rate"        // cost over time
	Concurrency Kind = "in_flight"   // messages that are handled at the same time
	Connections Kind = "connections" // open connections
)

// An Outcome is the decision of a limit.
type Outcome uint8

// The outcomes. The last two describe the breaker and no message.
const (
	Admitted         Outcome = iota + 1 // the cost was taken from the bucket
	Delayed                             // the cost was taken from the bucket; the message waits as Options.MaxWait allows
	ChargedOverLimit                    // the bucket does not hold the cost; the message is admitted because of Options.ChargeOnly
	Rejected                            // the bucket does not hold the cost yet, or no permit is free
	NeverAllowed                        // the cost is above the capacity of the bucket
	Failed                              // the limiter could not decide; the message is rejected
	FailedOpen                          // the limiter could not decide; the message is admitted (Options.FailOpen, Options.ChargeOnly)
	Canceled                            // the connection or the HTTP request ended before the decision
	Exempt                              // Options.Access allows the client; nothing was charged
	Denied                              // Options.Access denies the client; nothing was charged
	BreakerOpened                       // the limiter failed several times in a row; calls are paused
	BreakerClosed                       // the limiter has answered again
)
