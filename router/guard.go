package router

import (
	"github.com/penstock-go/penstock/internal/failure"
	"github.com/penstock-go/penstock/router/observe"
)

// The router calls functions of the application through functions that recover their panics: guard if
// an error becomes an answer, report.Hooks if nothing is returned, and those of internal/envelope for
// the methods of messages and codecs. A panic therefore ends only one message. A panic of a broker is that of the function that calls it, which leaves no lock held:
// locks around calls of brokers are released by defer. A panic of a Logger is not recovered. Loggers
// may call the router, so they are never called under a lock.

// guard calls f, a function of the application, and returns the failure of its error or of its panic,
// or nil. Where names f; the route is nil if there is none.
func (r *Router) guard(where string, route *Route, f func() error) *failure.Failure {
	failure, panicked := inspector.Guard(where, f)
	if panicked {
		r.hooks.Observe(observe.Event{Kind: observe.Panicked, Type: route.typ(), Reason: where})
	}
	return failure
}
