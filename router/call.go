package router

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/failure"
)

// A call is the state of a message that expects an answer, in addition to that of an event. Its
// context is created on the first use, because most handlers do not use it.
type call struct {
	answered   atomic.Bool   // set by the first answer before that is queued; nothing is queued for the call after it
	indexed    bool          // in the callIndex, whose lock guards this field and the links
	replyState replyState    // of Context.reply
	timeout    time.Duration // from receiving the call to its deadline; 0 if it has none
	credits    *credits      // of a stream that the client has given credits; otherwise nil

	ended atomic.Pointer[callEnd]     // nil while the call is open
	lazy  atomic.Pointer[callContext] // nil until the context is used

	previous, next *Context
}

// A callEnd says why a call's context is canceled.
type callEnd struct {
	cause error // for context.Cause; nil means context.Canceled
}

// The ways in which a call ends. Its context has a timer of its own for the deadline, so that its
// Err is context.DeadlineExceeded.
//
//nolint:gochecknoglobals // never changed
var (
	endedByReturn   = &callEnd{}
	endedByAbort    = &callEnd{errAborted}
	endedByDeadline = &callEnd{errDeadline}
	endedByDraining = &callEnd{errDraining}
)

// errAborted answers a call that the client has aborted.
var errAborted = &errors.Error{Code: errors.Canceled, Message: failure.Message(errors.Canceled)}

// errDeadline answers a call whose deadline passes before it starts or before it is answered.
var errDeadline = &errors.Error{Code: errors.DeadlineExceeded, Message: failure.Message(errors.DeadlineExceeded)}

// A callContext is the context of a call with its cancel functions.
type callContext struct {
	context.Context

	cancel context.CancelCauseFunc
	stop   context.CancelFunc // stops the timer of the deadline; nil if there is none
}

// end cancels the context.
func (c *callContext) end(why *callEnd) {
	if why != endedByDeadline {
		c.cancel(why.cause)
	}
	if c.stop != nil && why == endedByReturn {
		c.stop()
	}
}

// callContext returns the context of a call, and creates it on the first use. Concurrent first uses
// race to store theirs; end cancels the stored one, whether it runs before or after.
func (c *Context) callContext() context.Context {
	k := &c.call
	if created := k.lazy.Load(); created != nil {
		return created.Context
	}
	created := new(callContext)
	created.Context, created.cancel = context.WithCancelCause(c.conn.ctx)
	if deadline, ok := c.Deadline(); ok {
		created.Context, created.stop = context.WithDeadlineCause(created.Context, deadline, errDeadline)
	}
	if !k.lazy.CompareAndSwap(nil, created) {
		created.end(endedByReturn)
	} else if why := k.ended.Load(); why != nil {
		created.end(why)
	}
	return k.lazy.Load().Context
}

// markAnswered reports whether the call had no answer yet, and records that it has one.
func (k *call) markAnswered() bool { return !k.answered.Swap(true) }

// isAnswered reports whether the call has been answered.
func (k *call) isAnswered() bool { return k.answered.Load() }

// end cancels the call's context. A context created later is canceled at once. The first reason
// is the cause.
func (k *call) end(why *callEnd) {
	k.ended.CompareAndSwap(nil, why)
	if created := k.lazy.Load(); created != nil {
		created.end(why)
	}
}
