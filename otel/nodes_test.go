package otel_test

import (
	"context"
	"crypto/rand"
	"net"
	"slices"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/adapters/redis"
	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/redistest"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/middleware/ratelimit"
	"github.com/penstock-go/penstock/otel"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// brokers returns brokers that two nodes share.
func brokers() map[string]func(t *testing.T) broker.Broker {
	memoryBroker := memory.NewBroker()
	namespace := rand.Text()
	return map[string]func(t *testing.T) broker.Broker{
		"memory": func(*testing.T) broker.Broker { return memoryBroker },
		"Redis": func(t *testing.T) broker.Broker {
			return redis.NewBroker(redis.WithNamespace(redistest.Shared(t), namespace))
		},
	}
}

// awaitSpans returns n spans once they have ended.
func awaitSpans(t *testing.T, spans *tracetest.InMemoryExporter, n int) tracetest.SpanStubs {
	t.Helper()
	require.Eventually(t, func() bool { return len(spans.GetSpans()) >= n }, 20*time.Second, 5*time.Millisecond)
	all := spans.GetSpans()
	require.Len(t, all, n)
	return all
}

// TestTracer_PublicationOnTwoNodes publishes in a handler, with samplers that sample all or nothing.
func TestTracer_PublicationOnTwoNodes(t *testing.T) {
	for name, newBroker := range brokers() {
		for sampled, sampler := range map[string]sdktrace.Sampler{"sampled": sdktrace.AlwaysSample(), "not sampled": sdktrace.NeverSample()} {
			t.Run(name+", "+sampled, func(t *testing.T) {
				// The second node, which would sample nothing, samples as the first.
				var clients [2]*routertest.Conn
				var exporters [2]*tracetest.InMemoryExporter
				for i, root := range []sdktrace.Sampler{sampler, sdktrace.NeverSample()} {
					provider, spans := traced(t, sdktrace.WithSampler(sdktrace.ParentBased(root)))
					opts := router.Options{Broker: newBroker(t), Tracer: otel.NewTracer(&otel.Options{TracerProvider: provider})}
					opts.OnOpen = func(_ context.Context, c *router.Conn) error { return c.Subscribe("rooms/7") }
					r := newRouter(opts)
					router.Topic(r, "rooms/{room}", nil)
					router.On(r, func(ctx *router.Context, m Say) error { return ctx.Publish("rooms/7", m) })
					clients[i], exporters[i] = routertest.Dial(t, r), spans
					t.Cleanup(func() { _ = r.Shutdown(context.Background()) })
				}
				received := make(chan Say, 100)
				go func() { received <- routertest.Receive[Say](clients[1]) }()
				published := 0
				for waits := true; waits; published++ { // the nodes may not know each other yet
					clients[0].Send(Say{})
					select {
					case <-received:
						waits = false
					case <-time.After(100 * time.Millisecond):
					}
				}
				if sampled == "not sampled" {
					assert.Empty(t, exporters[0].GetSpans())
					assert.Empty(t, exporters[1].GetSpans())
					return
				}
				all := awaitSpans(t, exporters[0], 2*published)
				message := all[slices.IndexFunc(all, func(s tracetest.SpanStub) bool { return s.SpanKind == trace.SpanKindServer })]
				require.Len(t, childrenOf(all, message), 1)
				publish := childrenOf(all, message)[0]
				assert.Equal(t, "publish rooms/{room}", publish.Name)
				assert.Equal(t, trace.SpanKindProducer, publish.SpanKind)
				assert.Equal(t, map[string]string{
					"messaging.system": "penstock", "messaging.operation.name": "publish", "messaging.operation.type": "send",
					"messaging.destination.template": "rooms/{room}", "penstock.message.type": "SAY", "penstock.connections": "1",
				}, attrs(publish))

				require.Eventually(t, func() bool { return len(exporters[1].GetSpans()) > 0 }, 20*time.Second, 5*time.Millisecond)
				process := exporters[1].GetSpans()[0]
				assert.Equal(t, "process rooms/{room}", process.Name)
				assert.Equal(t, trace.SpanKindConsumer, process.SpanKind)
				require.Len(t, process.Links, 1)
				assert.Equal(t, process.Parent.SpanID(), process.Links[0].SpanContext.SpanID())
				assert.True(t, slices.ContainsFunc(all, func(s tracetest.SpanStub) bool {
					return s.SpanContext.SpanID() == process.Parent.SpanID() && s.SpanKind == trace.SpanKindProducer
				}))
				assert.Equal(t, map[string]string{
					"messaging.system": "penstock", "messaging.operation.name": "process", "messaging.operation.type": "process",
					"messaging.destination.template": "rooms/{room}", "penstock.connections": "1",
				}, attrs(process))
			})
		}
	}
}

// A Say is an event that is published.
type Say struct{}

func (Say) MessageType() string { return "SAY" }

// TestTracer_CallsToClientsOnTwoNodes calls a client of the other node, which has asked for trace
// contexts.
func TestTracer_CallsToClientsOnTwoNodes(t *testing.T) {
	for name, newBroker := range brokers() {
		t.Run(name, func(t *testing.T) {
			provider, spans := traced(t)
			first := newRouter(router.Options{Broker: newBroker(t), Tracer: otel.NewTracer(&otel.Options{TracerProvider: provider})})
			second := newRouter(router.Options{Broker: newBroker(t)})
			for _, r := range []*router.Router{first, second} {
				t.Cleanup(func() { _ = r.Shutdown(context.Background()) })
			}
			client := routertest.Dial(t, second)
			client.SendText(`{"type":"$ws:hello","meta":{"correlationId":"h"},"payload":{"trace":true}}`)
			client.Next()
			id := ""
			for c := range second.Conns() {
				id = c.ID()
			}
			outcome := make(chan error, 1)
			go func() {
				for { // until the nodes know each other
					_, err := router.CallConn[Work](context.Background(), first, id, Work{})
					if code := errors.CodeOf(err); code != errors.Unavailable && code != errors.NotFound {
						outcome <- err
						return
					}
					spans.Reset()
					time.Sleep(10 * time.Millisecond)
				}
			}()
			call := client.Next()
			client.SendText(`{"type":"RPC_ERROR","meta":{"correlationId":"` + call.Meta.CorrelationID + `"},"payload":{"code":"MADE_UP"}}`)
			assert.Equal(t, errors.Code("MADE_UP"), errors.CodeOf(<-outcome))
			span := awaitSpans(t, spans, 1)[0]
			assert.Equal(t, "WORK", span.Name)
			assert.Equal(t, trace.SpanKindClient, span.SpanKind)
			assert.Equal(t, "_OTHER", attrs(span)["error.type"], "clients choose codes")
			assert.Equal(t, codes.Error, span.Status.Code)
			assert.Contains(t, call.Text, `"traceparent":"00-`+span.SpanContext.TraceID().String()+"-"+span.SpanContext.SpanID().String()+`-01"`)
		})
	}
}

// TestTracer_RedisLimiterIsAChild rejects a message by a limiter whose commands have spans.
func TestTracer_RedisLimiterIsAChild(t *testing.T) {
	provider, spans := traced(t)
	client := redistest.Shared(t)
	client.AddHook(commandSpans{provider.Tracer("redis")})
	r := newRouter(router.Options{Tracer: otel.NewTracer(&otel.Options{TracerProvider: provider})})
	r.UseIngress(ratelimit.New(redis.NewLimiter(redis.WithNamespace(client, rand.Text()), limit.PerHour(1).Burst(1)), nil))
	conn := routertest.Dial(t, r)
	conn.Send(Ping{})
	conn.Send(Ping{})
	assert.Equal(t, errors.ResourceExhausted, routertest.ReceiveError(conn).Code)
	require.NoError(t, r.Shutdown(t.Context()))
	all := spans.GetSpans()
	accepted := slices.IndexFunc(all, func(s tracetest.SpanStub) bool { return s.Name == "PING" && attrs(s)["error.type"] == "" })
	require.GreaterOrEqual(t, accepted, 0)
	assert.NotEmpty(t, childrenOf(all, all[accepted]))
	assert.Equal(t, trace.SpanKindServer, rejected(t, all).SpanKind)
}

// commandSpans makes a span of each command, as redisotel does.
type commandSpans struct{ tracer trace.Tracer }

func (h commandSpans) DialHook(next goredis.DialHook) goredis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (h commandSpans) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) error {
		ctx, span := h.tracer.Start(ctx, cmd.Name())
		defer span.End()
		return next(ctx, cmd)
	}
}

func (h commandSpans) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []goredis.Cmder) error {
		ctx, span := h.tracer.Start(ctx, "pipeline")
		defer span.End()
		return next(ctx, cmds)
	}
}
