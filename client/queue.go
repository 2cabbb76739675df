//go:build !js

package client

import (
	"cmp"
	"slices"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/tracing"
)

// An outgoing is a message that waits to be sent, or for the confirmation that the server has admitted
// it. The lock of the client guards it.
type outgoing struct {
	number   uint64 // its place in the order of sending
	typ      string
	payload  []byte
	deadline time.Time  // after which it is not sent; zero if there is none
	credit   int64      // of a stream; -1 for other messages
	call     *call      // nil for an event
	result   chan error // of an event: whether it was handed over to a connection
	trace    *tracing.TraceContext

	id        string    // of the last attempt
	charge    charge    // what the pacer has taken for it
	settled   bool      // result has a value
	notBefore time.Time // when it may be sent again after a rejection
	crowded   bool      // it was rejected because of the calls of other connections
	rejection error     // why it waits to be sent again; nil if it was not rejected
}

func (m *outgoing) bytes() int64 { return int64(len(m.payload)+len(m.typ)) + 128 }

// settle passes the outcome of an event to Send. It reports false if Send has returned already.
func (m *outgoing) settle(err error) bool {
	if m.settled {
		return false
	}
	m.settled = true
	m.result <- err
	return true
}

func byNumber(a, b *outgoing) int { return cmp.Compare(a.number, b.number) }

// A sendQueue contains the messages that wait, in the order in which they are sent. The lock of the
// client guards it.
type sendQueue struct {
	limits   Queue
	messages []*outgoing
	bytes    int64
	last     uint64
}

// errQueueFull is the error of a message that does not fit.
var errQueueFull = &errors.Error{Code: errors.ResourceExhausted, Message: "the queue of messages to be sent is full; see client.Options.Queue"}

// add appends a message. It returns the messages that must fail because the queue is full.
func (q *sendQueue) add(m *outgoing) (dropped []*outgoing) {
	q.last++
	m.number = q.last
	for q.full(m) {
		if q.limits.Overflow == DropNewest || m.bytes() > q.limits.MaxBytes {
			return append(dropped, m)
		}
		dropped = append(dropped, q.messages[0])
		q.remove(q.messages[0])
	}
	q.messages = append(q.messages, m)
	q.bytes += m.bytes()
	return dropped
}

func (q *sendQueue) full(m *outgoing) bool {
	return len(q.messages) >= q.limits.MaxMessages || q.bytes+m.bytes() > q.limits.MaxBytes
}

// putBack inserts a message that must be sent again, where it was before.
func (q *sendQueue) putBack(m *outgoing) {
	i, _ := slices.BinarySearchFunc(q.messages, m, byNumber)
	q.messages = slices.Insert(q.messages, i, m)
	q.bytes += m.bytes()
}

// remove takes a message out of the queue, and reports whether it was there.
func (q *sendQueue) remove(m *outgoing) bool {
	i := slices.Index(q.messages, m)
	if i < 0 {
		return false
	}
	if i == 0 { // usually
		q.messages[0] = nil
		q.messages = q.messages[1:]
	} else {
		q.messages = slices.Delete(q.messages, i, i+1)
	}
	q.bytes -= m.bytes()
	return true
}

func (q *sendQueue) takeAll() []*outgoing {
	all := q.messages
	q.messages, q.bytes = nil, 0
	return all
}
