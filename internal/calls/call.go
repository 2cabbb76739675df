package calls

import (
	"context"
	"sync/atomic"
	"time"
)

// A Call is the state of a message that expects an answer, as a part of a C. Its context is created on
// the first use, because most handlers do not use it.
type Call[C any] struct {
	Of *C // set before the call is watched

	ID         string // the correlation ID, or ""
	ReceivedAt time.Time
	Timeout    time.Duration // from ReceivedAt to the deadline; 0 if there is none

	Answered atomic.Bool // set by the first answer before that is queued; nothing is queued for the call after it
	indexed  bool        // in the Index, whose lock guards this field and the links
	Reply    uint8       // belongs to the C, as what it has for a reply: here it needs no space

	Credits *Credits                    // of a stream that the client has given credits; otherwise nil
	context atomic.Pointer[callContext] // nil until it is used or the call has ended, or Begin is called

	previous, next *Call[C]
}

// An End says why a call's context is canceled.
type End struct {
	cause   error // for context.Cause; nil means context.Canceled
	expired bool  // the timer of the context cancels it

	unused callContext // of calls that end before their context is used
}

// NewEnd returns an End with a cause for [context.Cause], or nil for [context.Canceled].
func NewEnd(cause error) *End { return newEnd(cause, false) }

// NewExpiry returns the End of a call at its deadline. Its context has a timer of its own, so that its
// Err is [context.DeadlineExceeded].
func NewExpiry(cause error) *End { return newEnd(cause, true) }

func newEnd(cause error, expired bool) *End {
	why := &End{cause: cause, expired: expired}
	why.unused.ended.Store(why)
	return why
}

// unusedBelow returns the callContext of a call that ends in place of before, which may be nil.
func (e *End) unusedBelow(before *callContext) *callContext {
	if before == nil {
		return &e.unused
	}
	c := &callContext{parent: before.parent}
	c.ended.Store(e)
	return c
}

// A callContext is the context of a call with its cancel functions. One without a context does not
// change: the first use and the end of the call replace it.
type callContext struct {
	context.Context // nil if it has not been used, and if the call has ended before

	parent context.Context // that Begin has received, or nil

	cancel context.CancelCauseFunc
	stop   context.CancelFunc // stops the timer of the deadline; nil if there is none

	ended atomic.Pointer[End] // nil while the call is open
}

// end cancels the context, which must not be nil. The first End has the cause.
func (c *callContext) end(why *End) {
	c.ended.CompareAndSwap(nil, why)
	if !why.expired {
		c.free(why.cause)
	}
}

// free cancels the context, and stops its timer.
func (c *callContext) free(cause error) {
	c.cancel(cause)
	if c.stop != nil {
		c.stop()
	}
}

// Deadline returns the deadline of the call; ok is false if it has none.
func (k *Call[C]) Deadline() (deadline time.Time, ok bool) {
	if k.Timeout == 0 {
		return time.Time{}, false
	}
	return k.ReceivedAt.Add(k.Timeout), true
}

// Begin sets the parent of the context, before the call is watched or used.
func (k *Call[C]) Begin(parent context.Context) { k.context.Store(&callContext{parent: parent}) }

// Parent returns what Begin has received, or nil.
func (k *Call[C]) Parent() context.Context {
	if c := k.context.Load(); c != nil {
		return c.parent
	}
	return nil
}

// Context returns the context of the call, and creates it on the first use, below that of Begin or else
// below parent. expiry is the End at the deadline.
func (k *Call[C]) Context(parent context.Context, expiry *End) context.Context {
	if c := k.context.Load(); c != nil && c.Context != nil {
		return c.Context
	}
	return k.newContext(parent, expiry)
}

// Err returns the error of Context, which it does not create for an open call.
func (k *Call[C]) Err(parent context.Context, expiry *End) error {
	if deadline, ok := k.Deadline(); k.context.Load() == nil && (!ok || time.Now().Before(deadline)) {
		return parent.Err()
	}
	return k.Context(parent, expiry).Err()
}

// newContext creates the context. Concurrent first uses, and the end of the call, race to store theirs.
func (k *Call[C]) newContext(parent context.Context, expiry *End) context.Context {
	before := k.context.Load()
	if before != nil && before.Context != nil {
		return before.Context // another goroutine was first
	}
	created := new(callContext)
	if before != nil && before.parent != nil {
		parent, created.parent = before.parent, before.parent
	}
	created.Context, created.cancel = context.WithCancelCause(parent)
	if deadline, ok := k.Deadline(); ok {
		created.Context, created.stop = context.WithDeadlineCause(created.Context, deadline, expiry.cause)
	}
	if before != nil && before.ended.Load() != nil {
		created.end(before.ended.Load())
	}
	if !k.context.CompareAndSwap(before, created) {
		created.free(nil)
		return k.newContext(parent, expiry)
	}
	return created.Context
}

// IsAnswered reports whether the call has been answered.
func (k *Call[C]) IsAnswered() bool { return k.Answered.Load() }

// End cancels the call's context. A context that is used later is canceled at once.
func (k *Call[C]) End(why *End) {
	for {
		before := k.context.Load()
		if before != nil && before.Context != nil {
			before.end(why)
			return
		}
		if before != nil && before.ended.Load() != nil {
			return
		}
		if k.context.CompareAndSwap(before, why.unusedBelow(before)) {
			return
		}
	}
}

// Cause returns the cause of the first End, or nil.
func (k *Call[C]) Cause() error {
	if c := k.context.Load(); c != nil {
		if why := c.ended.Load(); why != nil {
			return why.cause
		}
	}
	return nil
}
