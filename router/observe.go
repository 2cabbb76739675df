package router

import (
	"time"

	"github.com/penstock-go/penstock/errors"
)

// An Event reports what a router has done, for metrics. Its fields hold no values that a
// client has chosen, so they may be used as labels: Type is a registered type, one of the
// protocol, or that of a call to a client, Reason is listed with its kind, and Code is chosen by the
// server.
type Event struct {
	Kind EventKind

	Type      string             // of the message; "" if it is not registered or no message is involved
	Code      errors.Code        // "" for success
	Reason    string             // depends on Kind
	Limit     LimitKind          // of EventRefused
	Status    StatusCode         // of EventClosed
	Policy    SlowConsumerPolicy // of EventDropped
	Transport Transport          // of EventOpened
	Count     int                // depends on Kind
	Bytes     int                // on the network, compressed
	Duration  time.Duration      // depends on Kind
}

// An EventKind says what happened and which other fields of an [Event] are set.
type EventKind uint8

// The kinds.
const (
	// EventOpened: a request was upgraded to a connection, whose Transport is set.
	EventOpened EventKind = iota + 1

	// EventClosed: a connection was closed and its last handler has returned. Status is the
	// code that Options.OnClose receives.
	EventClosed

	// EventRefused: a request, a connection or a message of Type was refused with Code. Reason is that
	// of a [Refusal], Limit is the kind of the exceeded limit, which an IngressFunc may have defined, or
	// "", and Count is 1 for a message and otherwise 0. There is no event for a message that its sender
	// has canceled.
	EventRefused

	// EventRead: a message was read. Bytes is the number of bytes read from the socket since
	// the previous message, including frame headers, and possibly the beginning of the next
	// message.
	EventRead

	// EventStarted: a call of Type was admitted and waits for its turn. One EventFinished
	// follows for each.
	EventStarted

	// EventHandled: the handler of Type and its middleware have returned after Duration.
	EventHandled

	// EventFinished: the handler of a call of Type has returned, or the call was not handled.
	EventFinished

	// EventCompleted: the outcome of a message of Type is known. Code is that of its answer,
	// or the one that the answer would have if the message had one. There is one for each
	// message that was read. A call that exceeds its deadline is completed before its handler
	// returns.
	EventCompleted

	// EventPanicked: a function of the application has panicked, while handling a message of Type
	// unless that is "". Reason is "ingress", "decode", "handler", "reply", or the name of the
	// option, such as "OnOpen". Panics of a broker count as those of the function that calls it.
	EventPanicked

	// EventWritten: one system call has written Bytes and Count frames. Duration is the age of
	// the oldest message among them, 0 if there were only control frames.
	EventWritten

	// EventDropped: a full send queue has dropped Count messages according to Policy.
	EventDropped

	// EventConflated: Count queued messages were replaced by later ones with their key.
	EventConflated

	// EventPublished: a message was published on this node and queued for Count connections.
	EventPublished

	// EventDelivered: a message from another node was queued for Count connections, Duration
	// after it was published according to that node's clock.
	EventDelivered

	// EventMessagesLost: Count messages from other nodes were lost; 0 if the number is
	// unknown.
	EventMessagesLost

	// EventShutdown: Shutdown has begun to close Count connections.
	EventShutdown

	// EventAborted: Shutdown has aborted the last Count connections because its context was
	// done.
	EventAborted

	// EventClientCall: a call to a client, of Type, has ended after Duration. Code is that of the
	// error that [Call] returns, or "other" if package errors does not define it. Type is chosen by
	// the server, and not registered.
	EventClientCall

	// EventSessionResumed: a client has asked to resume its session. Code is that of the answer, or
	// "other" if package errors does not define it.
	EventSessionResumed
)

// Observe registers a function that is called for each [Event] of this node, after those that were
// registered before it. It panics if f is nil or the router has begun to serve. Package
// middleware/metrics provides an observer for Prometheus.
//
// The function is called concurrently, sometimes under locks: it must return quickly, must not
// block, and must not call the router or runtime.Goexit. Its panics are recovered. Events allocate
// no memory, and a router without observers does not read the clock for them.
func (r *Router) Observe(f func(Event)) {
	r.mustNotBeServing("Observe")
	if f == nil {
		panic("router: the function of Observe is nil")
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

// observe is small enough to be inlined: without an observer, an event costs one branch.
func (r *Router) observe(e Event) {
	if r.observer != nil {
		r.observer(e)
	}
}

// Stats is a snapshot of a router's connections, which are those of its node.
type Stats struct {
	Conns          int // open connections
	QueuedMessages int // in the send queues of all connections
	QueuedBytes    int // of these messages
}

// Stats returns a snapshot of the connections of this node. It iterates over all of them and locks
// each briefly.
func (r *Router) Stats() Stats {
	var stats Stats
	for c := range r.Conns() {
		messages, bytes := c.sub.WS.Pending()
		stats.Conns++
		stats.QueuedMessages += messages
		stats.QueuedBytes += bytes
	}
	return stats
}
