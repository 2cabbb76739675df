//go:build !js

package routertest_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/client"
	"github.com/penstock-go/penstock/client/fallback"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// A brokenServer answers the first message of each connection with messages of the test.
type brokenServer []string

func (b brokenServer) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	ws, err := websocket.Accept(w, req, nil)
	if err != nil {
		return
	}
	defer ws.CloseNow()
	if _, _, err := ws.Read(req.Context()); err != nil {
		return
	}
	for _, m := range b {
		_ = ws.Write(req.Context(), websocket.MessageText, []byte(m))
	}
	_, _, _ = ws.Read(context.Background())
}

func (brokenServer) Shutdown(context.Context) error { return nil }

// failuresWith returns the failures of a client that sends a call to a server with these answers. Its connection is
// open at the end of the test, and closed after that.
func failuresWith(t *testing.T, answers ...string) []string {
	t.Helper()
	return failuresOf(t, func(t testing.TB) {
		var ws *websocket.Conn
		t.Cleanup(func() {
			_ = ws.CloseNow()
			time.Sleep(time.Second) // until the server has received that
		})
		c := routertest.NewCluster(t, func(broker.HistoryBroker) routertest.App { return brokenServer(answers) }, &routertest.ClusterOptions{Seed: 7})
		var err error
		ws, _, err = websocket.Dial(t.Context(), "ws://cluster.test/ws", &websocket.DialOptions{HTTPClient: &http.Client{Transport: c.Transport("ann")}})
		require.NoError(t, err)
		require.NoError(t, ws.Write(t.Context(), websocket.MessageText, []byte(`{"type":"ADD","meta":{"correlationId":"1","timeoutMs":5000}}`)))
		for range answers {
			_, _, err = ws.Read(t.Context())
			require.NoError(t, err)
		}
	})
}

// requireFailures requires one failure in addition to that of the open connection.
func requireFailures(t *testing.T, failures []string, want string) {
	t.Helper()
	require.Len(t, failures, 2)
	assert.Contains(t, failures[0], want)
	assert.Contains(t, failures[1], "1 connections are open")
}

func TestCluster_ReportsSecondAnswer(t *testing.T) {
	const answer = `{"type":"SUM","meta":{"correlationId":"1"}}`
	requireOneFailure(t, failuresWith(t, answer), "1 connections are open")
	failures := failuresWith(t, answer, answer)
	requireFailures(t, failures, "client ann: call ADD (1) was answered with SUM after SUM; a call has exactly one answer")
	assert.Contains(t, failures[0], "routertest: seed 7: after ")
}

func TestCluster_ReportsCallWithoutOutcome(t *testing.T) {
	requireFailures(t, failuresWith(t), "client ann: call ADD (1) has no answer")
}

func TestCluster_ReportsGap(t *testing.T) {
	requireFailures(t, failuresWith(t, `{"type":"SUM","meta":{"correlationId":"1"}}`,
		`{"type":"TICK","meta":{"topic":"clock","offset":1}}`, `{"type":"TICK","meta":{"topic":"clock","offset":3}}`),
		`client ann: TICK of topic "clock" has the offset 3 after 1`)
}

// missTicks makes ann return, over WebSocket or plain HTTP, after more ticks than the history has.
func missTicks(t testing.TB, opts *routertest.ClusterOptions, overHTTP bool, disturb func(*routertest.Cluster)) {
	c := routertest.NewCluster(t, func(b broker.HistoryBroker) routertest.App {
		n := &clockNode{Router: router.New(&router.Options{Broker: b})}
		router.Topic(n.Router, "clock", &router.TopicOptions{
			Authorize: func(*router.Context, router.TopicMatch) error { return nil }, History: router.History{Messages: 2, Age: time.Hour},
		})
		n.Handle("/ws", n.Router)
		n.Handle("/ws/http", n.HTTPFallback(nil))
		return n
	}, opts)
	ann, _ := connect(t, c, "ann", c.Transport("ann"))
	publishTick(t, c, 1, 1)
	c.Wait(time.Second)
	sub, err := ann.Subscribe(t.Context(), "clock", nil)
	require.NoError(t, err)
	since := sub.Position()
	require.NoError(t, ann.Close(t.Context()))
	disturb(c)
	for n := 2; n < 9; n++ {
		publishTick(t, c, 1, n)
	}
	transport := c.Transport("ann")
	if overHTTP {
		transport = fallback.New("http://cluster.test/ws/http", &fallback.Options{Base: onlyHTTP{transport}})
	}
	again := c.Client("ann", &client.Options{HTTPClient: &http.Client{Transport: transport}})
	require.NoError(t, again.Connect(t.Context()))
	_, err = again.Subscribe(t.Context(), "clock", &client.SubscribeOptions{Since: since})
	require.NoError(t, err)
}

func TestCluster_ReportsLossWithoutFault(t *testing.T) {
	none := func(*routertest.Cluster) {}
	for _, overHTTP := range []bool{false, true} {
		requireOneFailure(t, failuresOf(t, func(t testing.TB) { missTicks(t, nil, overHTTP, none) }),
			`client ann: topic "clock": $ws:subscribed without recovery: the history does not reach back to offset 1. The test has injected no fault`)
	}
	assert.Empty(t, failuresOf(t, func(t testing.TB) {
		missTicks(t, &routertest.ClusterOptions{MayLose: func(topic string) bool { return topic == "clock" }}, false, none)
	}))
	assert.Empty(t, failuresOf(t, func(t testing.TB) {
		missTicks(t, nil, false, func(c *routertest.Cluster) { c.FailOver(0); c.Wait(time.Minute) })
	}))
	requireOneFailure(t, failuresOf(t, func(t testing.TB) {
		missTicks(t, nil, false, func(c *routertest.Cluster) { c.Deploy() })
	}), "The test has injected no fault")
}

// A leakingApp does not shut down its router.
type leakingApp struct{ *router.Router }

func (leakingApp) Shutdown(context.Context) error { return nil }

func TestCluster_ReportsNodesAndConnectionsThatAreLeft(t *testing.T) {
	requireOneFailure(t, failuresOf(t, func(t testing.TB) {
		var routers []*router.Router
		t.Cleanup(func() {
			for _, r := range routers {
				_ = r.Shutdown(context.Background())
			}
		})
		routertest.NewCluster(t, func(b broker.HistoryBroker) routertest.App {
			r := newClock(b).(*router.Router)
			routers = append(routers, r)
			return leakingApp{r}
		}, nil)
	}), "3 nodes are connected to the store after Shutdown; App.Shutdown must shut down the router")
	requireOneFailure(t, failuresOf(t, func(t testing.TB) {
		c := routertest.NewCluster(t, newClock, nil)
		_, err := c.Dial(t.Context(), "ann")
		require.NoError(t, err)
	}), "1 connections are open after all clients were closed and all nodes shut down")
}

// A storeApp is connected to the store without a router. It leaves its calls behind when it is killed.
type storeApp struct {
	http.Handler
	broker.HistoryNode
}

func (a storeApp) Shutdown(ctx context.Context) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return a.Close(ctx)
}

func TestCluster_ReportsStoreCallsThatAreLeft(t *testing.T) {
	requireOneFailure(t, failuresOf(t, func(t testing.TB) {
		ctx, cancel := context.WithCancel(context.Background())
		t.Cleanup(cancel)
		c := routertest.NewCluster(t, func(b broker.HistoryBroker) routertest.App {
			return storeApp{http.NotFoundHandler(), b.ConnectHistory(broker.Callbacks{}, broker.HistoryCallbacks{})}
		}, nil)
		c.CutOff(1)
		go c.App(1).(storeApp).Read(ctx, broker.Query{Topic: "clock"}) //nolint:errcheck // it never returns
		c.Wait(time.Second)
		c.Kill(1)
	}), "1 calls of the store are waiting after all nodes have shut down")
}
