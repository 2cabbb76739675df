package router

import (
	"time"

	"github.com/penstock-go/penstock/errors"
)

// An Event is something that a router has done, for metrics. It holds nothing that a
// client has chosen: a Type is a registered one or the router's own, a Reason one that is
// listed with its kind, a Code one that the server's code gave.
type Event struct {
	Kind EventKind

	Type     string             // of the message; "" if it is not registered, or if there is none
	Code     errors.Code        // "" if all went well
	Reason   string             // what else there is to say; see the kinds
	Status   StatusCode         // of EventClosed
	Policy   SlowConsumerPolicy // of EventDropped
	Count    int                // of messages, connections, receivers; see the kinds
	Bytes    int                // on the wire
	Duration time.Duration      // see the kinds
}

// An EventKind says what happened, and which fields of an [Event] are set besides.
type EventKind uint8

// The kinds there are.
const (
	// EventOpened: a request has become a connection.
	EventOpened EventKind = iota + 1

	// EventClosed: a connection has ended, and its last handler has returned. Status
	// is as Options.OnClose gets it.
	EventClosed

	// EventRejected: a request was refused with Code; or a connection was, by
	// Options.OnOpen. Reason is "origin", "draining", "limit", "authentication",
	// "handshake" or "on_open".
	EventRejected

	// EventRead: a message was read. Bytes is what came from the socket for it, with
	// frame headers, compressed; what came in one piece with the next message counts here.
	EventRead

	// EventStarted: an RPC was admitted and waits for its turn. Each has one EventFinished.
	EventStarted

	// EventHandled: a handler has returned after Duration, its middleware included.
	EventHandled

	// EventFinished: an RPC is not worked at any more.
	EventFinished

	// EventCompleted: it is certain what becomes of a message: Code is its answer, or
	// what would be if it had one. There is one for every message that was read. An RPC
	// whose time is up is answered before its handler returns.
	EventCompleted

	// EventLimitExceeded: a message or a connection was turned away for exceeding a limit.
	// Reason is its LimitKind, which may be one that an IngressFunc made up.
	EventLimitExceeded

	// EventPanicked: application code has panicked. Reason is "ingress", "decode",
	// "handler", "reply", the name of the option, such as "OnOpen" or "Logger", or the
	// broker's method, such as "Broker.Publish".
	EventPanicked

	// EventWritten: one system call has written Bytes: Count frames, of which the one
	// that had waited longest was Duration old, 0 if all were control frames.
	EventWritten

	// EventDropped: a full queue has dropped Count messages, by Policy.
	EventDropped

	// EventPublished: a message was published here, and queued for Count connections.
	EventPublished

	// EventDelivered: a message that was published on another node was queued for Count
	// connections, Duration after it was published by that node's clock.
	EventDelivered

	// EventMessagesLost: Count messages from other nodes were lost; 0 if it is not known how
	// many.
	EventMessagesLost

	// EventShutdown: Shutdown has begun to close Count connections.
	EventShutdown

	// EventAborted: Shutdown has cut the last Count connections, because its time was up.
	EventAborted
)

// Observe makes the router call f for each [Event], after those that were given before.
// It must be called before the router serves. Package middleware/metrics has one.
//
// F is called by many goroutines at once, some of which hold locks: it must return at
// once and call nothing of the router's. Its panics are contained. Nothing is allocated
// for it, and a router without one does not look at the clock for its sake.
func (r *Router) Observe(f func(Event)) {
	r.mustNotBeServing("Observe")
	if f == nil {
		panic("router: Observe needs a function")
	}
	before, f := r.observer, r.recoverObserver(f)
	if before == nil {
		r.observer = f
		return
	}
	r.observer = func(e Event) {
		before(e)
		f(e)
	}
}

// observe is small so that it is inlined: without an observer, an event is a branch.
func (r *Router) observe(e Event) {
	if r.observer != nil {
		r.observer(e)
	}
}

// A Stats is what a router has on its hands.
type Stats struct {
	Conns          int // open connections
	QueuedMessages int // waiting to be sent to them
	QueuedBytes    int
}

// Stats looks at every connection, whose lock it takes for a moment.
func (r *Router) Stats() Stats {
	var load Stats
	for c := range r.Conns() {
		messages, bytes := c.ws.Pending()
		load.Conns++
		load.QueuedMessages += messages
		load.QueuedBytes += bytes
	}
	return load
}
