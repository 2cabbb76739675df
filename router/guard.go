package router

import (
	"context"
	"runtime/debug"

	"github.com/penstock-go/penstock/internal/failure"
	"github.com/penstock-go/penstock/router/observe"
)

// The router calls functions of the application through functions that recover their panics: guard if
// an error becomes an answer, hook if nothing is returned, recoverObserver for observers, and
// those of internal/envelope for the methods of messages and codecs. A panic therefore ends only
// one message. A panic of a broker is that of the function that calls it, which leaves no lock held:
// locks around calls of brokers are released by defer. A panic of a Logger is not recovered. Loggers
// may call the router, so they are never called under a lock.

// guard calls f, a function of the application, and returns the failure of its error or of its panic,
// or nil. Where names f; the route is nil if there is none.
func (r *Router) guard(where string, route *Route, f func() error) *failure.Failure {
	failure, panicked := inspector.Guard(where, f)
	if panicked {
		r.observe(observe.Event{Kind: observe.Panicked, Type: route.typ(), Reason: where})
	}
	return failure
}

// hook calls a function of [Options] that returns nothing, and reports its panic. ctx is that of the message, if
// there is one.
func (r *Router) hook(ctx context.Context, name string, f func()) {
	defer func() {
		if v := recover(); v != nil {
			r.observe(observe.Event{Kind: observe.Panicked, Reason: name})
			r.log.Panicked(ctx, 1, name, v, debug.Stack())
		}
	}()
	f()
}

// recoverObserver returns an observer that recovers the panics of f, so that the other
// observers receive the event too.
func (r *Router) recoverObserver(f func(observe.Event)) func(observe.Event) {
	return func(e observe.Event) {
		defer func() {
			// A panic while a panic is reported is dropped, or it would recurse.
			if v := recover(); v != nil && e.Kind != observe.Panicked {
				r.reportPanicLater("Observe", v)
			}
		}()
		f(e)
	}
}

// maxPendingLogs bounds the panics that wait to be logged. Further ones are only counted.
const maxPendingLogs = 64

// reportPanicLater logs a panic of code that may run under a lock, on another goroutine.
func (r *Router) reportPanicLater(name string, v any) {
	if r.pendingLogs.Add(1) > maxPendingLogs {
		r.pendingLogs.Add(-1)
		r.unloggedPanics.Add(1)
		return
	}
	stack := debug.Stack()
	r.events.Add(func() {
		defer r.pendingLogs.Add(-1)
		r.log.Panicked(context.Background(), 1+r.unloggedPanics.Swap(0), name, v, stack)
	})
}
