// Package router gives typed WebSocket messages to handlers, and lets ingress
// functions turn messages away before their payload is read.
//
//	type Say struct {
//		Room string `json:"room"`
//		Text string `json:"text"`
//	}
//
//	func (Say) MessageType() string { return "SAY" }
//
//	r := router.New(nil)
//	r.UseIngress(ratelimit.New(limiter, nil))
//	router.On(r, func(ctx *router.Context, m Join) error {
//		return ctx.Subscribe(m.Room)
//	})
//	router.On(r, func(ctx *router.Context, m Say) error {
//		return ctx.Publish(m.Room, m)
//	})
//	http.Handle("/ws", r)
//
// # The way of a message
//
// Every message takes these stages, and every closeErr gets exactly one answer:
//
//  1. size: [Limits].MessageBytes, or the route's MaxBytes
//  2. parse: the message's type and correlationId, and nothing else of it
//  3. ingress: functions that see an [IngressContext]
//  4. route: the registered types
//  5. calls in flight: [Limits].InFlight
//  6. decode and validate
//  7. middleware and handler
//
// Whatever a client sends passes ingress exactly once, also what cannot be read
// and what nobody handles.
//
// # Order and concurrency
//
// The messages of one connection are handled one at a time, as they came. A call
// starts in its turn and then runs beside what follows it, which so cannot count on
// what the call does. [Route.Serial] and [Route.Concurrent] choose the other behaviour.
// Messages to one connection arrive in the order in which they were sent.
//
// # Errors
//
// A handler's error goes to the client as far as it is public: an *errors.Error
// with its code, message and details, anything else as INTERNAL. A message that
// is not a call is answered only by an error. Limits are all reported one way, as
// a [LimitExceeded].
//
// Mistakes in a program panic before the first message: a type registered twice or one
// that JSON cannot hold, a name that is reserved, an option that makes no sense. What a client sends
// never panics the router. A handler that panics ends its message only, and so does a method
// that panics of a message or of an error: what cannot be encoded or inspected is answered
// with INTERNAL and reported with a [PanicError]. The panics of hooks, brokers and
// Options.Logger are contained, too; see [EventPanicked].
//
// # Tests
//
// Package routertest dials a router over a pipe, in a testing/synctest bubble
// too.
package router
