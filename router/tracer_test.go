package router_test

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/observe"
	"github.com/penstock-go/penstock/router/routertest"
	"github.com/penstock-go/penstock/tracing"
)

// A recordingTracer records how the router calls it. The spans of one tracer have numbers.
type recordingTracer struct {
	mu    sync.Mutex
	spans []*recordedSpan
}

type recordedSpan struct {
	tracing.Operation

	number, parent int // 0: none
	results        []tracing.Result
}

type spanOf struct{}

func (r *recordingTracer) Start(ctx context.Context, op tracing.Operation) context.Context {
	r.mu.Lock()
	defer r.mu.Unlock()
	span := &recordedSpan{Operation: op, number: len(r.spans) + 1, parent: spanIn(ctx)}
	r.spans = append(r.spans, span)
	return context.WithValue(ctx, spanOf{}, span)
}

func (r *recordingTracer) End(ctx context.Context, result tracing.Result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	span := ctx.Value(spanOf{}).(*recordedSpan)
	span.results = append(span.results, result)
}

func (r *recordingTracer) Inject(ctx context.Context) tracing.TraceContext {
	return tracing.TraceContext{Parent: fmt.Sprint("trace of span ", spanIn(ctx)), State: "state"}
}

// spanIn returns the number of the span in ctx.
func spanIn(ctx context.Context) int {
	if span, ok := ctx.Value(spanOf{}).(*recordedSpan); ok {
		return span.number
	}
	return 0
}

// ended returns the spans, each of which must have ended once.
func (r *recordingTracer) ended(t *testing.T) []*recordedSpan {
	t.Helper()
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, span := range r.spans {
		require.Len(t, span.results, 1, "%v %s", span.Kind, span.Type)
	}
	return r.spans
}

// TestTracer_EachMessageHasOneSpan sends messages that end in different ways.
func TestTracer_EachMessageHasOneSpan(t *testing.T) {
	for name, tt := range map[string]struct {
		message string
		typ     string
		code    errors.Code
	}{
		"an event":             {`{"type":"NOTHING"}`, "NOTHING", ""},
		"a call":               {`{"type":"QUOTE","meta":{"correlationId":"1"},"payload":{"n":1}}`, "QUOTE", ""},
		"a stream":             {`{"type":"BLOB","meta":{"correlationId":"1"},"payload":{"n":1}}`, "BLOB", ""},
		"a call of the router": {`{"type":"$ws:hello","meta":{"correlationId":"1"},"payload":{}}`, "$ws:hello", ""},
		"no type":              {`{}`, "", errors.InvalidArgument},
		"an unknown type":      {`{"type":"OTHER"}`, "", errors.Unimplemented},
		"an invalid payload":   {`{"type":"QUOTE","payload":{"n":"x"}}`, "QUOTE", errors.InvalidArgument},
		"ingress":              {`{"type":"QUOTE","payload":{"n":7,"pad":"refuse"}}`, "QUOTE", errors.ResourceExhausted},
		"a panic":              {`{"type":"QUOTE","payload":{"n":2}}`, "QUOTE", errors.Internal},
		"a deadline":           {`{"type":"QUOTE","meta":{"timeoutMs":5},"payload":{"n":3}}`, "QUOTE", errors.DeadlineExceeded},
		"a heartbeat":          {`{"type":"__heartbeat"}`, "none", ""},
	} {
		runSynctest(t, name, func(t *testing.T) {
			tracer := new(recordingTracer)
			r := router.New(discardLogs(router.Options{Tracer: tracer}))
			var ingress []int
			r.UseIngress(func(ctx context.Context, in router.IngressContext) error {
				ingress = append(ingress, spanIn(ctx))
				if in.Size == int64(len(`{"type":"QUOTE","payload":{"n":7,"pad":"refuse"}}`)) && in.Type == "QUOTE" {
					return &router.LimitExceeded{Kind: router.LimitRate}
				}
				return nil
			})
			check := func(ctx context.Context) {
				assert.Equal(t, 1, spanIn(ctx))
				derived, cancel := context.WithCancel(ctx)
				defer cancel()
				assert.Equal(t, 1, spanIn(derived))
			}
			router.On(r, func(ctx *router.Context, _ Nothing) error { check(ctx); return nil })
			router.RPC(r, func(ctx *router.Context, m Quote) (Quote, error) {
				check(ctx)
				switch m.N {
				case 2:
					panic("broken")
				case 3:
					<-ctx.Done()
					time.Sleep(time.Second) // the span ends with the answer
				}
				return m, nil
			})
			router.Stream(r, func(ctx *router.Context, _ Blob) iter.Seq2[int, error] {
				return func(yield func(int, error) bool) { check(ctx); yield(1, nil) }
			})
			client := routertest.Dial(t, r)
			client.SendText(tt.message)
			time.Sleep(2 * time.Second)
			spans := tracer.ended(t)
			if tt.typ == "none" {
				assert.Empty(t, spans)
				return
			}
			require.Len(t, spans, 1)
			assert.Equal(t, tracing.Message, spans[0].Kind)
			assert.Equal(t, tt.typ, spans[0].Type)
			assert.Equal(t, tt.code, spans[0].results[0].Code)
			assert.Equal(t, []int{1}, ingress, "ingress functions are in the span")
			assert.NotEmpty(t, spans[0].ConnID)
		})
	}
}

// TestTracer_SpansEndWithTheirConnection loses a connection while messages run and wait.
func TestTracer_SpansEndWithTheirConnection(t *testing.T) {
	const (
		event  = `{"type":"NOTHING"}`
		call   = `{"type":"QUOTE","meta":{"correlationId":"%d"},"payload":{"n":1}}`
		stream = `{"type":"BLOB","meta":{"correlationId":"%d"},"payload":{"n":1}}`
	)
	for name, messages := range map[string][2]string{
		"calls":                   {call, call},
		"streams":                 {stream, stream},
		"events":                  {event, event},
		"calls behind an event":   {event, call},
		"streams behind an event": {event, stream},
	} {
		runSynctest(t, name, func(t *testing.T) {
			tracer := new(recordingTracer)
			r := router.New(discardLogs(router.Options{Tracer: tracer, Limits: router.Limits{Concurrency: 2}}))
			wait := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
			router.RPC(r, func(ctx *router.Context, m Quote) (Quote, error) { return m, wait(ctx) })
			router.On(r, func(ctx *router.Context, _ Nothing) error { return wait(ctx) })
			router.Stream(r, func(ctx *router.Context, _ Blob) iter.Seq2[int, error] {
				return func(yield func(int, error) bool) { yield(0, wait(ctx)) }
			})
			client := routertest.Dial(t, r)
			for i := range 5 {
				client.SendText(strings.ReplaceAll(messages[min(i, 1)], "%d", fmt.Sprint(i)))
			}
			synctest.Wait()
			client.Abort()
			assert.Len(t, tracer.ended(t), 5)
		})
	}
}

// TestTracer_ReceivesTraceContextOfClient sends trace contexts, of which invalid ones count as
// absent.
func TestTracer_ReceivesTraceContextOfClient(t *testing.T) {
	long := strings.Repeat("x", 513)
	for meta, want := range map[string]tracing.TraceContext{
		`{}`:                                              {},
		`{"traceparent":"p"}`:                             {Parent: "p"},
		`{"traceparent":"p","tracestate":"a=b"}`:          {Parent: "p", State: "a=b"},
		`{"timestamp":1,"traceparent":"p"}`:               {Parent: "p"},
		`{"traceparent":7,"tracestate":{"a":[]}}`:         {},
		`{"traceparent":"\u0070"}`:                        {},
		`{"traceparent":null,"tracestate":"a=b"}`:         {State: "a=b"},
		`{"traceparent":"` + long + `"}`:                  {},
		`{"traceparent":"p","tracestate":"` + long + `"}`: {Parent: "p"},
	} {
		runSynctest(t, meta, func(t *testing.T) {
			tracer := new(recordingTracer)
			r := router.New(&router.Options{Tracer: tracer})
			router.RPC(r, func(_ *router.Context, m Quote) (Quote, error) { return m, nil })
			client := routertest.Dial(t, r)
			client.SendText(`{"type":"QUOTE","meta":` + meta + `,"payload":{"n":1}}`)
			assert.Contains(t, client.Next().Text, `"n":1`, "whatever the trace context is")
			assert.Equal(t, want, tracer.ended(t)[0].Remote)
		})
	}
}

// TestTracer_PublicationsOnTwoNodes publishes in a handler of one node.
func TestTracer_PublicationsOnTwoNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.NewBroker()
		var tracers [2]*recordingTracer
		var clients [2]*routertest.Conn
		var routers [2]*router.Router
		for i := range routers {
			tracers[i] = new(recordingTracer)
			routers[i] = router.New(&router.Options{Broker: b, Tracer: tracers[i], OnOpen: func(_ context.Context, c *router.Conn) error {
				return errors.Join(c.Subscribe("room/7"), c.Subscribe("kept"))
			}})
			router.Topic(routers[i], "room/{id}", nil)
			router.Topic(routers[i], "kept", &router.TopicOptions{History: router.History{Messages: 1}})
			router.On(routers[i], func(ctx *router.Context, m Nothing) error {
				return errors.Join(ctx.Publish("room/7", m), ctx.Publish("kept", m))
			})
			clients[i] = routertest.Dial(t, routers[i])
		}
		synctest.Wait()
		clients[0].Send(Nothing{})
		for range 2 {
			routertest.Receive[Nothing](clients[1])
		}
		spans := tracers[0].ended(t)
		require.Len(t, spans, 3)
		assert.Equal(t, tracing.Publish, spans[1].Kind)
		assert.Equal(t, "room/{id}", spans[1].Topic)
		assert.Equal(t, "NOTHING", spans[1].Type)
		assert.Equal(t, 1, spans[1].parent)
		assert.Equal(t, tracing.Result{Connections: 1}, spans[1].results[0])
		assert.Equal(t, "kept", spans[2].Topic)
		other := tracers[1].ended(t)
		require.Len(t, other, 1, "a stored publication has no trace")
		assert.Equal(t, tracing.Deliver, other[0].Kind)
		assert.Equal(t, "room/{id}", other[0].Topic)
		assert.Equal(t, tracing.TraceContext{Parent: "trace of span 2", State: "state"}, other[0].Remote)
		assert.Equal(t, tracing.Result{Connections: 1}, other[0].results[0])
	})
}

// TestTracer_CallsToClients calls clients on both nodes, which have asked for trace contexts or not.
func TestTracer_CallsToClients(t *testing.T) {
	for name, asks := range map[string]bool{"asked": true, "not asked": false} {
		runSynctest(t, name, func(t *testing.T) {
			b, tracer := memory.NewBroker(), new(recordingTracer)
			first := router.New(&router.Options{Broker: b, Tracer: tracer})
			second := router.New(&router.Options{Broker: b})
			time.Sleep(3 * time.Second) // until the nodes know each other
			for i, r := range []*router.Router{first, second} {
				client, conn := dialUser(t, r, "")
				client.SendText(fmt.Sprintf(`{"type":"$ws:hello","meta":{"correlationId":"h"},"payload":{"trace":%v}}`, asks))
				client.Next()
				done := make(chan error, 1)
				go func() {
					_, err := router.CallConn[Quote](t.Context(), first, conn.ID(), Quote{N: 1})
					done <- err
				}()
				call := client.Next()
				assert.Equal(t, asks, strings.Contains(call.Text, fmt.Sprintf(`"traceparent":"trace of span %d","tracestate":"state"`, i+2)), call.Text)
				client.SendText(fmt.Sprintf(`{"type":"RPC_ERROR","meta":{"correlationId":%q},"payload":{"code":"ABORTED"}}`, call.Meta.CorrelationID))
				assert.Equal(t, errors.Aborted, errors.CodeOf(<-done))
			}
			var calls []*recordedSpan
			for _, span := range tracer.ended(t) {
				if span.Kind == tracing.ClientCall {
					calls = append(calls, span)
				}
			}
			require.Len(t, calls, 2)
			for _, span := range calls {
				assert.Equal(t, "QUOTE", span.Type)
				assert.Equal(t, errors.Aborted, span.results[0].Code)
			}
		})
	}
}

// contextHandler notes the span of each record.
type contextHandler struct {
	slog.Handler

	spans *[]int
}

func (h contextHandler) Handle(ctx context.Context, _ slog.Record) error {
	*h.spans = append(*h.spans, spanIn(ctx))
	return nil
}

func (contextHandler) Enabled(_ context.Context, level slog.Level) bool {
	return level >= slog.LevelError
}

// TestLogger_ReceivesContextOfMessage fails messages, and panics in a hook.
func TestLogger_ReceivesContextOfMessage(t *testing.T) {
	for name, hooked := range map[string]bool{"the log": false, "OnError": true} {
		runSynctest(t, name, func(t *testing.T) {
			var spans []int
			opts := &router.Options{Tracer: new(recordingTracer), Logger: slog.New(contextHandler{slog.DiscardHandler, &spans})}
			if hooked {
				opts.OnError = func(report router.ErrorReport) {
					spans = append(spans, spanIn(report.Context))
					panic("of a hook")
				}
			}
			r := router.New(opts)
			router.RPC(r, func(*router.Context, Quote) (Quote, error) { panic("of a handler") })
			assert.Equal(t, errors.Internal, routertest.CallError(routertest.Dial(t, r), Quote{}).Code)
			synctest.Wait()
			want := []int{1}
			if hooked {
				want = []int{1, 1}
			}
			assert.Equal(t, want, spans)
		})
	}
}

// A panickingTracer panics in one of its methods.
type panickingTracer struct {
	recordingTracer

	in string
}

func (p *panickingTracer) Start(ctx context.Context, op tracing.Operation) context.Context {
	if p.in == "Start" {
		panic("Start")
	}
	if p.in == "nil" {
		return nil
	}
	return p.recordingTracer.Start(ctx, op)
}

func (p *panickingTracer) End(ctx context.Context, _ tracing.Result) {
	if p.in == "nil" {
		panic(fmt.Sprint("End without a span: ", ctx))
	}
	panic("End")
}

// TestTracer_PanicsEndNothing uses tracers that panic, or make no spans.
func TestTracer_PanicsEndNothing(t *testing.T) {
	for in, panics := range map[string]int{"Start": 3, "End": 3, "nil": 0} {
		runSynctest(t, in, func(t *testing.T) {
			r := router.New(discardLogs(router.Options{Tracer: &panickingTracer{in: in}}))
			var panicked []string
			r.Observe(func(e observe.Event) {
				if e.Kind == observe.Panicked {
					panicked = append(panicked, e.Reason)
				}
			})
			router.RPC(r, func(ctx *router.Context, m Quote) (Quote, error) {
				return m, errors.Join(ctx.Err(), ctx.Publish("room", m))
			})
			client := routertest.Dial(t, r)
			assert.Equal(t, Quote{N: 1}, routertest.Call[Quote](client, Quote{N: 1}))
			client.SendText(`{"type":"OTHER"}`)
			assert.Equal(t, errors.Unimplemented, routertest.ReceiveError(client).Code)
			synctest.Wait()
			assert.Len(t, panicked, panics)
		})
	}
}
