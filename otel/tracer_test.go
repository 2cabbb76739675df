package otel_test

import (
	"context"
	"iter"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/middleware/ratelimit"
	"github.com/penstock-go/penstock/otel"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
	"github.com/penstock-go/penstock/tracing"
)

// A Ping is an event.
type Ping struct{}

func (Ping) MessageType() string { return "PING" }

// A Work is a call whose handler does what it says.
type Work struct {
	Do string `json:"do"`
}

func (Work) MessageType() string { return "WORK" }

// An Export is a stream.
type Export struct{}

func (Export) MessageType() string { return "EXPORT" }

// traced returns a provider that samples everything unless options say otherwise, and its spans.
func traced(t testing.TB, opts ...sdktrace.TracerProviderOption) (*sdktrace.TracerProvider, *tracetest.InMemoryExporter) {
	spans := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(append(opts, sdktrace.WithSyncer(spans))...)
	t.Cleanup(func() { _ = provider.Shutdown(context.Background()) })
	return provider, spans
}

// attrs returns the attributes of a span as text.
func attrs(span tracetest.SpanStub) map[string]string {
	all := map[string]string{}
	for _, kv := range span.Attributes {
		all[string(kv.Key)] = kv.Value.String()
	}
	return all
}

// newRouter returns a router with handlers for the messages of this package.
func newRouter(opts router.Options) *router.Router {
	opts.OnError = func(router.ErrorReport) {}
	r := router.New(&opts)
	router.On(r, func(*router.Context, Ping) error { return nil })
	router.RPC(r, func(ctx *router.Context, m Work) (Work, error) {
		switch m.Do {
		case "panic":
			panic("broken")
		case "wait":
			<-ctx.Done()
			time.Sleep(100 * time.Millisecond) // the client has its answer
		case "conflict":
			return m, errors.Errorf(errors.Aborted, "try again")
		case "own code":
			return m, errors.Errorf("PAYMENT_DUE", "pay")
		case "other code":
			return m, errors.Errorf("OF_A_CLIENT", "pay")
		}
		return m, nil
	})
	router.Stream(r, func(*router.Context, Export) iter.Seq2[int, error] {
		return func(yield func(int, error) bool) {
			for i := range 3 {
				if !yield(i, nil) {
					return
				}
			}
		}
	})
	return r
}

// TestTracer_OneSpanPerMessage sends messages that end in different ways.
func TestTracer_OneSpanPerMessage(t *testing.T) {
	for name, tt := range map[string]struct {
		message string
		name    string
		code    string
		isError bool
	}{
		"an event":           {`{"type":"PING"}`, "PING", "OK", false},
		"a call":             {`{"type":"WORK","payload":{"do":""}}`, "WORK", "OK", false},
		"a stream":           {`{"type":"EXPORT"}`, "EXPORT", "OK", false},
		"a greeting":         {`{"type":"$ws:hello"}`, "$ws:hello", "OK", false},
		"a failed resume":    {`{"type":"$ws:resume","payload":{"token":"x"}}`, "$ws:resume", "NOT_FOUND", false},
		"no JSON":            {`[`, "_OTHER", "INVALID_ARGUMENT", false},
		"an unknown type":    {`{"type":"id-8123"}`, "_OTHER", "UNIMPLEMENTED", false},
		"an invalid payload": {`{"type":"WORK","payload":{"do":7}}`, "WORK", "INVALID_ARGUMENT", false},
		"a mistake":          {`{"type":"WORK","payload":{"do":"conflict"}}`, "WORK", "ABORTED", false},
		"a code":             {`{"type":"WORK","payload":{"do":"own code"}}`, "WORK", "PAYMENT_DUE", false},
		"another code":       {`{"type":"WORK","payload":{"do":"other code"}}`, "WORK", "_OTHER", false},
		"a panic":            {`{"type":"WORK","payload":{"do":"panic"}}`, "WORK", "INTERNAL", true},
		"a deadline":         {`{"type":"WORK","meta":{"timeoutMs":5},"payload":{"do":"wait"}}`, "WORK", "DEADLINE_EXCEEDED", true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				provider, spans := traced(t)
				reader := metric.NewManualReader()
				r := newRouter(router.Options{
					Resume: router.ResumeOptions{Within: time.Minute},
					Tracer: otel.NewTracer(&otel.Options{TracerProvider: provider, MeterProvider: metric.NewMeterProvider(metric.WithReader(reader)), Codes: []errors.Code{"PAYMENT_DUE"}}),
				})
				client := routertest.Dial(t, r)
				client.SendText(tt.message)
				time.Sleep(time.Second)
				all := spans.GetSpans()
				require.Len(t, all, 1)
				span := all[0]
				assert.Equal(t, tt.name, span.Name)
				assert.Equal(t, trace.SpanKindServer, span.SpanKind)
				assert.False(t, span.Parent.IsValid())
				got := attrs(span)
				assert.NotEmpty(t, got["penstock.conn.id"])
				delete(got, "penstock.conn.id")
				want := map[string]string{"rpc.system.name": "penstock", "rpc.method": tt.name, "rpc.response.status_code": tt.code}
				if tt.code != "OK" {
					want["error.type"] = tt.code
				}
				assert.Equal(t, want, got)
				assert.Equal(t, tt.isError, span.Status.Code == codes.Error)

				point := duration(t, reader)
				assert.EqualValues(t, 1, point.Count)
				measured := map[string]string{}
				for _, kv := range point.Attributes.ToSlice() {
					measured[string(kv.Key)] = kv.Value.String()
				}
				assert.Equal(t, want, measured, "the attributes of the metric are those of the span")
				if name == "a deadline" {
					assert.InDelta(t, 0.005, point.Sum, 0.002)
				}
				_ = r.Shutdown(t.Context())
			})
		})
	}
}

// rejected returns the only span of a message that a limit has rejected.
func rejected(t *testing.T, all tracetest.SpanStubs) tracetest.SpanStub {
	t.Helper()
	var found tracetest.SpanStubs
	for _, span := range all {
		if attrs(span)["error.type"] == "RESOURCE_EXHAUSTED" {
			found = append(found, span)
		}
	}
	require.Len(t, found, 1)
	return found[0]
}

// childrenOf returns the spans whose parent is a span.
func childrenOf(all tracetest.SpanStubs, parent tracetest.SpanStub) (children tracetest.SpanStubs) {
	for _, span := range all {
		if span.Parent.SpanID() == parent.SpanContext.SpanID() {
			children = append(children, span)
		}
	}
	return children
}

// duration returns the only point of rpc.server.call.duration.
func duration(t *testing.T, reader *metric.ManualReader) metricdata.HistogramDataPoint[float64] {
	t.Helper()
	var data metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(t.Context(), &data))
	require.Len(t, data.ScopeMetrics, 1)
	m := data.ScopeMetrics[0].Metrics[0]
	assert.Equal(t, "rpc.server.call.duration", m.Name)
	assert.Equal(t, "s", m.Unit)
	points := m.Data.(metricdata.Histogram[float64]).DataPoints
	require.Len(t, points, 1)
	assert.Equal(t, 0.005, points[0].Bounds[0])
	return points[0]
}

// TestTracer_LimitersAreInTheSpan rejects a message before its payload is read.
func TestTracer_LimitersAreInTheSpan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		provider, spans := traced(t)
		r := newRouter(router.Options{Tracer: otel.NewTracer(&otel.Options{TracerProvider: provider})})
		limits := provider.Tracer("limits")
		r.UseIngress(func(ctx context.Context, _ router.IngressContext) error {
			_, span := limits.Start(ctx, "ask the store")
			span.End()
			return nil
		}, ratelimit.New(memory.NewLimiter(limit.PerSecond(1).Burst(1)), nil))
		client := routertest.Dial(t, r)
		client.Send(Ping{})
		client.Send(Ping{})
		assert.Equal(t, errors.ResourceExhausted, routertest.ReceiveError(client).Code)
		synctest.Wait()
		all := spans.GetSpans()
		require.Len(t, all, 4)
		refused := rejected(t, all)
		assert.Equal(t, codes.Unset, refused.Status.Code)
		assert.Len(t, childrenOf(all, refused), 1, "the store is called in the span")
		_ = r.Shutdown(t.Context())
	})
}

// TestTracer_SamplersSeeTheType drops the spans of one type.
func TestTracer_SamplersSeeTheType(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		provider, spans := traced(t, sdktrace.WithSampler(typeSampler{}))
		r := newRouter(router.Options{Tracer: otel.NewTracer(&otel.Options{TracerProvider: provider})})
		client := routertest.Dial(t, r)
		client.Send(Ping{})
		routertest.Call[Work](client, Work{})
		synctest.Wait()
		require.Len(t, spans.GetSpans(), 1)
		assert.Equal(t, "WORK", spans.GetSpans()[0].Name)
		_ = r.Shutdown(t.Context())
	})
}

// A typeSampler samples no PING.
type typeSampler struct{}

func (typeSampler) Description() string { return "no PING" }
func (typeSampler) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	if slices.Contains(p.Attributes, attribute.String("rpc.method", "PING")) {
		return sdktrace.SamplingResult{Decision: sdktrace.Drop}
	}
	return sdktrace.SamplingResult{Decision: sdktrace.RecordAndSample}
}

// TestTracer_AttributesOfTheApplication adds an attribute, and one span of the handshake.
func TestTracer_AttributesOfTheApplication(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		provider, spans := traced(t)
		_, handshake := provider.Tracer("http").Start(t.Context(), "GET /ws")
		r := newRouter(router.Options{
			Tracer: otel.NewTracer(&otel.Options{TracerProvider: provider, Attributes: func(_ context.Context, op tracing.Operation) []attribute.KeyValue {
				return []attribute.KeyValue{attribute.String("enduser.id", op.UserID)}
			}}),
			Authenticate: func(req *http.Request) (router.Identity, error) {
				return router.Identity{UserID: router.Token(req)}, nil
			},
			ConnContext: func(*http.Request) context.Context { return trace.ContextWithSpan(t.Context(), handshake) },
		})
		client := routertest.Dial(t, r, routertest.Token("ann"))
		client.Send(Ping{})
		synctest.Wait()
		span := spans.GetSpans()[0]
		assert.Equal(t, "ann", attrs(span)["enduser.id"])
		assert.False(t, span.Parent.IsValid(), "a connection is no trace")
		require.Len(t, span.Links, 1)
		assert.Equal(t, handshake.SpanContext().SpanID(), span.Links[0].SpanContext.SpanID())
		_ = r.Shutdown(t.Context())
	})
}

func TestNewTracer_PanicsForInvalidOptions(t *testing.T) {
	assert.PanicsWithValue(t, "otel: Options.Trust is 3; it must be Link, Parent or Ignore", func() { otel.NewTracer(&otel.Options{Trust: 3}) })
}
