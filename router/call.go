package router

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/failure"
)

// A call is the state of a message that expects an answer. Its context is created on the first use,
// because most handlers do not use it.
type call struct {
	of *Context // nil for an event

	id         string // the correlation ID, or ""
	receivedAt time.Time
	timeout    time.Duration // from receivedAt to the deadline; 0 if there is none

	answered atomic.Bool // set by the first answer before that is queued; nothing is queued for the call after it
	indexed  bool        // in the callIndex, whose lock guards this field and the links
	reply    replyState  // of Context.reply: here it needs no space

	credits *credits                    // of a stream that the client has given credits; otherwise nil
	context atomic.Pointer[callContext] // nil until it is used or the call has ended

	previous, next *call
}

// A callEnd says why a call's context is canceled.
type callEnd struct {
	cause   error // for context.Cause; nil means context.Canceled
	expired bool  // the timer of the context cancels it, so that its Err is context.DeadlineExceeded

	unused callContext // of calls that end before their context is used
}

// newCallEnd returns a callEnd that cancels contexts with a cause.
func newCallEnd(cause error, expired bool) *callEnd {
	why := &callEnd{cause: cause, expired: expired}
	why.unused.ended.Store(why)
	return why
}

// The ways in which a call ends.
//
//nolint:gochecknoglobals // never changed
var (
	endedByReturn   = newCallEnd(nil, false)
	endedByAbort    = newCallEnd(errAborted, false)
	endedByDeadline = newCallEnd(errDeadline, true)
	endedByDraining = newCallEnd(errDraining, false)
)

// errAborted answers a call that the client has aborted.
var errAborted = &errors.Error{Code: errors.Canceled, Message: failure.Message(errors.Canceled)}

// errDeadline answers a call whose deadline passes before it starts or before it is answered.
var errDeadline = &errors.Error{Code: errors.DeadlineExceeded, Message: failure.Message(errors.DeadlineExceeded)}

// A callContext is the context of a call with its cancel functions.
type callContext struct {
	context.Context // nil if the call has ended before its context was used

	cancel context.CancelCauseFunc
	stop   context.CancelFunc // stops the timer of the deadline; nil if there is none

	ended atomic.Pointer[callEnd] // nil while the call is open
}

// end cancels the context. The first reason is the cause.
func (c *callContext) end(why *callEnd) {
	c.ended.CompareAndSwap(nil, why)
	if c.Context == nil || why.expired {
		return
	}
	c.cancel(why.cause)
	if c.stop != nil {
		c.stop()
	}
}

// deadline returns the deadline of the call; ok is false if it has none.
func (k *call) deadline() (deadline time.Time, ok bool) {
	if k.timeout == 0 {
		return time.Time{}, false
	}
	return k.receivedAt.Add(k.timeout), true
}

// contextOf returns the context of the call, and creates it on the first use, below parent. cause is that
// of its deadline. Concurrent first uses, and the end of the call, race to store theirs.
func (k *call) contextOf(parent context.Context, cause error) context.Context {
	before := k.context.Load()
	if before != nil && before.Context != nil {
		return before.Context
	}
	created := new(callContext)
	created.Context, created.cancel = context.WithCancelCause(parent)
	if deadline, ok := k.deadline(); ok {
		created.Context, created.stop = context.WithDeadlineCause(created.Context, deadline, cause)
	}
	if before != nil {
		created.end(before.ended.Load())
	}
	if !k.context.CompareAndSwap(before, created) {
		created.end(endedByReturn)
		return k.contextOf(parent, cause)
	}
	return created.Context
}

// isAnswered reports whether the call has been answered.
func (k *call) isAnswered() bool { return k.answered.Load() }

// end cancels the call's context. A context that is used later is canceled at once.
func (k *call) end(why *callEnd) {
	if !k.context.CompareAndSwap(nil, &why.unused) {
		k.context.Load().end(why)
	}
}

// cause returns the first reason for the end of the call, or nil.
func (k *call) cause() error {
	if c := k.context.Load(); c != nil {
		if why := c.ended.Load(); why != nil {
			return why.cause
		}
	}
	return nil
}
