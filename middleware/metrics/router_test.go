package metrics_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/middleware/metrics"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

func TestRouter_CountsRejectedConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, reg := newRouter(router.Options{
			Limits: router.Limits{Conns: 2},
			Authenticate: func(req *http.Request) (router.Identity, error) {
				switch user := router.Token(req); user {
				case "thief":
					return router.Identity{}, errors.Errorf(errors.Unauthenticated, "no")
				case "flood":
					return router.Identity{}, &router.LimitExceeded{Kind: router.LimitRate, RetryAfter: time.Second}
				default:
					return router.Identity{UserID: user}, nil
				}
			},
			OnOpen: func(_ context.Context, c *router.Conn) error {
				switch c.Identity().UserID {
				case "banned":
					return &router.CloseError{Code: 4003, Reason: "banned"}
				case "broken":
					return io.ErrUnexpectedEOF
				case "panics":
					panic("OnOpen")
				}
				return nil
			},
		})
		routertest.Refused(t, r, routertest.Header("Origin", "https://evil.example"))
		routertest.Refused(t, r, routertest.Token("thief"))
		routertest.Refused(t, r, routertest.Token("flood"))
		r.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/ws", nil))
		for _, user := range []string{"banned", "broken", "panics"} {
			routertest.Dial(t, r, routertest.Token(user)).Closed()
			synctest.Wait()
		}
		ann := routertest.Dial(t, r)
		routertest.Dial(t, r)
		routertest.Refused(t, r)
		check(t, reg,
			"connections_refused_total{code=PERMISSION_DENIED,reason=origin} 1",
			"connections_refused_total{code=UNAUTHENTICATED,reason=authentication} 1",
			"connections_refused_total{code=RESOURCE_EXHAUSTED,reason=limit} 2",
			"connections_refused_total{code=INVALID_ARGUMENT,reason=handshake} 1",
			"connections_refused_total{code=PERMISSION_DENIED,reason=on_open} 1",
			"connections_refused_total{code=INTERNAL,reason=on_open} 2",
			"limit_exceeded_total{limit=rate} 1", "limit_exceeded_total{limit=router.Limits.Conns} 1",
			"panics_total{where=OnOpen} 1",
			"connections_accepted_total{transport=websocket} 5", "connections_open 2",
			"connections_closed_total{code=application} 1", "connections_closed_total{code=1011} 2",
		)
		ann.Close()
		synctest.Wait()
		check(t, reg, "connections_open 1", "connections_closed_total{code=1000} 1")
	})
}

// TestRouter_AlertSeriesStartAtZero requires the series that alerts query before their first
// event: Prometheus counts no increase in a new series.
func TestRouter_AlertSeriesStartAtZero(t *testing.T) {
	_, reg := newRouter(router.Options{})
	check(t, reg,
		"messages_total{code=OK,type=ECHO} 0", "messages_total{code=INTERNAL,type=BOOM} 0",
		"messages_total{code=DEADLINE_EXCEEDED,type=ECHO} 0", "messages_total{code=UNAVAILABLE,type=ECHO} 0",
		"panics_total{type=BOOM,where=handler} 0", "panics_total{type=BOOM,where=decode} 0", "panics_total{type=BOOM,where=ingress} 0",
		"panics_total{type=ECHO,where=reply} 0", "panics_total{type=__unknown,where=ingress} 0",
		"panics_total{where=OnOpen} 0",
		"queue_dropped_messages_total{policy=disconnect} 0", "queue_dropped_messages_total{policy=conflate} 0",
		"limit_exceeded_total{limit=router.Limits.QueueBytes} 0", "limit_exceeded_total{limit=router.Limits.Topics} 0",
		"shutdown_aborted_connections_total 0", "broker_loss_events_total 0",
	)
}

func TestRouter_CountsEachMessageOnceByResultCode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, reg := newRouter(router.Options{Limits: router.Limits{MaxMessageBytes: 100}})
		admit := true
		r.UseIngress(func(_ context.Context, in router.IngressContext) error {
			switch {
			case in.Type == "__heartbeat" && !admit:
				return &router.LimitExceeded{Kind: "mine"}
			case in.Size == 66:
				panic("ingress")
			}
			return nil
		})
		ann := routertest.Dial(t, r)
		routertest.Call[Echo](ann, Echo{1})
		ann.Send(Say{"hi"})
		ann.Send(Fail{})
		ann.Send(Boom{})
		for _, text := range []string{
			`{"type":"ECHO","payload":[]}`, `{"type":"ECHO"}`, `garbage`, `{"type":"NOPE"}`, `{"type":"SAY","payload":{}} `,
			`{"type":"__heartbeat"}`, `{"type":"SAY","payload":{"text":"` + string(make([]byte, 100)) + `"}}`,
		} {
			ann.SendText(text)
		}
		synctest.Wait()
		admit = false
		ann.SendText(`{"type":"__heartbeat"}`)
		synctest.Wait()
		check(t, reg,
			"messages_total{code=OK,type=ECHO} 1", "messages_total{code=INVALID_ARGUMENT,type=ECHO} 2",
			"messages_total{code=OK,type=SAY} 2", "messages_total{code=RESOURCE_EXHAUSTED,type=SAY} 1",
			"messages_total{code=other,type=FAIL} 1", "messages_total{code=INTERNAL,type=BOOM} 1",
			"messages_total{code=INVALID_ARGUMENT,type=__unknown} 1", "messages_total{code=UNIMPLEMENTED,type=__unknown} 1",
			"messages_total{code=OK,type=__heartbeat} 1", "messages_total{code=RESOURCE_EXHAUSTED,type=__heartbeat} 1",
			"limit_exceeded_total{limit=router.Limits.MaxMessageBytes} 1", "limit_exceeded_total{limit=other} 1",
			"handler_duration_seconds{type=ECHO} count 1", "handler_duration_seconds{type=BOOM} count 1",
			"panics_total{type=BOOM,where=handler} 1", "calls_in_flight 0",
			"publish_fanout_connections count 2", "publish_fanout_connections sum 0",
		)
		total := 0.
		for name, value := range scrape(t, reg) {
			if len(name) > 14 && name[:14] == "messages_total" {
				total += value
			}
		}
		assert.EqualValues(t, 12, total)
	})
}

func TestRouter_CountsExceededTopicLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, reg := newRouter(router.Options{Limits: router.Limits{Topics: 1}})
		router.On(r, func(ctx *router.Context, _ Join) error { return errors.Join(ctx.Subscribe("a"), ctx.Subscribe("b")) })
		routertest.Dial(t, r).Send(Join{})
		synctest.Wait()
		check(t, reg, "limit_exceeded_total{limit=router.Limits.Topics} 1", "messages_total{code=RESOURCE_EXHAUSTED,type=JOIN} 1")
	})
}

func TestRouter_CountsTimedOutCallBeforeItsHandlerReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg, hang := prometheus.NewPedanticRegistry(), make(chan struct{})
		r := router.New(&router.Options{Timeouts: router.Timeouts{Call: time.Second}, Logger: slog.New(slog.DiscardHandler)})
		metrics.New(reg, nil).Router(r)
		router.RPC(r, func(_ *router.Context, m Echo) (Echo, error) {
			<-hang
			panic(m)
		})
		routertest.Dial(t, r).SendText(`{"type":"ECHO","meta":{"correlationId":"1"},"payload":{"n":1}}`)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		check(t, reg, "messages_total{code=DEADLINE_EXCEEDED,type=ECHO} 1", "calls_in_flight 1")
		close(hang)
		synctest.Wait()
		check(t, reg, "messages_total{code=DEADLINE_EXCEEDED,type=ECHO} 1", "calls_in_flight 0",
			"handler_duration_seconds{type=ECHO} count 1", "handler_duration_seconds{type=ECHO} sum 2",
			"panics_total{type=ECHO,where=handler} 1")
	})
}

func TestRouter_CountsCallsToClientsByResultCode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, reg := newRouter(router.Options{})
		client := routertest.Dial(t, r)
		synctest.Wait()
		for conn := range r.Conns() {
			for _, err := range []error{nil, errors.Errorf(errors.Aborted, "no"), errors.Errorf("TEAPOT", "no"), errors.Errorf("KETTLE", "no")} {
				routertest.Handle(client, func(m Echo) (Echo, error) {
					time.Sleep(time.Second)
					return m, err
				})
				_, _ = router.Call[Echo](t.Context(), conn, Echo{N: 1})
			}
			client.Close()
			_, _ = router.Call[Echo](t.Context(), conn, Echo{N: 1})
		}
		check(t, reg,
			"client_calls_total{code=OK,type=ECHO} 1", "client_calls_total{code=ABORTED,type=ECHO} 1", "client_calls_total{code=other,type=ECHO} 2",
			"client_calls_total{code=UNAVAILABLE,type=ECHO} 1", "client_call_duration_seconds{type=ECHO} sum 4", "messages_total{code=OK,type=$ws:answer} 4")
	})
}

func TestRouter_CountsResumedSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, reg := newRouter(router.Options{Resume: router.ResumeOptions{Within: time.Minute}})
		old := routertest.Dial(t, r)
		old.SendText(`{"type":"$ws:hello","payload":{"session":true}}`)
		token := routertest.Receive[routertest.Welcome](old).Session.Token
		client := routertest.Dial(t, r)
		for _, presented := range []string{"guessed", "guessed", token} {
			client.SendText(`{"type":"$ws:resume","payload":{"token":"` + presented + `"}}`)
			client.Next()
		}
		check(t, reg, "session_resumes_total{code=NOT_FOUND} 2", "session_resumes_total{code=OK} 1")
	})
}

func TestRouter_CountsCallOfDisconnectedClientAsCanceled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, reg := newRouter(router.Options{})
		release := make(chan struct{})
		r.Use(func(next router.Handler) router.Handler {
			return func(ctx *router.Context) error {
				if ctx.Type() == "SAY" {
					<-release
				}
				return next(ctx)
			}
		})
		ann := routertest.Dial(t, r)
		ann.Send(Say{"hi"})
		ann.SendText(`{"type":"ECHO","meta":{"correlationId":"1"},"payload":{"n":1}}`)
		synctest.Wait()
		check(t, reg, "calls_in_flight 1")
		ann.Abort()
		synctest.Wait()
		check(t, reg, "connections_open 0")
		close(release)
		synctest.Wait()
		check(t, reg, "messages_total{code=CANCELLED,type=ECHO} 1", "calls_in_flight 0", "connections_closed_total{code=1006} 1")
	})
}

func TestRouter_CountsDroppedMessagesByPolicy(t *testing.T) {
	for policy, name := range map[router.SlowConsumerPolicy]string{
		router.Disconnect: "disconnect", router.DropOldest: "drop_oldest", router.DropNewest: "drop_newest",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				reported := 0.
				r, reg := newRouter(router.Options{
					SlowConsumer:    policy,
					OnLimitExceeded: func(l router.LimitExceeded) { reported += float64(l.Messages) },
					Limits:          router.Limits{QueueMessages: 4},
				})
				slow := routertest.Dial(t, r)
				slow.Pause()
				synctest.Wait()
				var conn *router.Conn
				for c := range r.Conns() {
					conn = c
				}
				for n := range 3 { // one of them may reach the socket
					require.NoError(t, conn.Send(Echo{n}))
					synctest.Wait()
				}
				assert.InDelta(t, 2.5, scrape(t, reg)["queue_messages"], 0.5)
				assert.Positive(t, scrape(t, reg)["queue_bytes"])
				for n := range 5 {
					_ = conn.Send(Echo{n})
				}
				synctest.Wait()
				dropped := scrape(t, reg)["queue_dropped_messages_total{policy="+name+"}"]
				assert.Positive(t, dropped)
				assert.Equal(t, reported, dropped)
				assert.Equal(t, dropped, scrape(t, reg)["limit_exceeded_total{limit=router.Limits.QueueMessages}"])
				time.Sleep(time.Second)
				slow.Resume()
				synctest.Wait()
				check(t, reg, "queue_messages 0", "queue_bytes 0")
				assert.GreaterOrEqual(t, scrape(t, reg)["queue_wait_seconds sum"], 1.)
			})
		})
	}
}

// TestRouter_CountsBytesOnTheWire sends calls together with the handshake, and a close frame after the answers.
// The masking key is zero, which leaves payloads readable.
func TestRouter_CountsBytesOnTheWire(t *testing.T) {
	r, reg := newRouter(router.Options{})
	server := httptest.NewServer(r)
	defer server.Close()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	call := `{"type":"ECHO","payload":{"n":0}}`
	calls := strings.Repeat(string([]byte{0x81, 0x80 | byte(len(call)), 0, 0, 0, 0})+call, 11)
	const closing = "\x88\x82\x00\x00\x00\x00\x03\xe8"
	_, err = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"+calls)
	require.NoError(t, err)
	var answer strings.Builder
	for b := make([]byte, 4096); strings.Count(answer.String(), `"ECHO"`) < 11; {
		n, err := conn.Read(b)
		require.NoError(t, err)
		answer.Write(b[:n])
	}
	_, err = io.WriteString(conn, closing)
	require.NoError(t, err)
	_, err = io.Copy(&answer, conn)
	require.NoError(t, err)
	_, sent, _ := strings.Cut(answer.String(), "\r\n\r\n")
	require.EventuallyWithT(t, func(t *assert.CollectT) { // the event of a write follows the write
		got := scrape(t, reg)
		assert.EqualValues(t, len(calls)+len(closing), got["received_bytes_total"])
		assert.EqualValues(t, len(sent), got["sent_bytes_total"])
		assert.EqualValues(t, 12, got["write_batch_frames sum"], "eleven replies and a close frame")
		assert.EqualValues(t, 1, got["connections_closed_total{code=1000}"])
	}, time.Minute, time.Millisecond)
}

func TestRouter_ReportsFanOutAndLagPerNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memory.NewBroker()
		local, reg := newRouter(router.Options{Broker: broker, OnOpen: joinRoom})
		remote, remoteReg := newRouter(router.Options{Broker: broker, OnOpen: joinRoom})
		ann := routertest.Dial(t, local)
		routertest.Dial(t, local)
		routertest.Dial(t, remote)
		synctest.Wait()
		ann.Send(Say{"hi"})
		synctest.Wait()
		check(t, reg, "publish_fanout_connections count 1", "publish_fanout_connections sum 2", "broker_lag_seconds count 0")
		check(t, remoteReg, "publish_fanout_connections count 0", "broker_lag_seconds count 1", "broker_lag_seconds sum 0")
	})
}

// A lossyBroker delivers each message after 3 seconds and reports two losses with it.
type lossyBroker struct{ node broker.Callbacks }

func (l *lossyBroker) Connect(node broker.Callbacks) broker.Node { l.node = node; return l }
func (*lossyBroker) Name() string                                { return "me" }
func (*lossyBroker) Nodes() (others []string, all bool)          { return nil, true }
func (*lossyBroker) Subscribe(string)                            {}
func (*lossyBroker) Unsubscribe(string)                          {}
func (*lossyBroker) Join(string, string, string)                 {}
func (*lossyBroker) Leave(string, string)                        {}
func (*lossyBroker) Track(string)                                {}
func (*lossyBroker) Untrack(string)                              {}
func (*lossyBroker) Close(context.Context) error                 { return nil }
func (l *lossyBroker) Publish(topic string, packet []byte) error {
	time.AfterFunc(3*time.Second, func() {
		l.node.Receive(topic, "me", packet)
		l.node.MessagesLost(topic, 7)
		l.node.MessagesLost(topic, 0)
	})
	return nil
}

func TestRouter_ReportsBrokerLagAndLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, reg := newRouter(router.Options{Broker: &lossyBroker{}, OnOpen: joinRoom})
		ann := routertest.Dial(t, r)
		ann.Send(Say{"hi"})
		time.Sleep(4 * time.Second)
		check(t, reg, "broker_lag_seconds count 1", "broker_lag_seconds sum 3", "broker_loss_events_total 2", "broker_lost_messages_total 7")
	})
}

func joinRoom(_ context.Context, c *router.Conn) error { return c.Subscribe("room") }

func TestRouter_ReportsShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, reg := newRouter(router.Options{})
		for range 3 {
			routertest.Dial(t, r)
		}
		routertest.Dial(t, r).Freeze()
		check(t, reg, "shutting_down 0")
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		require.Error(t, r.Shutdown(ctx))
		routertest.Refused(t, r)
		synctest.Wait()
		check(t, reg, "shutting_down 1", "shutdown_connections 4", "shutdown_aborted_connections_total 1", "connections_open 0",
			"connections_closed_total{code=1012} 4", "connections_refused_total{code=UNAVAILABLE,reason=draining} 1")
	})
}
