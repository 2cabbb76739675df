// Package router passes typed WebSocket messages to handlers. Ingress functions can refuse a
// message before its payload is decoded.
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
// An event is a message without a reply, registered with [On]. A call is a message that is
// answered by one reply or one error, registered with [RPC]. A stream is a call that is answered
// after any number of items, registered with [Stream]. [Call] makes a call to a client.
//
// A topic carries messages to all connections that subscribe to it, on all nodes: handlers
// subscribe them with Context.Subscribe, and clients subscribe themselves to topics that are
// declared with [Topic].
//
// # Message pipeline
//
// Every message passes these stages in order, and every refused message gets exactly one
// answer:
//
//  1. size: [Limits].MaxMessageBytes, or that of the route
//  2. head: the message's type and correlationId, without its payload
//  3. ingress: functions that receive an [IngressContext]
//  4. route: the registered types
//  5. concurrency: [Limits].Concurrency, for calls
//  6. decode and validate
//  7. middleware and handler
//
// Every message passes ingress exactly once, even if it is malformed, too long, or of a type
// that is not registered.
//
// # Order and concurrency
//
// The messages of one connection are handled one at a time, in the order in which they
// arrive. A call starts in its turn and then runs concurrently with the messages after it, so
// these must not depend on its effects. [Route.Serial] and [Route.Concurrent] override this.
// Messages to one connection arrive in the order in which they were sent.
//
// Many connections are handled concurrently. Hooks in [Options] are called concurrently, too,
// unless their documentation says otherwise. A [Router] and a [Conn] are safe for concurrent
// use.
//
// # Errors
//
// The client receives the public part of a handler's error: the code, message and details of
// an *errors.Error, and INTERNAL for any other error except those of package context. An event
// is answered only if it fails. All exceeded limits are reported the same way, as a
// [LimitExceeded].
//
// Mistakes of the program panic before the first message: a type that is registered twice or
// that JSON cannot encode, a reserved name, an invalid option. Input from clients never
// panics.
//
// A panic of a handler ends only its message, and so does a panic of an ingress function, a middleware,
// a codec, or a method of a message or an error: the client receives INTERNAL, and Options.OnError
// receives an [errors.PanicError]. Panics of hooks and observers are logged; see [observe.Panicked].
// A panic of Options.Logger or Options.Broker is not recovered, unless one of these functions has
// called it, as a handler does that publishes: a broker that has panicked may have lost subscriptions,
// and a logger that has panicked cannot report it. A call of runtime.Goexit has the effect of a
// panic: where a comment says that a function may not return, it is this.
//
// # Testing
//
// Package routertest connects a test client to a router over an in-memory pipe. It works in
// a testing/synctest bubble.
package router
