// Package observe has the events of package router that metrics count; see router.Router.Observe. Package
// middleware/metrics exports them to Prometheus.
package observe

import (
	"time"

	"github.com/penstock-go/penstock/errors"
)

// An Event reports what a router has done, for metrics. Its fields hold no values that a
// client has chosen, so they may be used as labels: Type is a registered type, one of the
// protocol, or that of a call to a client, Reason is listed with its kind, and Code is chosen by the
// server.
type Event struct {
	Kind Kind

	Type      string        // of the message; "" if it is not registered or no message is involved
	Code      errors.Code   // "" for success
	Reason    string        // depends on Kind
	Limit     string        // of Refused and Dropped: the option that sets the exceeded limit
	Status    int           // of Closed
	Policy    string        // of Dropped
	Transport string        // of Opened
	Count     int           // depends on Kind
	Bytes     int           // on the network, compressed
	Duration  time.Duration // depends on Kind
}

// A Kind says what happened and which other fields of an [Event] are set.
type Kind uint8

// The kinds.
const (
	// Opened: a request was upgraded to a connection, whose Transport is set.
	Opened Kind = iota + 1

	// Closed: a connection was closed and its last handler has returned. Status is the
	// code that Options.OnClose receives.
	Closed

	// Refused: a request, a connection or a message of Type was refused with Code. Reason is that
	// of a router.Refusal, Limit may also be "", or the kind of a limit of the application, and Count is 1 for a message and otherwise 0. There is no event for a message that its sender
	// has canceled.
	Refused

	// Read: a message was read. Bytes is the number of bytes read from the socket since
	// the previous message, including frame headers, and possibly the beginning of the next
	// message.
	Read

	// Started: a call of Type was admitted and waits for its turn. One Finished
	// follows for each.
	Started

	// Handled: the handler of Type and its middleware have returned after Duration.
	Handled

	// Finished: the handler of a call of Type has returned, or the call was not handled.
	Finished

	// Completed: the outcome of a message of Type is known. Code is that of its answer,
	// or the one that the answer would have if the message had one. There is one for each
	// message that was read. A call that exceeds its deadline is completed before its handler
	// returns.
	Completed

	// Panicked: a function of the application has panicked, while handling a message of Type
	// unless that is "". Reason is "ingress", "decode", "handler", "reply", or the name of the
	// option, such as "OnOpen". Panics of a broker count as those of the function that calls it.
	Panicked

	// Written: one system call has written Bytes and Count frames. Duration is the age of
	// the oldest message among them, 0 if there were only control frames.
	Written

	// Dropped: a full send queue has dropped Count messages according to Policy.
	Dropped

	// Conflated: Count queued messages were replaced by later ones with their key.
	Conflated

	// Published: a message was published on this node and queued for Count connections.
	Published

	// Delivered: a message from another node was queued for Count connections, Duration
	// after it was published according to that node's clock.
	Delivered

	// MessagesLost: Count messages from other nodes were lost; 0 if the number is
	// unknown.
	MessagesLost

	// Shutdown: Shutdown has begun to close Count connections.
	Shutdown

	// Aborted: Shutdown has aborted the last Count connections because its context was
	// done.
	Aborted

	// ClientCall: a call to a client, of Type, has ended after Duration. Code is that of the
	// error that [Call] returns, or "other" if package errors does not define it. Type is chosen by
	// the server, and not registered.
	ClientCall

	// SessionResumed: a client has asked to resume its session. Code is that of the answer, or
	// "other" if package errors does not define it.
	SessionResumed
)
