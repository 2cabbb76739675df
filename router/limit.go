package router

import (
	"fmt"
	"time"
)

// A LimitKind names what a limit bounds.
type LimitKind string

// The limits there are.
const (
	LimitRate        LimitKind = "rate"        // messages over time
	LimitPayload     LimitKind = "payload"     // bytes of one message
	LimitInFlight    LimitKind = "in_flight"   // calls that have not been answered yet
	LimitConnections LimitKind = "connections" // open connections
	LimitQueue       LimitKind = "queue"       // messages or bytes that wait to be sent to a connection
)

// A LimitExceeded says which limit was exceeded and by how much. It is the
// error that an [IngressFunc] returns for a message over its limit; the router
// fills in Conn and Type, reports it to Options.OnLimitExceeded and answers the
// client.
type LimitExceeded struct {
	Kind     LimitKind
	Conn     *Conn  // nil where the connection itself was refused
	Type     string // as an [IngressContext] has it
	Observed int64  // the attempted cost, the bytes, the calls, the connections
	Limit    int64  // the most that Observed may be

	// RetryAfter is how long to wait until the same can be admitted: 0 if that
	// is unknown, errors.Never if no wait can help.
	RetryAfter time.Duration
}

// Error describes the limit for a log.
func (l *LimitExceeded) Error() string {
	return fmt.Sprintf("%s limit exceeded: %d of %d", l.Kind, l.Observed, l.Limit)
}

// A Reaction is what a client gets for a message over a limit. The message's
// handler is not called, whatever the reaction.
type Reaction uint8

// The reactions there are. Send is the default.
const (
	Send   Reaction = iota // an error
	Close                  // a close frame, and nothing after it
	Custom                 // nothing: Options.OnLimitExceeded takes care of it
)

func defaultCloseCode(l LimitExceeded) StatusCode {
	if l.Kind == LimitPayload {
		return StatusTooBig
	}
	return StatusTryAgainLater
}
