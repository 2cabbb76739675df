package router

import (
	"context"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/calls"
	"github.com/penstock-go/penstock/internal/envelope"
	"github.com/penstock-go/penstock/internal/wsconn"
)

// Progress sends an intermediate result of a call to the client, without waiting. After the call
// has been answered, it does nothing. It returns FAILED_PRECONDITION if the message is an event,
// and an error if the update cannot be encoded or sent, as [Conn.Send] does: an update that does not
// fit into the send queue closes the connection. See [Context.ProgressWait].
//
// For a stream, it sends an item, for which the client needs no credit.
func (c *Context) Progress(update any) error {
	frame, err := c.progressFrame(update)
	if err != nil {
		return err
	}
	err = c.conn.member.WS.QueueUnless(&c.root().call.Answered, frame)
	c.conn.member.WS.Wake()
	if errors.Is(err, wsconn.ErrCanceled) {
		return nil // the call has been answered
	}
	return err
}

// ProgressWait sends an intermediate result of a call to the client. It waits while the send queue
// has been more than half full and not less than a quarter full since then, as [Conn.SendWait]
// does, so a client that reads slowly slows the handler down and stays connected. It returns nil
// when the update is queued. For a stream, it sends an item and waits for a credit, too; see
// [Stream].
//
// When the call has been answered or its context is done, it returns the cause; see
// [context.Cause]. The code is CANCELLED after the client has aborted the call, DEADLINE_EXCEEDED
// after the deadline and when it has waited for ten minutes, and UNAVAILABLE when the connection is
// closed or a shutdown ends a stream. It
// returns FAILED_PRECONDITION if the message is an event, a [*LimitExceeded] if the update is longer
// than Limits.QueueBytes, and an error if it cannot be encoded.
func (c *Context) ProgressWait(update any) error {
	if c.hasEnded() {
		return c.endCause()
	}
	if err := c.root().call.Credits.Await(c, sendTimeout); err != nil {
		if errors.Is(err, calls.ErrUngranted) {
			return err
		}
		return c.endCause()
	}
	call := &c.root().call
	guard := c.conn.extra().guards.Of(call)
	for {
		if err := guard.Check(); err != nil {
			return err
		}
		err := c.conn.queueTurn(c, func() (*wsconn.Frame, error) { return c.progressFrame(update) }, func() bool {
			return call.IsAnswered() || guard.IsStale()
		})
		switch {
		case !errors.Is(err, wsconn.ErrCanceled):
			return err
		case c.hasEnded() || !guard.IsStale():
			return c.endCause()
		}
	}
}

// progressFrame encodes an intermediate result.
func (c *Context) progressFrame(update any) (*wsconn.Frame, error) {
	if !c.route.rpc {
		return nil, errors.Errorf(errors.FailedPrecondition, "%s is not a call, so it has no progress", c.route.name)
	}
	if h := c.conn.router.hints; h != nil && !c.route.stream && c.route.contract.progress == nil {
		h.Progress(c.route.name, update)
	}
	return envelope.EncodeProgress(c.conn.codec(), c.root().call.ID, update)
}

// hasEnded reports whether a call has been answered or its context is done.
func (c *Context) hasEnded() bool { return c.root().call.IsAnswered() || c.Err() != nil }

// endCause returns why a call has ended.
func (c *Context) endCause() error {
	if c.conn.ctx.Err() != nil {
		return wsconn.ErrClosed
	}
	if cause := c.root().call.Cause(); cause != nil {
		return cause
	}
	if cause := context.Cause(c.context()); cause != nil {
		return cause
	}
	return context.Canceled // the reply is being queued
}
