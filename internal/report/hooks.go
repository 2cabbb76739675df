package report

import (
	"context"
	"runtime/debug"
	"sync/atomic"

	"github.com/penstock-go/penstock/internal/executor"
	"github.com/penstock-go/penstock/router/observe"
)

// Hooks call functions of the application that return nothing, and report their panics to observers and to the log.
type Hooks struct {
	Log      *Log
	Observer func(observe.Event) // nil without observers; read-only once something is reported

	// Later calls what concerns no single connection, or is noticed under a lock, in order.
	Later executor.FuncQueue

	pending  atomic.Int32 // functions of PanickedLater in Later
	unlogged atomic.Int64 // panics that were too many for Later; the next one counts them
}

// Observe is small enough to be inlined: without an observer, an event costs one branch.
func (h *Hooks) Observe(e observe.Event) {
	if h.Observer != nil {
		h.Observer(e)
	}
}

// AddObserver adds an observer, which is called after the others, even if those panic.
func (h *Hooks) AddObserver(f func(observe.Event)) {
	before, f := h.Observer, h.recoverObserver(f)
	if before == nil {
		h.Observer = f
		return
	}
	h.Observer = func(e observe.Event) {
		before(e)
		f(e)
	}
}

func (h *Hooks) recoverObserver(f func(observe.Event)) func(observe.Event) {
	return func(e observe.Event) {
		defer func() {
			// A panic while a panic is reported is dropped, or it would recurse.
			if v := recover(); v != nil && e.Kind != observe.Panicked {
				h.PanickedLater("Observe", v)
			}
		}()
		f(e)
	}
}

// Call calls f, a function with a name, and reports its panic. ctx is that of the message, if there is one.
func (h *Hooks) Call(ctx context.Context, name string, f func()) {
	defer func() {
		if v := recover(); v != nil {
			h.Observe(observe.Event{Kind: observe.Panicked, Reason: name})
			h.Log.Panicked(ctx, 1, name, v, debug.Stack())
		}
	}()
	f()
}

// maxPending bounds the panics that wait to be logged. Further ones are only counted.
const maxPending = 64

// PanickedLater logs a panic of code that may run under a lock, on another goroutine.
func (h *Hooks) PanickedLater(name string, v any) {
	if h.pending.Add(1) > maxPending {
		h.pending.Add(-1)
		h.unlogged.Add(1)
		return
	}
	stack := debug.Stack()
	h.Later.Add(func() {
		defer h.pending.Add(-1)
		h.Log.Panicked(context.Background(), 1+h.unlogged.Swap(0), name, v, stack)
	})
}
