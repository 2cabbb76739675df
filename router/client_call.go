package router

import (
	"context"
	"reflect"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/calls"
	"github.com/penstock-go/penstock/internal/envelope"
	"github.com/penstock-go/penstock/internal/failure"
	"github.com/penstock-go/penstock/internal/protocol"
	"github.com/penstock-go/penstock/internal/sampledlog"
	"github.com/penstock-go/penstock/internal/wire"
	"github.com/penstock-go/penstock/internal/wsconn"
	"github.com/penstock-go/penstock/router/observe"
	"github.com/penstock-go/penstock/tracing"
)

// This file makes calls to clients. A caller waits on its own goroutine, which also decodes the
// answer: the reading goroutine only hands the message over. The answers are in client_answer.go.

// Call sends a message to a client as a call, and waits for its answer, which must be a Reply or
// an error. The client must support such calls; see the protocol, section 9. Reply is a message
// type, as for [RPC]; the answer is decoded and validated like any message. An answer passes ingress
// and the size limit, too: the client may repeat one that they refuse.
//
// Call returns the first of these errors that applies:
//
//   - the error with which the client answers: an *errors.Error with the client's code, message,
//     details and delay, and a private part that names the connection. A message is cut after 1,024
//     bytes, and details above 4,096 bytes are left out.
//   - FAILED_PRECONDITION if the answer is invalid or of another type. The message is constant; the
//     private part of the error says what is wrong.
//   - [context.Cause] of ctx if ctx is done first.
//   - DEADLINE_EXCEEDED if Timeouts.Call passes first.
//   - UNAVAILABLE if the connection is closed first.
//   - a [*LimitExceeded] if Limits.Concurrency calls have no answer, or the message is longer than
//     Limits.QueueBytes.
//   - INTERNAL if the message cannot be encoded, or Reply cannot be registered.
//
// Without an answer, the client may have handled the call nevertheless. An error of the client is
// in the client's own words, so only the client that has sent it receives it from a handler that
// returns it: any other one receives FAILED_PRECONDITION instead.
//
// Call may be called concurrently and by handlers. An event's handler delays the later messages of
// its connection meanwhile. Answers overtake these messages, but not while the connection is not
// read because too many of them wait; see Limits.InboundBytes. Options.OnOpen must not wait for a
// Call to its connection, which is not read before OnOpen has returned; a goroutine that OnOpen
// starts may. During Shutdown, answers are received until the connection is closed.
func Call[Reply Message](ctx context.Context, c *Conn, m Message) (reply Reply, err error) {
	if c.router.hints != nil {
		c.router.hints.Call(m, reflect.TypeFor[Reply]())
	}
	call := c.router.startClientCall(ctx, m)
	defer func() { call.end(err) }() // even if decoding panics
	decoded, err := c.callAndDecode(&call, receivedTypeOf[Reply]())
	call.report(err)
	if err != nil {
		return reply, err
	}
	return *decoded.(*Reply), nil
}

// callAndDecode calls the client. It returns a pointer to the reply.
func (c *Conn) callAndDecode(call *clientCall, typ receivedType) (reply any, err error) {
	rt, err := replyRoute(c.router, typ)
	if err != nil {
		return nil, err
	}
	in, err := c.call(call.ctx, call.m, call.start)
	if err != nil {
		return nil, err
	}
	return c.router.decodeAnswer(rt, in, c.id)
}

// errNoAnswer ends a call to a client after Timeouts.Call.
var errNoAnswer = &errors.Error{Code: errors.DeadlineExceeded, Message: "the client has not answered in time"}

// call sends a call to the client and waits for the answer.
func (c *Conn) call(ctx context.Context, m Message, start time.Time) (*incoming, error) {
	if err := c.endOfWait(ctx); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, c.router.opts.Timeouts.Call, errNoAnswer)
	defer cancel()
	waiting := c.callsToClient()
	call, open := waiting.Begin(c.router.opts.Limits.Concurrency)
	if call == nil {
		return nil, &LimitExceeded{Kind: LimitConcurrency, Observed: int64(open), Limit: int64(c.router.opts.Limits.Concurrency)}
	}
	greeted := c.sub.HasGreeted()
	if err := c.sendCall(ctx, call.ID, m, start, greeted); err != nil {
		if in, ok := waiting.End(call); ok {
			in.release() // the client has guessed the ID
		}
		return nil, err
	}
	if in, ok := waiting.Await(call, ctx.Done(), c.ctx.Done()); ok {
		return in, nil
	}
	if greeted {
		c.abortClientCall(call.ID)
	}
	return nil, c.endOfWait(ctx)
}

// endOfWait returns why a caller must stop waiting, or nil. A message's context ends with
// its connection, so the connection comes first.
func (c *Conn) endOfWait(ctx context.Context) error {
	switch {
	case c.ctx.Err() != nil:
		return errClosed
	case ctx.Err() != nil:
		return context.Cause(ctx)
	default:
		return nil
	}
}

// callsToClient returns the calls to the client.
func (c *Conn) callsToClient() *calls.Outgoing[*incoming] {
	extra := c.ownExtra()
	if extra.clientCalls.Load() == nil {
		extra.clientCalls.CompareAndSwap(nil, new(calls.Outgoing[*incoming]))
	}
	return extra.clientCalls.Load()
}

// sendCall queues a call. While the send queue is full, it waits until ctx is done.
func (c *Conn) sendCall(ctx context.Context, id string, m Message, start time.Time, greeted bool) error {
	var timeoutMs int64
	if deadline, ok := ctx.Deadline(); ok && greeted {
		timeoutMs = max(1, failure.Ceil(deadline.Sub(start), time.Millisecond))
	}
	head := wire.OutgoingHead{CorrelationID: id, TimeoutMs: timeoutMs, At: start}
	if c.extra().traced.Load() {
		head.Trace = c.traceOf(ctx, m)
	}
	err := c.queueTurn(ctx, func() (*wsconn.Frame, error) { return c.encodeCall(m, head) }, nil)
	if errors.Is(err, wsconn.ErrCanceled) {
		return context.Cause(ctx)
	}
	return err
}

// encodeCall encodes a call, which another node may have encoded except for the head.
func (c *Conn) encodeCall(m Message, head wire.OutgoingHead) (*wsconn.Frame, error) {
	if encoded, ok := m.(encodedMessage); ok {
		return encoded.frame(c, head)
	}
	return envelope.Encode(c.codec(), m, head)
}

// abortClientCall notifies the client that its answer is not needed. It does not wait: without room
// in the send queue, the client is not notified.
func (c *Conn) abortClientCall(id string) {
	frame := envelope.EncodeControl(c.binary(), protocol.TypeAbort, id)
	frame.Droppable("")
	frame.SetPolicy(wsconn.DropNewest)
	_ = c.send(frame)
}

// A clientCall is a call to one client, or to those of a user, for observers and the Tracer.
type clientCall struct {
	router *Router
	m      Message
	typ    string // "" if nothing needs it, or the message has none
	start  time.Time
	ctx    context.Context //nolint:containedctx // of one call
	traced bool
}

// startClientCall starts the span of a call. The caller must end it.
func (r *Router) startClientCall(ctx context.Context, m Message) clientCall {
	call := clientCall{router: r, m: m, start: time.Now(), ctx: ctx}
	if r.observer != nil || r.spans.IsOn() {
		call.typ, _ = envelope.MessageType(m) // with an error, it is not sent
	}
	if r.spans.IsOn() {
		call.ctx, call.traced = r.spans.Start(ctx, tracing.Operation{Kind: tracing.ClientCall, Type: call.typ, At: call.start})
	}
	return call
}

// report reports the outcome of the call to observers.
func (call *clientCall) report(err error) {
	call.router.observe(observe.Event{Kind: observe.ClientCall, Type: call.typ, Code: clientCallCode(err), Duration: time.Since(call.start)})
}

// end ends the span of the call.
func (call *clientCall) end(err error) {
	if call.traced {
		call.router.spans.End(call.ctx, tracing.Result{Code: clientCallCode(err)})
	}
}

// clientCallCode returns the code of the error that ends a call to a client. Codes that clients
// may have invented are otherCode.
func clientCallCode(err error) errors.Code {
	switch e := err.(type) { //nolint:errorlint // the tree of a context's cause may be anything
	case nil:
		return ""
	case *LimitExceeded:
		return errors.ResourceExhausted
	case *errors.Error:
		if e == nil || !e.Code.IsStandard() {
			return otherCode
		}
		return e.Code
	}
	if err == context.DeadlineExceeded { //nolint:errorlint // as above
		return errors.DeadlineExceeded
	}
	return errors.Canceled
}

// otherCode is the Code of an observe.ClientCall for codes that package errors does not define.
const otherCode = sampledlog.OtherCode
