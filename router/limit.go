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
	LimitConcurrency LimitKind = "in_flight"   // calls whose handlers have not returned
	LimitConnections LimitKind = "connections" // open connections
	LimitTopics      LimitKind = "topics"      // topics that one connection subscribes to
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

	// Messages is how many were turned away: 1, but for a full queue, whose drops
	// are reported together if they come faster than OnLimitExceeded takes them.
	Messages int64

	// RetryAfter is how long to wait until the same can be admitted: 0 if that
	// is unknown, errors.Never if no wait can help.
	RetryAfter time.Duration
}

// Error describes the limit for a log.
func (l *LimitExceeded) Error() string {
	if l == nil {
		return "<nil>"
	}
	return fmt.Sprintf("%s limit exceeded: %d of %d", l.Kind, l.Observed, l.Limit)
}

// A LimitAction is what a client gets for a message over a limit. The message's
// handler is not called, whatever the action.
type LimitAction uint8

// The reactions there are. ActionSend is the default.
const (
	ActionSend   LimitAction = iota // an error
	ActionClose                     // a close frame, and nothing after it
	ActionCustom                    // nothing: Options.OnLimitExceeded takes care of it
)

func mustBeLimitAction(r LimitAction) {
	if r > ActionCustom {
		panic(fmt.Sprintf("router: OnExceeded is %d; it must be Send, Close or Custom", r))
	}
}

func defaultCloseCode(l LimitExceeded) StatusCode {
	if l.Kind == LimitPayload {
		return StatusTooBig
	}
	return StatusTryAgainLater
}

// A SlowConsumerPolicy is what happens to a message for a connection whose outgoing
// queue is full. Replies and errors are never dropped: if there is no room for one
// after what can be dropped was, the connection is closed with 1013.
type SlowConsumerPolicy uint8

// The policies there are. Disconnect is the default.
const (
	// Disconnect closes the connection with 1013. The client comes back and learns
	// where things stand.
	Disconnect SlowConsumerPolicy = iota

	// DropOldest drops the messages that have waited longest.
	DropOldest

	// DropNewest drops the message.
	DropNewest

	// Conflate drops messages of whose key a later one waits: see [Conflatable]. If
	// that makes no room, the connection is closed.
	Conflate
)

// A Conflatable message replaces earlier ones of its key that wait in a queue with the
// policy [Conflate]: positions of one player, say. The type is part of the key.
type Conflatable interface {
	Message
	ConflationKey() string
}
