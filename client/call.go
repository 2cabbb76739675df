//go:build !js

package client

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/protocol"
)

// ErrOutcomeUnknown is the error of a call or an event whose connection was lost before the server
// has answered it: it may have been handled, or not, whatever the close code. The client never sends
// such a message again, because that may repeat its effect.
var ErrOutcomeUnknown = &errors.Error{Code: errors.Aborted, Message: "the connection was lost before the answer; the message may have been handled"}

func outcomeUnknown(cause error) error {
	return &errors.Error{Code: ErrOutcomeUnknown.Code, Message: ErrOutcomeUnknown.Message, Err: errors.Join(ErrOutcomeUnknown, cause)}
}

// A call is a call of the client that has no answer yet.
type call struct {
	typ   string
	reply string // the type of the reply, or anyReply

	item     func(payload) // called with each progress message, on the reading goroutine; may be nil
	answered chan answer   // receives the answer, unless onAnswer is set
	onAnswer func(answer)  // called on the reading goroutine, or the one that closes the connection
	once     sync.Once

	// The client's lock guards the following.
	id        string
	conn      *conn     // over which it was sent; nil before
	queue     *outgoing // the message; nil for calls of the protocol
	abandoned bool      // the caller no longer waits
}

// anyReply is the type of the reply to a call whose reply is ignored.
const anyReply = ""

// An answer is a reply or an error.
type answer struct {
	payload payload
	err     error
}

func (a answer) decode(reply any) error {
	if err := a.payload.decode(reply); err != nil {
		return &errors.Error{Code: errors.Internal, Message: "the reply cannot be decoded", Err: err}
	}
	return nil
}

func newCall(typ, reply string) *call {
	return &call{typ: typ, reply: reply, answered: make(chan answer, 1)}
}

// finish settles the call. Only the first answer counts.
func (cl *call) finish(a answer) {
	cl.once.Do(func() {
		if cl.onAnswer != nil {
			cl.onAnswer(a)
			return
		}
		cl.answered <- a
	})
}

// Call sends a call and returns the reply. While the client is not connected, or has as many calls
// without an answer as the server permits, the call waits. If ctx has no deadline, Options.CallTimeout
// applies; the server stops at the deadline, too. If ctx is canceled, the server cancels the call.
//
// The error is an [*errors.Error] with a code: that of the server; [errors.DeadlineExceeded] or
// [errors.Canceled] if ctx is done; [ErrOutcomeUnknown] if the connection was lost after the call was
// sent; [errors.ResourceExhausted] if the queue is full, or the message is larger than the server permits;
// [ErrClosed].
func Call[Reply Message](ctx context.Context, c *Client, m Message) (Reply, error) {
	var reply Reply
	ctx, cancel := c.withDeadline(ctx)
	defer cancel()
	cl := newCall(m.MessageType(), reply.MessageType())
	if err := c.startCall(ctx, cl, m, -1); err != nil {
		return reply, err
	}
	select {
	case a := <-cl.answered:
		if a.err != nil {
			return reply, a.err
		}
		return reply, a.decode(&reply)
	case <-ctx.Done():
		return reply, contextError(ctx, c.abandon(cl))
	}
}

func (c *Client) withDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, c.opts.CallTimeout)
}

// contextError returns the error of a call whose context is done. rejection is why it waited, or nil.
func contextError(ctx context.Context, rejection error) error {
	cause := context.Cause(ctx)
	if rejection != nil {
		cause = errors.Join(cause, rejection)
	}
	return &errors.Error{Code: errors.CodeOf(ctx.Err()), Message: "the call has ended before its answer", Err: cause}
}

// startCall queues a call.
func (c *Client) startCall(ctx context.Context, cl *call, m Message, credit int64) error {
	if ctx.Err() != nil {
		return contextError(ctx, nil)
	}
	payload, err := c.encode(m)
	if err != nil {
		return err
	}
	deadline, _ := ctx.Deadline()
	out := &outgoing{typ: cl.typ, payload: payload, deadline: deadline, credit: credit, call: cl, trace: c.injectTrace(ctx)}
	cl.queue = out
	return c.enqueue(out)
}

// enqueue adds a message to the queue.
func (c *Client) enqueue(m *outgoing) error {
	c.begin()
	c.mu.Lock()
	if err := c.closedErrorLocked(); err != nil {
		c.mu.Unlock()
		return err
	}
	dropped := c.queue.add(m)
	cn := c.conn
	c.mu.Unlock()
	if cn != nil {
		cn.wakeWriter()
	}
	var result error
	for _, other := range dropped {
		if other == m {
			result = errQueueFull
			continue
		}
		c.fail(other, errQueueFull)
	}
	return result
}

// abandon ends a call whose caller no longer waits: it is not sent, or the server is asked to cancel
// it. If it waited because the server had rejected it, abandon returns that error.
func (c *Client) abandon(cl *call) (rejection error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if cl.queue != nil && c.withdrawLocked(cl.queue) {
		return cl.queue.rejection
	}
	if c.calls[cl.id] == cl && cl.conn != nil {
		cl.abandoned = true // until the server has answered
		cl.conn.sendControlLocked(protocol.TypeAbort, cl.id, -1, nil)
	}
	return nil
}

// forget removes a call of the protocol.
func (c *Client) forget(cl *call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls[cl.id] == cl {
		delete(c.calls, cl.id)
		cl.conn.settledLocked(cl.id)
	}
}

// answerCall handles a message with the ID of a call. It reports false if there is no such call.
func (c *Client) answerCall(e *envelope) bool {
	id := e.Meta.CorrelationID
	c.mu.Lock()
	cl := c.calls[id]
	if cl == nil {
		c.mu.Unlock()
		return false
	}
	if e.Type == protocol.TypeProgress {
		abandoned := cl.abandoned
		c.mu.Unlock()
		if cl.item != nil && !abandoned {
			cl.item(e.content())
		}
		return true
	}
	delete(c.calls, id)
	if cl.conn != nil {
		cl.conn.settledLocked(id)
	}
	c.mu.Unlock()
	switch {
	case e.Type == protocol.TypeRPCError, e.Type == protocol.TypeError:
		cl.finish(answer{err: e.error()})
	case cl.reply == e.Type, cl.reply == anyReply:
		cl.finish(answer{payload: e.content()})
	default:
		cl.finish(answer{err: errors.Errorf(errors.Internal, "the reply to %s has the type %s; it must be %s", cl.typ, e.Type, cl.reply)})
	}
	return true
}

// Send sends an event, and returns when it was handed over to the connection. While the client is not
// connected, or is pacing itself, Send waits, at most Options.Queue.MaxWait. Events of one goroutine arrive in
// order. An event that the server rejects afterwards is reported to Options.OnError.
func Send(ctx context.Context, c *Client, m Message) error {
	payload, err := c.encode(m)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, c.opts.Queue.MaxWait, errWaitedTooLong)
	defer cancel()
	out := &outgoing{
		typ: m.MessageType(), payload: payload, credit: -1, result: make(chan error, 1), deadline: time.Now().Add(c.opts.Queue.MaxWait), trace: c.injectTrace(ctx),
	}
	if err := c.enqueue(out); err != nil {
		return err
	}
	select {
	case err := <-out.result:
		return err
	case <-ctx.Done():
	}
	c.mu.Lock()
	removed := c.withdrawLocked(out)
	c.mu.Unlock()
	if !removed {
		return <-out.result // it is being written
	}
	return &errors.Error{Code: errors.CodeOf(ctx.Err()), Message: fmt.Sprintf("%s was not sent", out.typ), Err: context.Cause(ctx)}
}

var errWaitedTooLong = errors.Errorf(errors.DeadlineExceeded, "the client was not connected, or a limit of the server did not admit the message, for too long; see client.Options.Queue.MaxWait")
