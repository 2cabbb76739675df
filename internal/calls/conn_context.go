package calls

import (
	"context"
	"sync/atomic"
	"time"
)

// A ConnContext is the context of a connection, and the parent of those of its calls. It needs memory of its own only once it
// is canceled, or Done or Value is called. A handler that only computes and sends calls neither.
type ConnContext struct {
	Values context.Context // whose values it has; set before it is used

	used atomic.Pointer[usedContext] // nil until it is used or canceled
}

// A usedContext is one of package context, with the function that cancels it.
type usedContext struct {
	context.Context

	cancel context.CancelCauseFunc
}

// Cancel cancels the context, unless it has been canceled.
func (c *ConnContext) Cancel(cause error) { c.use().cancel(cause) }

// Deadline returns false: there is none.
func (c *ConnContext) Deadline() (time.Time, bool) { return time.Time{}, false }

// Done implements [context.Context].
func (c *ConnContext) Done() <-chan struct{} { return c.use().Done() }

// Err implements [context.Context].
func (c *ConnContext) Err() error {
	if used := c.used.Load(); used != nil {
		return used.Err()
	}
	return nil
}

// Value also answers package context, which finds what it needs to derive a context, or the cause, by a key of its own.
func (c *ConnContext) Value(key any) any { return c.use().Value(key) }

// use returns what is used instead, and creates it the first time.
func (c *ConnContext) use() *usedContext {
	if used := c.used.Load(); used != nil {
		return used
	}
	created := new(usedContext)
	created.Context, created.cancel = context.WithCancelCause(c.Values)
	if c.used.CompareAndSwap(nil, created) {
		return created
	}
	created.cancel(nil) // another goroutine was first
	return c.used.Load()
}
