// Package otel traces a router of Penstock with OpenTelemetry:
//
//	r := router.New(&router.Options{Tracer: otel.NewTracer(nil)})
//
// Programs that also import go.opentelemetry.io/otel name this package penstockotel, for example.
//
// # Spans
//
//	kind      name                 what
//	SERVER    type of the message  a message of a client: an event, a call or a stream
//	CLIENT    type of the message  a call to a client, or to all clients of a user
//	PRODUCER  publish {pattern}    a publication, on the node that publishes
//	CONSUMER  process {pattern}    a publication of another node, on each node that has subscribers
//
// Names contain message types and patterns of topics only: a type that is not registered is _OTHER,
// and the name of a topic that matches no pattern is left out. The context that ingress functions,
// middleware and handlers receive has the span, so that what they do with it is in the trace: a
// limiter on Redis, for example.
//
// The span of a message starts when its head has been parsed and ends with its answer, so rejected
// messages have spans, and a handler that continues after the deadline of its call is not part of
// the duration. A stream has one span. Connections, heartbeats, aborts, credits and acknowledgments
// have none, and messages of [router.Conn.Send] and [router.Router.SendToUser] neither.
//
// The status of a message is Error for the codes INTERNAL, UNAVAILABLE and DEADLINE_EXCEEDED: other
// codes are mistakes of the client, not of the server. That of other spans is Error for every code.
// The attribute error.type has the code in all cases. Errors themselves are not recorded on spans:
// log them with the context, as the router does.
//
// [router.Conn.Send]: https://pkg.go.dev/github.com/penstock-go/penstock/router#Conn.Send
// [router.Router.SendToUser]: https://pkg.go.dev/github.com/penstock-go/penstock/router#Router.SendToUser
package otel
