package redis_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/redis"
	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/redistest"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

type price struct {
	Cents int `json:"cents"`
}

func (price) MessageType() string { return "PRICE" }

// TestRouter_PublishesWithoutServing publishes from a router that receives no request, as the worker in
// docs/guides/publishing.md does.
func TestRouter_PublishesWithoutServing(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	newRouter := func() *router.Router {
		r := router.New(&router.Options{
			Broker:       redis.NewBroker(server.Client(t)),
			Authenticate: func(*http.Request) (router.Identity, error) { return router.Identity{UserID: "ann"}, nil },
		})
		shutdownAfter(t, r, func() {})
		everyone := func(*router.Context, router.TopicMatch) error { return nil }
		router.Topic(r, "stored", &router.TopicOptions{Authorize: everyone, History: router.History{Messages: 10}})
		router.Topic(r, "plain", &router.TopicOptions{Authorize: everyone})
		return r
	}
	serving := newRouter()
	conn := routertest.Dial(t, serving)
	routertest.Subscribe(conn, "stored")
	routertest.Subscribe(conn, "plain")

	worker := newRouter()
	for _, topic := range []string{"stored", "plain"} { // a subscription begins when Redis has confirmed it
		before := conn.Pending()
		require.Eventually(t, func() bool {
			assert.NoError(t, worker.Publish(topic, price{0}))
			return conn.Pending() > before
		}, 10*time.Second, 20*time.Millisecond)
	}
	receive := func(want price) {
		t.Helper()
		got := routertest.Receive[price](conn)
		for got == (price{0}) {
			got = routertest.Receive[price](conn)
		}
		assert.Equal(t, want, got)
	}

	var first, retry broker.Position
	require.NoError(t, worker.Publish("stored", price{1}, router.IdempotencyKey("1"), router.Stored(t.Context(), &first)))
	require.NoError(t, worker.Publish("stored", price{1}, router.IdempotencyKey("1"), router.Stored(t.Context(), &retry)))
	assert.Equal(t, first, retry)
	receive(price{1})
	require.NoError(t, worker.Publish("plain", price{2}))
	receive(price{2})
	conns, err := worker.SendToUser("", "ann", price{3})
	require.NoError(t, err)
	assert.Zero(t, conns, "the worker has no connections")
	require.NoError(t, worker.Shutdown(t.Context()))
	receive(price{3})

	undeclared := router.New(&router.Options{Broker: redis.NewBroker(server.Client(t))})
	shutdownAfter(t, undeclared, func() {})
	require.NoError(t, undeclared.Publish("stored", price{4}))
	receive(price{4})
	_, current, err := serving.ReadHistory(t.Context(), "stored", broker.Query{Limit: 1})
	require.NoError(t, err)
	assert.Equal(t, first, current, "a router that does not declare the history stores nothing")
}
