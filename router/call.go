package router

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// A call is an RPC that has been started: what it needs beyond an event. Its
// context is made when somebody asks for it, because most handlers do not.
type call struct {
	mu       sync.Mutex
	answered bool // it has one answer: the first

	ended atomic.Bool
	own   atomic.Pointer[callContext]

	queued         bool // it is in its watch; under the watch's lock
	previous, next *Context
}

type callContext struct {
	context.Context

	cancel context.CancelFunc
}

func (k *call) context(parent context.Context, deadline time.Time) context.Context {
	if own := k.own.Load(); own != nil {
		return own.Context
	}
	ctx, cancel := context.WithDeadline(parent, deadline)
	if !k.own.CompareAndSwap(nil, &callContext{ctx, cancel}) {
		cancel()
	} else if k.ended.Load() {
		cancel()
	}
	return k.own.Load().Context
}

// take reports whether the answer may go: whether it is the first.
func (k *call) markAnswered() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	first := !k.answered
	k.answered = true
	return first
}

// end cancels the context, which may be made later.
func (k *call) end() {
	k.ended.Store(true)
	if own := k.own.Load(); own != nil {
		own.cancel()
	}
}
