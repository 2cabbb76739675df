// Package tracing is the contract between a router and a tracer, which makes spans of what the
// router does. It imports no tracing library. Module github.com/penstock-go/penstock/otel has a
// [Tracer] for OpenTelemetry, which is Options.Tracer of package router.
//
// There is one span for each message of a client, from the parsing of its head to its answer, so
// that it includes ingress functions, limiters and refusals. There is one for each call to clients,
// for each publication on the node that publishes, and for each publication of another node that
// reaches connections of this node. Connections, heartbeats and other control messages have none.
package tracing

import (
	"context"
	"net/netip"
	"time"

	"github.com/penstock-go/penstock/errors"
)

// A Tracer makes spans. Its methods are called concurrently, perhaps under locks: they must neither
// block nor call the router or runtime.Goexit. Their panics are recovered, and reported like those
// of hooks.
type Tracer interface {
	// Start starts the span of an operation, and returns a context with it that is derived from
	// ctx. The router passes this context on: to ingress functions, the handler and its
	// middleware, stores, and records of the log. If Start returns nil, the operation has no
	// span, and End is not called for it.
	Start(ctx context.Context, op Operation) context.Context

	// End ends the span of an operation. It is called once for each context that Start has
	// returned, and with this context.
	End(ctx context.Context, result Result)

	// Inject returns the trace context of the span in ctx, which may be derived from one that
	// Start has returned, for clients and for other nodes. The zero TraceContext passes nothing
	// on.
	Inject(ctx context.Context) TraceContext
}

// A Kind is what an [Operation] does.
type Kind uint8

// The kinds.
const (
	Message    Kind = iota + 1 // receives a message of a client: an event, a call or a stream
	ClientCall                 // makes a call to a client, or to all clients of a user
	Publish                    // publishes a message on a topic
	Deliver                    // delivers a publication of another node to the subscribers on this one
)

// An Operation is what a span describes. Type and Topic are values of the server, of which there
// are few, so they may be parts of names and labels of metrics. Clients and users choose the
// others.
type Operation struct {
	Kind  Kind
	Type  string // of the message; "" if it is not registered, and for Deliver
	Topic string // the pattern of the topic, as router.Topic declares it; "" if none matches
	At    time.Time

	// Of Message.
	ConnID           string
	IP               netip.Addr // of the client; the zero netip.Addr if it is unknown
	TenantID, UserID string     // of the connection; "" if it is anonymous

	// Remote is what a client has sent with a Message, and can be anything; of Deliver, it is
	// that of the node that has published the message.
	Remote TraceContext
}

// A Result is how an operation has ended.
type Result struct {
	Code        errors.Code // "" for success
	Connections int         // of this node, for which Publish or Deliver has queued the message
}

// A TraceContext consists of the headers of W3C Trace Context. The zero value is that of no trace.
type TraceContext struct {
	Parent string // traceparent
	State  string // tracestate; at most MaxStateBytes bytes
}

// MaxParentBytes and MaxStateBytes bound what is sent and received of a trace context. A longer
// member is ignored.
const (
	MaxParentBytes = 128
	MaxStateBytes  = 512
)
