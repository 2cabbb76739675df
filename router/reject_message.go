package router

import (
	"fmt"
	"strconv"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/wire"
)

// rejectMessage refuses a message: it reports a limit and gives the client exactly
// one answer, or what the action to a limit says.
func (c *Conn) rejectMessage(in *incoming, failed *inspectedError) {
	action := c.router.opts.LimitAction
	if in.route != nil {
		action = in.route.action
	}
	c.respondRejected(in.typ(), action, in.correlationID(), failed)
}

// respondFailed answers for a handler or its middleware, which may know limits, too.
func (c *Conn) respondFailed(ctx *Context, failed *inspectedError) {
	c.respondRejected(ctx.route.name, ctx.route.action, ctx.correlationID, failed)
}

// respondRejected defers what must follow even if a hook calls runtime.Goexit.
func (c *Conn) respondRejected(typ string, action LimitAction, correlationID string, failed *inspectedError) {
	if !failed.limited {
		c.respondError(typ, correlationID, failed)
		return
	}
	defer c.recordLimitExceeded(typ, failed.limit)
	defer c.ws.Wake() // the report may have to wait
	defer c.recordCompleted(typ, failed.payload.Code)
	c.applyLimitAction(action, typ, correlationID, failed)
}

// exceeded tells observers and Options.OnLimitExceeded of a limit.
func (c *Conn) recordLimitExceeded(typ string, limit LimitExceeded) {
	limit.Conn, limit.Type = c, typ
	c.router.observe(Event{Kind: EventLimitExceeded, Type: typ, Reason: string(limit.Kind), Count: 1})
	c.report(limit)
}

// react does to the client what a limit's action says.
func (c *Conn) applyLimitAction(action LimitAction, typ, correlationID string, failed *inspectedError) {
	switch action {
	case ActionSend:
		_ = c.queueWait(encodeError(&failed.payload, correlationID))
	case ActionClose:
		c.closeForLimit(typ, failed.limit)
	case ActionCustom:
	}
}

// closeForLimit closes the connection because of a limit, even if CloseCode calls
// runtime.Goexit.
func (c *Conn) closeForLimit(typ string, limit LimitExceeded) {
	limit.Conn, limit.Type = c, typ
	code := defaultCloseCode(limit)
	defer func() { c.Close(code, limit.closeReason()) }()
	c.router.hook("CloseCode", func() { code = c.router.opts.CloseCode(limit) })
}

// respondError sends an error and reports what the client does not see of it.
func (c *Conn) respondError(typ, correlationID string, failed *inspectedError) {
	defer func() { // even if OnError calls runtime.Goexit
		_ = c.queueWait(encodeError(&failed.payload, correlationID))
		c.recordCompleted(typ, failed.payload.Code)
	}()
	c.router.reportError(c, typ, failed)
}

// publicPayload is what a client may see of an error, without its details.
func publicPayload(e *errors.Error) wire.ErrorPayload {
	return wire.ErrorPayload{
		Code:         e.Code,
		Message:      e.Message,
		Retryable:    e.Retryable(),
		RetryAfterMs: retryAfterMs(e),
	}
}

// bareMessage is for errors that nobody gave a code.
func bareMessage(code errors.Code) string {
	switch code {
	case errors.Canceled:
		return "the call was cancelled"
	case errors.DeadlineExceeded:
		return "the time for the call is up"
	default:
		return "internal error"
	}
}

// retryAfterMs is in whole milliseconds, rounded up, so that whoever waits that
// long has waited long enough. A code that ends all hope has none.
func retryAfterMs(e *errors.Error) []byte {
	switch {
	case e.RetryAfter == errors.Never:
		return []byte("null")
	case e.RetryAfter <= 0 || !e.Retryable():
		return nil
	default:
		return strconv.AppendInt(nil, ceil(e.RetryAfter, time.Millisecond), 10)
	}
}

// ceil returns d in units, rounded up.
func ceil(d, unit time.Duration) int64 {
	n := int64(d / unit)
	if d%unit > 0 {
		n++
	}
	return n
}

// payload is what a client is told of a limit.
func (l *LimitExceeded) payload() wire.ErrorPayload {
	e := errors.Error{Code: errors.ResourceExhausted, Message: l.Kind.message(), RetryAfter: l.RetryAfter}
	if l.Kind == LimitRate && l.RetryAfter == errors.Never {
		e.Code, e.Message = errors.FailedPrecondition, "the message costs more than the limit can ever allow"
	}
	payload := publicPayload(&e)
	payload.Details = wire.LimitDetails{Kind: string(l.Kind), Observed: l.Observed, Limit: l.Limit}
	return payload
}

func (k LimitKind) message() string {
	switch k {
	case LimitPayload:
		return "message is too big"
	case LimitConcurrency:
		return "too many calls in flight"
	case LimitConnections:
		return "too many connections"
	case LimitTopics:
		return "too many topics"
	case LimitQueue:
		return "client reads too slowly"
	default:
		return string(k) + " limit exceeded"
	}
}

func (l *LimitExceeded) closeReason() string {
	reason := l.Kind.message()
	if l.RetryAfter > 0 && l.RetryAfter != errors.Never {
		reason += fmt.Sprintf("; retry after %d ms", ceil(l.RetryAfter, time.Millisecond))
	}
	return reason
}
