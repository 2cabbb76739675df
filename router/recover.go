package router

import (
	"fmt"
	"runtime/debug"
)

// The router calls application code only through functions that recover its panics: guard if
// an error becomes an answer, hook if nothing is returned, recoverObserver for observers,
// those of internal/envelope for the methods of messages and codecs, recoveringSession for
// brokers, and log for the Logger. A panic therefore ends only one message. It leaves no lock held:
// locks around such calls are released by defer. Logger may call the router, so it is never called
// under a lock.

// guard calls f, and stores in failed the inspected form of its error, of its panic, or of a
// call of runtime.Goexit. The last also ends the caller except for its deferred functions, so
// these must send the answer. Errors of application code are inspected only here. The route is
// nil if there is none.
func (r *Router) guard(failed **inspectedError, where string, route *Route, f func() error) {
	var err error
	returned := false
	defer func() {
		if returned {
			return
		}
		// This is also the result if the description of a panic calls runtime.Goexit.
		*failed = internalError(errExited).at(where)
		(*failed).exited = true
		v := recover()
		if v == nil {
			return
		}
		p := &PanicError{Value: v, Stack: debug.Stack()}
		*failed = internalError(p).at(where)
		if err != nil {
			*failed = internalError(fmt.Errorf("router: the error of %s, a %T, cannot be inspected: %w", where, err, p)).at(where)
		}
		(*failed).stack = p.Stack
		r.observe(Event{Kind: EventPanicked, Type: route.typ(), Reason: where})
	}()
	if err = f(); err != nil {
		*failed = inspect(err, where).at(where)
	}
	returned = true
}

// hook calls a function of [Options] that returns nothing, and reports its panic.
func (r *Router) hook(name string, f func()) {
	defer func() {
		if v := recover(); v != nil {
			r.observe(Event{Kind: EventPanicked, Reason: name})
			r.logHookPanics(1, name, v, debug.Stack())
		}
	}()
	f()
}

// recoverObserver returns an observer that recovers the panics of f, so that the other
// observers receive the event too.
func (r *Router) recoverObserver(f func(Event)) func(Event) {
	return func(e Event) {
		defer func() {
			// A panic while a panic is reported is dropped, or it would recurse.
			if v := recover(); v != nil && e.Kind != EventPanicked {
				r.logAsync("Observe", v)
			}
		}()
		f(e)
	}
}

// maxPendingLogs bounds the panics that wait to be logged. Further ones are only counted.
const maxPendingLogs = 64

// logAsync logs a panic of code that may run under a lock, on another goroutine.
func (r *Router) logAsync(name string, v any) {
	if r.pendingLogs.Add(1) > maxPendingLogs {
		r.pendingLogs.Add(-1)
		r.unloggedPanics.Add(1)
		return
	}
	stack := debug.Stack()
	r.events.Add(func() {
		defer r.pendingLogs.Add(-1)
		r.logHookPanics(1+r.unloggedPanics.Swap(0), name, v, stack)
	})
}
