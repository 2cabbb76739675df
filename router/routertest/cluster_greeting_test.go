//go:build !js

package routertest_test

import (
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/client"
	"github.com/penstock-go/penstock/client/fallback"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// newNewsNode returns a node with a topic to which clients cannot subscribe themselves.
func newNewsNode(b broker.HistoryBroker) routertest.App {
	n := &clockNode{Router: router.New(&router.Options{
		Broker: b, Resume: router.ResumeOptions{Within: 2 * time.Minute},
	})}
	router.Topic(n.Router, "news", &router.TopicOptions{History: router.History{Messages: 100}})
	n.Handle("/ws", n.Router)
	n.Handle("/ws/http", n.HTTPFallback(nil))
	return n
}

// TestCluster_ClientThatGreetsANodeThatIsCutOff greets it by WebSocket and over plain HTTP. When the node has returned,
// the clients have sessions: they receive what is published while they are not connected.
func TestCluster_ClientThatGreetsANodeThatIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := routertest.NewCluster(t, newNewsNode, &routertest.ClusterOptions{Nodes: 1})
		c.CutOff(1)
		var mu sync.Mutex
		received := map[string][]int{}
		hosts := map[string]http.RoundTripper{
			"phone":  c.Transport("phone"),
			"office": fallback.New("http://cluster.test/ws/http", &fallback.Options{Base: onlyHTTP{c.Transport("office")}}),
		}
		for host, transport := range hosts {
			cl := c.Client(host, &client.Options{HTTPClient: &http.Client{Transport: transport}, Resume: true})
			client.On(cl, func(m Tick, _ *client.Received) {
				mu.Lock()
				defer mu.Unlock()
				received[host] = append(received[host], m.N)
			})
			require.NoError(t, cl.Connect(t.Context()))
		}
		c.Wait(time.Minute)
		c.Reconnect(1)
		c.Wait(20 * time.Second)
		node := c.App(1).(*clockNode).Router
		for conn := range node.Conns() {
			require.NoError(t, conn.Subscribe("news"))
		}
		c.Wait(time.Second)
		for host := range hosts {
			c.Stall(host, time.Minute)
		}
		c.Wait(50 * time.Second)
		assert.Zero(t, node.Stats().Conns, "connections are lost")
		require.NoError(t, node.Publish("news", Tick{1}, router.Stored(t.Context(), nil)))
		c.Wait(2 * time.Minute)
		mu.Lock()
		defer mu.Unlock()
		assert.Equal(t, map[string][]int{"phone": {1}, "office": {1}}, received)
	})
}
