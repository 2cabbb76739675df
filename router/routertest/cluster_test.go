//go:build !js

package routertest_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/client"
	"github.com/penstock-go/penstock/client/fallback"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// A recordingTB collects the failures of a cluster.
type recordingTB struct {
	testing.TB

	mu       sync.Mutex
	failures []string
	cleanups []func()
}

func (r *recordingTB) Error(args ...any) { r.Errorf("%s", fmt.Sprint(args...)) }

func (r *recordingTB) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

func (r *recordingTB) Fatal(args ...any) {
	r.Error(args...)
	panic(errFatal)
}

func (r *recordingTB) Fatalf(format string, args ...any) { r.Fatal(fmt.Sprintf(format, args...)) }

var errFatal = errors.New("fatal")

func (r *recordingTB) Cleanup(f func())  { r.cleanups = append(r.cleanups, f) }
func (r *recordingTB) Output() io.Writer { return io.Discard }

// failuresOf runs a test in a bubble, and returns its failures.
func failuresOf(t *testing.T, test func(testing.TB)) (failures []string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &recordingTB{TB: t}
		defer func() { failures = r.failures }()
		run := func(f func()) {
			defer func() {
				if v := recover(); v != nil && v != any(errFatal) {
					panic(v)
				}
			}()
			f()
		}
		run(func() { test(r) })
		for _, f := range slices.Backward(r.cleanups) {
			run(f)
		}
	})
	return failures
}

func requireOneFailure(t *testing.T, failures []string, want string) {
	t.Helper()
	require.Len(t, failures, 1)
	assert.Contains(t, failures[0], want)
}

func TestCluster_ExampleFindsHandlerThatPublishesBeforeItStores(t *testing.T) {
	failuresWith := func(place func(*shop, *router.Context, PlaceOrder) (OrderPlaced, error)) []string {
		return failuresOf(t, func(t testing.TB) {
			checkOrders(t, func(b broker.HistoryBroker, db *database) routertest.App { return newShop(b, db, place) })
		})
	}
	requireOneFailure(t, failuresWith((*shop).publishAndStore), "bob is notified of order A1 and cannot read it")
	assert.Empty(t, failuresWith((*shop).storeAndPublish))
}

func TestCluster_ExampleOfDeployPasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { checkDeploy(t) })
}

func TestNewCluster_OutsideOfBubbleFails(t *testing.T) {
	r := &recordingTB{TB: t}
	assert.PanicsWithValue(t, any(errFatal), func() { routertest.NewCluster(r, newClock, nil) })
	requireOneFailure(t, r.failures, "NewCluster must be called in a testing/synctest bubble, with its t: synctest.Test(t,")
}

func TestNewCluster_WithTOutsideOfBubbleFails(t *testing.T) {
	r := &recordingTB{TB: t}
	synctest.Test(t, func(t *testing.T) {
		c := routertest.NewCluster(r, newClock, nil)
		for node := range 3 {
			c.Shutdown(node + 1)
		}
	})
	r.cleanups[0]()
	requireOneFailure(t, r.failures, "the t of NewCluster is not that of the bubble")
}

func TestCluster_MisusePanicsWithWhatIsRight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := routertest.NewCluster(t, newClock, &routertest.ClusterOptions{Nodes: 2})
		for want, misuse := range map[string]func(){
			"routertest: there is no node 3; nodes are numbered from 1 to 2":                                                         func() { c.Kill(3) },
			"routertest: there is no node 0; nodes are numbered from 1 to 2":                                                         func() { c.CutOff(0) },
			"routertest: node1 is running; shut it down or kill it before Start":                                                     func() { c.Start(1) },
			`routertest: the host of a client is "node1"; it needs a name of its own, which is not that of a node`:                   func() { c.Client("node1", nil) },
			"routertest: the function that starts a node has returned nil; it must return a *router.Router, or a handler around one": func() { routertest.NewCluster(t, func(broker.HistoryBroker) routertest.App { return nil }, nil) },
			"routertest: ClusterOptions.Nodes is -1; it must be at least 1, or 0 for the default":                                    func() { routertest.NewCluster(t, newClock, &routertest.ClusterOptions{Nodes: -1}) },
			`routertest: there is no host "bob"; clients and nodes are hosts: ["ann" "node1" "node2"]`:                               func() { c.Client("ann", nil); c.Cut("bob") },
		} {
			assert.PanicsWithValue(t, want, misuse)
		}
		c.Shutdown(1)
		assert.Nil(t, c.App(1))
		assert.PanicsWithValue(t, "routertest: node1 is down, or is shutting down; only a running node can be shut down or killed", func() { c.Kill(1) })
	})
}

func TestCluster_VerbsMayRunWhileTheTestWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := routertest.NewCluster(t, newClock, nil)
		go c.RandomFaults(time.Minute)
		c.Wait(5 * time.Minute)
		done := make(chan struct{})
		go func() {
			defer close(done)
			c.Deploy()
		}()
		c.Wait(5 * time.Minute)
		<-done
	})
}

func TestCluster_ClientWithoutTransportFails(t *testing.T) {
	failures := failuresOf(t, func(t testing.TB) {
		routertest.NewCluster(t, newClock, nil).Client("ann", &client.Options{HTTPClient: &http.Client{}})
	})
	requireOneFailure(t, failures, `would use the real network; use Cluster.Transport("ann")`)
}

// connect returns a client that receives ticks.
func connect(t testing.TB, c *routertest.Cluster, host string, transport http.RoundTripper) (cl *client.Client, ticks func() []int) {
	t.Helper()
	cl = c.Client(host, &client.Options{HTTPClient: &http.Client{Transport: transport}})
	require.NoError(t, cl.Connect(t.Context()))
	var mu sync.Mutex
	var received []int
	client.On(cl, func(m Tick, _ *client.Received) {
		mu.Lock()
		defer mu.Unlock()
		received = append(received, m.N)
	})
	_, err := cl.Subscribe(t.Context(), "clock", nil)
	require.NoError(t, err)
	return cl, func() []int {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(received)
	}
}

func publishTick(t testing.TB, c *routertest.Cluster, node, n int) {
	t.Helper()
	assert.NoError(t, c.App(node).(interface{ publish(n int) error }).publish(n))
}

// A clockNode serves the router over WebSocket and plain HTTP.
type clockNode struct {
	http.ServeMux
	*router.Router
}

func (n *clockNode) ServeHTTP(w http.ResponseWriter, req *http.Request) { n.ServeMux.ServeHTTP(w, req) }

// publish tries again until the tick is stored, which it is once.
func (n *clockNode) publish(tick int) (err error) {
	for range 100 {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		err = n.Publish("clock", Tick{tick}, router.Stored(ctx, nil), router.IdempotencyKey(fmt.Sprint(tick)))
		cancel()
		if err == nil {
			break
		}
		time.Sleep(time.Second)
	}
	return err
}

func newClockNode(b broker.HistoryBroker) routertest.App {
	n := &clockNode{Router: newClock(b).(*router.Router)}
	n.Handle("/live", n.Router)
	n.Handle("/live/http", n.HTTPFallback(nil))
	return n
}

// Every verb disturbs two clients, one of which uses plain HTTP, and both receive everything.
func TestCluster_VerbsDisturbAndHeal(t *testing.T) {
	for name, disturb := range map[string]func(*routertest.Cluster){
		"cut": func(c *routertest.Cluster) { c.Cut("ann"); c.Cut("bob") },
		"stall": func(c *routertest.Cluster) {
			c.Stall("ann", 20*time.Second)
			c.Stall("bob", time.Hour)
			c.Abandon("bob")
		},
		"abandon":   func(c *routertest.Cluster) { c.Abandon("ann"); c.Abandon("node2") },
		"kill":      func(c *routertest.Cluster) { c.Kill(2); c.Wait(10 * time.Second); c.Start(2) },
		"shutdown":  func(c *routertest.Cluster) { c.Shutdown(2); c.Wait(10 * time.Second); c.Start(2) },
		"deploy":    func(c *routertest.Cluster) { c.Deploy() },
		"fail over": func(c *routertest.Cluster) { c.FailOver(0) },
		"cut off":   func(c *routertest.Cluster) { c.CutOff(2); c.Wait(10 * time.Second); c.Reconnect(2) },
		"pause":     func(c *routertest.Cluster) { c.Pause(2, 5*time.Second); c.Pause(2, 20*time.Second) },
		"random":    func(c *routertest.Cluster) { c.RandomFaults(time.Minute) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := routertest.NewCluster(t, newClockNode, &routertest.ClusterOptions{Nodes: 2, Path: "/live"})
				_, ann := connect(t, c, "ann", c.Transport("ann"))
				_, bob := connect(t, c, "bob", fallback.New("http://cluster.test/live/http", &fallback.Options{Base: onlyHTTP{c.Transport("bob")}}))
				publishTick(t, c, 1, 1)
				disturb(c)
				publishTick(t, c, 1, 2)
				c.Heal()
				publishTick(t, c, 2, 3)
				c.Wait(2 * time.Minute)
				assert.Equal(t, []int{1, 2, 3}, ann())
				assert.Equal(t, []int{1, 2, 3}, bob())
			})
		})
	}
}

// onlyHTTP is a network in which WebSocket does not work.
type onlyHTTP struct{ http.RoundTripper }

func (o onlyHTTP) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Header.Get("Upgrade") != "" {
		return nil, errors.New("a proxy has closed the connection")
	}
	return o.RoundTripper.RoundTrip(req)
}

func TestCluster_SeedSelectsRandomFaults(t *testing.T) {
	occurred := func(seed uint64) (what map[string]int) {
		synctest.Test(t, func(t *testing.T) {
			c := routertest.NewCluster(t, newClock, &routertest.ClusterOptions{Seed: seed})
			c.RandomFaults(5 * time.Minute)
			what = c.Store.Occurred()
		})
		return what
	}
	first := occurred(1)
	assert.Equal(t, first, occurred(1))
	assert.NotEqual(t, first, occurred(2))
	assert.True(t, first["crashed"] > 0 || first["cut off"] > 0 || first["failed over"] > 0, "%v", first)
	assert.False(t, strings.Contains(fmt.Sprint(first), "lost answer"))
}
