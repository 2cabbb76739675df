package otel

import (
	"context"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/tracing"
)

// scope is the name of the instrumentation.
const scope = "github.com/penstock-go/penstock/otel"

// A Tracer is Options.Tracer of package router, and may be that of several routers. Create it with
// [NewTracer].
type Tracer struct {
	opts     Options
	tracer   trace.Tracer
	duration metric.Float64Histogram // nil without a MeterProvider
	kinds    sync.Map                // operationKind → *spanKind; the router bounds their number
}

var _ tracing.Tracer = (*Tracer)(nil)

// An operationKind is what all operations with one kind of spans have in common.
type operationKind struct {
	kind        tracing.Kind
	typ, topic  string
	hasNoParent bool
}

// A spanKind is what is the same for all spans of an operationKind.
type spanKind struct {
	kind    tracing.Kind
	name    string
	options []trace.SpanStartOption
	results sync.Map // of measured messages: errors.Code → metric.RecordOption; the number of codes is bounded
}

// NewTracer returns a Tracer. If opts is nil, the defaults are used; otherwise opts is copied. It
// panics if an option is invalid.
func NewTracer(opts *Options) *Tracer {
	t := new(Tracer)
	if opts != nil {
		t.opts = *opts
	}
	t.opts.check()
	t.opts.Codes = slices.Clone(t.opts.Codes)
	if t.opts.TracerProvider == nil {
		t.opts.TracerProvider = otel.GetTracerProvider()
	}
	t.tracer = t.opts.TracerProvider.Tracer(scope)
	if t.opts.MeterProvider != nil {
		duration, err := t.opts.MeterProvider.Meter(scope).Float64Histogram(rpcDuration, metric.WithUnit("s"),
			metric.WithDescription("Duration of messages of clients, from their receipt to their answer."), metric.WithExplicitBucketBoundaries(durationBounds...))
		if err != nil {
			panic("otel: Options.MeterProvider: " + err.Error())
		}
		t.duration = duration
	}
	return t
}

// An operation is the context of an operation, with its span.
type operation struct {
	context.Context //nolint:containedctx // it is a context

	span trace.Span
	kind *spanKind
	at   time.Time
}

type operationKey struct{}

// Value returns the operation itself for operationKey.
func (o *operation) Value(key any) any {
	if key == (operationKey{}) {
		return o
	}
	return o.Context.Value(key)
}

// Start implements [tracing.Tracer].
func (t *Tracer) Start(ctx context.Context, op tracing.Operation) context.Context {
	var parent trace.SpanContext // of another process
	var links []trace.Link
	newRoot := false
	switch op.Kind {
	case tracing.Message:
		newRoot = true
		if of := trace.SpanContextFromContext(ctx); of.IsValid() { // that of Options.ConnContext: hours are no trace
			links = append(links, trace.Link{SpanContext: of})
		}
		remote := spanContext(op.Remote, t.opts.Trust == Ignore)
		switch {
		case !remote.IsValid():
		case t.opts.Trust == Parent:
			parent, newRoot = remote, false
		default:
			links = append(links, trace.Link{SpanContext: remote})
		}
	case tracing.Deliver: // as nodes trust each other, the sampling is that of the publication
		if parent = spanContext(op.Remote, false); parent.IsValid() {
			links = append(links, trace.Link{SpanContext: parent})
		}
	}
	kind := t.kindOf(&op, newRoot)
	options := kind.options
	if links != nil {
		options = append(slices.Clip(options), trace.WithLinks(links...))
	}
	from := ctx
	if parent.IsValid() {
		from = trace.ContextWithRemoteSpanContext(ctx, parent)
	}
	with, span := t.tracer.Start(from, kind.name, options...)
	if span.IsRecording() {
		if op.ConnID != "" {
			span.SetAttributes(connID.String(op.ConnID))
		}
		if t.opts.Attributes != nil {
			span.SetAttributes(t.opts.Attributes(with, op)...)
		}
	}
	return &operation{Context: with, span: span, kind: kind, at: op.At}
}

// kindOf returns what is the same for all spans of an operation.
func (t *Tracer) kindOf(op *tracing.Operation, newRoot bool) *spanKind {
	key := operationKind{op.Kind, op.Type, op.Topic, newRoot}
	if known, found := t.kinds.Load(key); found {
		return known.(*spanKind)
	}
	name, kind, attrs := describe(op)
	k := &spanKind{kind: op.Kind, name: name, options: []trace.SpanStartOption{trace.WithSpanKind(kind), trace.WithAttributes(attrs...)}}
	if newRoot {
		k.options = append(k.options, trace.WithNewRoot())
	}
	known, _ := t.kinds.LoadOrStore(key, k)
	return known.(*spanKind)
}

// End implements [tracing.Tracer].
func (t *Tracer) End(ctx context.Context, result tracing.Result) {
	o := ctx.(*operation)
	if t.duration != nil && o.kind.kind == tracing.Message {
		t.duration.Record(o, time.Since(o.at).Seconds(), t.measured(o.kind, result.Code))
	}
	if o.span.IsRecording() {
		t.describeResult(o, &result)
	}
	o.span.End()
}

// describeResult sets what is known at the end of a recorded span.
func (t *Tracer) describeResult(o *operation, result *tracing.Result) {
	switch o.kind.kind {
	case tracing.Publish, tracing.Deliver:
		o.span.SetAttributes(connections.Int(result.Connections))
		if result.Code != "" {
			o.span.SetAttributes(errorType.String(t.code(result.Code)))
		}
	default:
		o.span.SetAttributes(t.status(result.Code)...)
	}
	if result.Code != "" && (o.kind.kind != tracing.Message || isServerError(result.Code)) {
		o.span.SetStatus(codes.Error, "")
	}
}

// status returns the attributes of a code, which are the same on spans and metrics.
func (t *Tracer) status(code errors.Code) []attribute.KeyValue {
	if code == "" {
		return []attribute.KeyValue{rpcStatus.String(ok)}
	}
	text := t.code(code)
	return []attribute.KeyValue{rpcStatus.String(text), errorType.String(text)}
}

// code returns a code as an attribute.
func (t *Tracer) code(code errors.Code) string {
	if code.IsStandard() || slices.Contains(t.opts.Codes, code) {
		return string(code)
	}
	return other
}

// measured returns the attributes of a measurement.
func (t *Tracer) measured(kind *spanKind, code errors.Code) metric.RecordOption {
	if code != "" {
		code = errors.Code(t.code(code))
	}
	if known, found := kind.results.Load(code); found {
		return known.(metric.RecordOption)
	}
	attrs := append(t.status(code), rpcSystem.String(system), rpcMethod.String(kind.name))
	known, _ := kind.results.LoadOrStore(code, metric.WithAttributeSet(attribute.NewSet(attrs...)))
	return known.(metric.RecordOption)
}

// Inject implements [tracing.Tracer]. A publication that is not sampled is not traced on other
// nodes.
func (t *Tracer) Inject(ctx context.Context) tracing.TraceContext {
	span := trace.SpanContextFromContext(ctx)
	if o, found := ctx.Value(operationKey{}).(*operation); found && o.kind.kind == tracing.Publish && !span.IsSampled() {
		return tracing.TraceContext{}
	}
	return Inject(ctx)
}
