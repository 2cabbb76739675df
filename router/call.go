package router

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// A call is the state of a message that expects a reply, in addition to that of an event. Its
// context is created on the first use, because most handlers do not use it.
type call struct {
	mu       sync.Mutex
	answered bool // set by the first answer; later ones are dropped

	ended atomic.Bool                 // the handler has returned, or the deadline has passed
	lazy  atomic.Pointer[callContext] // nil until the context is used

	queued         bool // in the deadline queue, whose lock guards this field and the links
	previous, next *Context
}

// A callContext is the context of a call with its cancel function.
type callContext struct {
	context.Context

	cancel context.CancelFunc
}

// context returns the call's context, and creates it on the first use. Concurrent first uses
// race to store theirs; end cancels the stored one, whether it runs before or after.
func (k *call) context(parent context.Context, deadline time.Time) context.Context {
	if created := k.lazy.Load(); created != nil {
		return created.Context
	}
	ctx, cancel := context.WithDeadline(parent, deadline)
	if !k.lazy.CompareAndSwap(nil, &callContext{ctx, cancel}) {
		cancel()
	} else if k.ended.Load() {
		cancel()
	}
	return k.lazy.Load().Context
}

// markAnswered reports whether the call had no answer yet, and records that it has one.
func (k *call) markAnswered() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	first := !k.answered
	k.answered = true
	return first
}

// isAnswered reports whether the call has been answered.
func (k *call) isAnswered() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.answered
}

// end cancels the call's context. A context created later is canceled at once.
func (k *call) end() {
	k.ended.Store(true)
	if created := k.lazy.Load(); created != nil {
		created.cancel()
	}
}
