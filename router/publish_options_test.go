package router_test

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// TestPublishOptions_ThatExcludeEachOther combines what cannot be combined, and asks topics for
// what they cannot do.
func TestPublishOptions_ThatExcludeEachOther(t *testing.T) {
	r := router.New(nil)
	router.Topic(r, "kept", &router.TopicOptions{History: router.History{Messages: 5}})
	var at broker.Position
	for name, opt := range map[string]router.PublishOption{
		"stored": router.Stored(t.Context(), &at), "key": router.IdempotencyKey("k"), "removed": router.Removed(),
	} {
		assert.Equal(t, errors.InvalidArgument, errors.CodeOf(r.Publish("kept", Quote{}, router.Local(), opt)), name)
		assert.Equal(t, errors.FailedPrecondition, errors.CodeOf(r.Publish("plain", Quote{}, opt)), name)
	}
	assert.Zero(t, at)
	require.NoError(t, r.Publish("kept", Quote{}, router.IdempotencyKey(""), router.Except(nil), router.Stored(t.Context(), &at)))
	assert.EqualValues(t, 1, at.Offset)
}

// TestPublishOptions_OfTwoNodes publishes with every option on a topic with a history, and on one
// without.
func TestPublishOptions_OfTwoNodes(t *testing.T) {
	for _, topic := range []string{"kept", "plain"} {
		runSynctest(t, topic, func(t *testing.T) {
			shared := memory.NewBroker()
			var nodes [2]*router.Router
			var clients [2]*routertest.Conn
			for i := range nodes {
				nodes[i] = router.New(&router.Options{Broker: shared})
				router.Topic(nodes[i], "kept", &router.TopicOptions{History: router.History{Messages: 5}})
				clients[i] = routertest.Dial(t, nodes[i])
				require.NoError(t, onlyConn(t, nodes[i]).Subscribe(topic))
			}
			synctest.Wait()
			pending := func(opts ...router.PublishOption) (n [2]int) {
				require.NoError(t, nodes[0].Publish(topic, Quote{}, opts...))
				synctest.Wait()
				for i, c := range clients {
					for ; c.Pending() > 0; n[i]++ {
						c.Next()
					}
				}
				return n
			}
			self := router.Except(onlyConn(t, nodes[0]))
			assert.Equal(t, [2]int{1, 1}, pending())
			assert.Equal(t, [2]int{0, 1}, pending(self))
			assert.Equal(t, [2]int{1, 0}, pending(router.Local()))
			assert.Equal(t, [2]int{0, 0}, pending(router.Local(), self))
		})
	}
}

// TestSubscribeOptions_Combined makes a client present on a topic whose state and history it receives.
func TestSubscribeOptions_Combined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := router.New(nil)
		router.Topic(r, "kept", &router.TopicOptions{History: router.History{Messages: 5}})
		client := routertest.Dial(t, r)
		c := onlyConn(t, r)
		for n := range 3 {
			require.NoError(t, r.Publish("kept", Quote{Symbol: "a", N: n}))
		}
		var recovery router.Recovery
		require.NoError(t, c.Subscribe("kept", router.CurrentState(nil), router.Present("Ann"), router.Since(broker.Position{}, &recovery)))
		assert.EqualValues(t, 3, recovery.Position.Offset)
		assert.Equal(t, 1, recovery.State)
		assert.Equal(t, 2, routertest.Receive[Quote](client).N)
		assert.Equal(t, "Ann", r.Presence("kept")[0].Info)
		assert.Equal(t, errors.FailedPrecondition, errors.CodeOf(c.Subscribe("plain", router.Since(broker.Position{}, nil))))
		assert.False(t, c.Subscribed("plain"))
	})
}
