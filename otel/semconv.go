package otel

import (
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/tracing"
)

// The names of the semantic conventions are in this file alone, because those for RPC and messaging
// are not stable yet.
const (
	rpcSystem   = attribute.Key("rpc.system.name")
	rpcMethod   = attribute.Key("rpc.method")
	rpcStatus   = attribute.Key("rpc.response.status_code")
	rpcDuration = "rpc.server.call.duration"
	errorType   = attribute.Key("error.type")

	messagingSystem    = attribute.Key("messaging.system")
	messagingOperation = attribute.Key("messaging.operation.name")
	messagingType      = attribute.Key("messaging.operation.type")
	messagingTemplate  = attribute.Key("messaging.destination.template")

	messageType = attribute.Key("penstock.message.type") // of a publication
	connections = attribute.Key("penstock.connections")  // of this node that receive a publication
	connID      = attribute.Key("penstock.conn.id")      // as conn in the log

	system = "penstock"
	other  = "_OTHER" // stands for what a client has chosen
	ok     = "OK"
)

// durationBounds are the bounds of the histogram that the conventions recommend, in seconds.
//
//nolint:gochecknoglobals // never changed
var durationBounds = []float64{0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10}

// describe returns the name, the kind and the attributes of the spans of an operation. They depend
// only on its Kind, Type and Topic.
func describe(op *tracing.Operation) (name string, kind trace.SpanKind, attrs []attribute.KeyValue) {
	switch op.Kind {
	case tracing.Publish, tracing.Deliver:
		verb, typ := "publish", "send"
		if kind = trace.SpanKindProducer; op.Kind == tracing.Deliver {
			kind, verb, typ = trace.SpanKindConsumer, "process", "process"
		}
		attrs = []attribute.KeyValue{messagingSystem.String(system), messagingOperation.String(verb), messagingType.String(typ)}
		if op.Type != "" {
			attrs = append(attrs, messageType.String(op.Type))
		}
		if op.Topic == "" {
			return verb, kind, attrs
		}
		return verb + " " + op.Topic, kind, append(attrs, messagingTemplate.String(op.Topic))
	default:
		if kind = trace.SpanKindServer; op.Kind == tracing.ClientCall {
			kind = trace.SpanKindClient
		}
		if name = op.Type; name == "" {
			name = other
		}
		return name, kind, []attribute.KeyValue{rpcSystem.String(system), rpcMethod.String(name)}
	}
}

// isServerError reports whether a code is a failure of the server, and not of the client.
func isServerError(code errors.Code) bool {
	switch code {
	case errors.Internal, errors.Unavailable, errors.DeadlineExceeded:
		return true
	default:
		return false
	}
}
