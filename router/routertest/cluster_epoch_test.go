//go:build !js

package routertest_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/client"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// newTickNode returns a node whose clients publish to all others.
func newTickNode(b broker.HistoryBroker) routertest.App {
	r := router.New(&router.Options{Broker: b})
	router.Topic(r, "ticks", &router.TopicOptions{
		Authorize: func(*router.Context, router.TopicMatch) error { return nil }, History: router.History{Messages: 100},
	})
	router.On(r, func(ctx *router.Context, m Tick) error { return ctx.Publish("ticks", m, router.Except(ctx.Conn())) })
	return r
}

// TestCluster_OwnPublicationOfAnEpochThatHasEnded asks after a failover for publications of the epoch before, of which the
// client has made one itself: all positions are of the epoch that the answer names, as the cluster checks.
func TestCluster_OwnPublicationOfAnEpochThatHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := routertest.NewCluster(t, newTickNode, &routertest.ClusterOptions{Nodes: 1})
		own, other := c.Client("own", nil), c.Client("other", nil)
		var received []int
		subscribe := func(since client.Position) *client.Subscription {
			s, err := own.Subscribe(t.Context(), "ticks", &client.SubscribeOptions{
				Since: since, Handlers: []client.Handler{client.HandlerFor(func(m Tick, _ *client.Received) { received = append(received, m.N) })},
			})
			require.NoError(t, err)
			c.Wait(time.Second)
			return s
		}
		first := subscribe(client.Position{})
		began := first.Position()
		for i, from := range []*client.Client{other, own, other} {
			require.NoError(t, client.Send(t.Context(), from, Tick{N: i}))
			c.Wait(time.Second)
		}
		require.Equal(t, []int{0, 2}, received)
		require.Zero(t, c.FailOver(0))
		second := subscribe(began) // before the node knows of the new epoch
		assert.Equal(t, []int{0, 2, 0, 2}, received)
		assert.Equal(t, first.Position(), second.Position())
		assert.NotEqual(t, began.Epoch, second.Position().Epoch)
	})
}
