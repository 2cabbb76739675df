package router

import (
	"cmp"
	"fmt"
	"time"
)

// A LimitKind names what a limit bounds. Applications may define further kinds, other than "elements" and "inbound".
type LimitKind string

// The kinds that the router uses.
const (
	LimitRate        LimitKind = "rate"        // cost of messages over time
	LimitPayload     LimitKind = "payload"     // bytes of one message
	LimitConcurrency LimitKind = "in_flight"   // calls whose handlers have not returned
	LimitConnections LimitKind = "connections" // open connections
	LimitTopics      LimitKind = "topics"      // subscriptions of one connection
	LimitSession     LimitKind = "session"     // bytes of the topics in one session
	LimitQueue       LimitKind = "queue"       // messages or bytes in the send queue of one connection

	limitElements LimitKind = "elements" // array elements and members in one payload
	limitInbound  LimitKind = "inbound"  // bytes of the messages of all connections that arrive or wait
)

// optionElements sets the limit whose refusals are INVALID_ARGUMENT, whatever the LimitAction is.
const optionElements = "router.Limits.Elements"

// A LimitExceeded is the error for a message or a connection that exceeds a limit. An
// [IngressFunc], a handler or Options.Authenticate may return one; the router sets Conn and
// Type, passes it to Options.OnLimitExceeded, and answers the client according to
// [LimitAction].
type LimitExceeded struct {
	Kind     LimitKind
	Conn     *Conn  // nil if a connection was refused
	Type     string // message type as in IngressContext
	Observed int64  // cost, or the number of what Kind counts, including the refused one
	Limit    int64  // highest allowed value of Observed

	// Reason says why the limit refused the message, if Kind alone does not: "burst" if it
	// started a penalty, "cooldown" during a penalty, "blocked" if an administrator has blocked
	// the client, or a word of the application. The client receives it; "" is not sent.
	Reason string

	// Policy is the name of the policy that refused the message, as the greeting announces it. The
	// client receives it; "" is not sent.
	Policy string

	// Option names the field to change, if the limit is one of the router: "router.Limits.ConnsPerIP", for
	// example. Clients do not receive it.
	Option string

	// DryRun says that nothing was refused: the limit only reports what it would refuse.
	DryRun bool

	// Messages is the number of refused or dropped messages. It is 1, except for LimitQueue:
	// drops that follow each other faster than OnLimitExceeded returns are reported together.
	// The router sets it.
	Messages int64

	// RetryAfter is the time until the same message can be admitted: 0 if it is unknown,
	// errors.Never if it can never be admitted.
	RetryAfter time.Duration
}

// Error describes the limit for operators, and names its Option or its Policy.
func (l *LimitExceeded) Error() string {
	if l == nil {
		return "<nil>"
	}
	text := fmt.Sprintf("%s limit exceeded: %d of %d", l.Kind, l.Observed, l.Limit)
	if l.Kind == LimitRate {
		text = fmt.Sprintf("rate limit exceeded: cost %d, capacity %d", l.Observed, l.Limit)
	}
	switch {
	case l.Option != "":
		text += ", set by " + l.Option
	case l.Policy != "":
		text += fmt.Sprintf(", policy %q", l.Policy)
	}
	if l.Reason != "" {
		text += ", " + l.Reason
	}
	return text
}

// name returns what operators know the limit by: the option that sets it, or the kind of one of the application.
// A nil limit has none.
func (l *LimitExceeded) name() string {
	if l == nil {
		return ""
	}
	return cmp.Or(l.Option, string(l.Kind))
}

// A LimitAction decides how the client is answered when a message exceeds a limit. The handler
// is not called in any case.
type LimitAction uint8

// The actions. ActionSend is the default.
const (
	ActionSend   LimitAction = iota // send an error
	ActionClose                     // send nothing and close the connection, with 1009 for a payload and 1013 for any other limit
	ActionCustom                    // send nothing; Options.OnLimitExceeded answers
)

// mustBeLimitAction panics if the action is unknown.
func mustBeLimitAction(a LimitAction) {
	if a > ActionCustom {
		panic(fmt.Sprintf("router: LimitAction is %d; it must be ActionSend, ActionClose or ActionCustom", a))
	}
}

// A SlowConsumerPolicy decides what happens to publications, and messages of [Conn.Send], for a
// client that reads slowly. The limits are those of its send queue, Limits.QueueMessages and
// Limits.QueueBytes. Messages that have been handed to the socket, one batch of
// 16 KiB or one longer message, do not count and are never dropped.
//
// Replies and errors are never dropped: they wait for room, and one that is longer than the
// whole queue closes the connection with 1013. If a progress message does not fit, messages
// under DropOldest and DropNewest are dropped to make room for it. A policy that closes the
// connection does so only if dropping these does not help either.
type SlowConsumerPolicy uint8

// The policies. The zero value means Disconnect in [Options], and the policy of Options.SlowConsumer in [TopicOptions].
const (
	// Disconnect closes the connection with 1013 if the message does not fit. The client should
	// reconnect and load its state again.
	Disconnect SlowConsumerPolicy = iota + 1

	// DropOldest drops the messages that have been queued longest. The newest one always has a
	// place: if replies fill the queue, it exceeds the limits.
	DropOldest

	// DropNewest drops the message that is being sent if it does not fit.
	DropNewest

	// Conflate replaces a queued message by a later one of the same type and key, at once: see
	// [Conflatable]. The later one takes the place of the earlier one, so every key has its turn,
	// however often other keys change. Only if a message that is not conflatable was queued
	// meanwhile, it goes to the end instead: a conflatable message overtakes only other
	// conflatable messages. A message that does not fit closes the connection with 1013, so the
	// queue should have room for a message of each key.
	Conflate
)

// String returns the name of the policy as metrics have it: "drop_oldest", for example.
func (p SlowConsumerPolicy) String() string {
	names := [...]string{"default", "disconnect", "drop_oldest", "drop_newest", "conflate"}
	if int(p) >= len(names) {
		return "unknown"
	}
	return names[p]
}

// mustBeSlowConsumerPolicy panics if the policy is unknown.
func mustBeSlowConsumerPolicy(name string, p SlowConsumerPolicy) {
	if p > Conflate {
		panic(fmt.Sprintf("router: %s is %d; it must be Disconnect, DropOldest, DropNewest or Conflate", name, p))
	}
}

// A Conflatable message replaces a queued message of the same type and key under the policy
// [Conflate]: the position of one player, for example. The empty key is a key like any other.
//
// On a topic with a History, it is also the current state of its key, whatever its type is, until a
// later message with the key replaces or removes it; see [Removed] and
// [CurrentState].
type Conflatable interface {
	Message
	ConflationKey() string
}
