package postgres

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

type orderPaid struct {
	Order string `json:"order"`
	Cents int    `json:"cents"`
}

func (orderPaid) MessageType() string     { return "ORDER_PAID" }
func (o orderPaid) ConflationKey() string { return o.Order }

// newRouter returns a router on PostgreSQL. Clients subscribe to orders/1 when they connect.
func newRouter(t testing.TB, b *Broker) *router.Router {
	r := router.New(&router.Options{Broker: b, OnOpen: func(_ context.Context, c *router.Conn) error { return c.Subscribe("orders/1") }})
	router.Topic(r, "orders/{customer}", &router.TopicOptions{History: router.History{Messages: 10}})
	t.Cleanup(func() { _ = r.Shutdown(context.Background()) })
	return r
}

// A ping is published until a subscription has begun.
type ping struct{}

func (ping) MessageType() string { return "PING" }

// awaitSubscription returns the offset of the last message that the client has received.
func awaitSubscription(t testing.TB, r *router.Router, client *routertest.Conn) (offset uint64) {
	t.Helper()
	var at broker.Position
	require.Eventually(t, func() bool {
		assert.NoError(t, r.Publish("orders/1", ping{}, router.Stored(t.Context(), &at)))
		return client.Pending() > 0
	}, time.Minute, 20*time.Millisecond)
	last := fmt.Sprint("last ", at.Offset) // what is still on its way comes before it
	require.NoError(t, r.Publish("orders/1", orderPaid{last, 0}, router.Removed(), router.Stored(t.Context(), &at)))
	for frame := client.Next(); !strings.Contains(frame.Type, "ORDER_PAID"); frame = client.Next() {
	}
	return at.Offset
}

func TestPublish_RouterAndSQLFunction(t *testing.T) {
	t.Parallel()
	pool, schema := newSchema(t)
	r, o := newRouter(t, NewBroker(pool, &Options{Schema: schema})), Outbox{schema}
	client := routertest.Dial(t, r)
	before := awaitSubscription(t, r, client)

	a, err := r.PrepareAppend("orders/1", orderPaid{"a", 100})
	require.NoError(t, err)
	require.NoError(t, o.InTx(t.Context(), pool, func(ctx context.Context, tx pgx.Tx) error { return o.Publish(ctx, tx, a) }))
	assert.Equal(t, orderPaid{"a", 100}, routertest.Receive[orderPaid](client))

	_, err = pool.Exec(t.Context(), "SELECT "+schema+`.publish('orders/1', 'ORDER_PAID', '{"order": "é", "cents": 200}', state_key => 'é')`)
	require.NoError(t, err)
	assert.Equal(t, orderPaid{"é", 200}, routertest.Receive[orderPaid](client))
	states, position, err := r.ReadState(t.Context(), "orders/1")
	require.NoError(t, err)
	assert.Len(t, states, 2)
	assert.Equal(t, before+2, position.Offset)

	for range 2 { // the second one is dropped
		_, err = pool.Exec(t.Context(), "SELECT "+schema+`.publish('orders/1', 'ORDER_PAID', '{"order": "é", "cents": 0}', state_key => 'é', removed => true, idempotency_key => 'k')`)
		require.NoError(t, err)
	}
	assert.Equal(t, orderPaid{"é", 0}, routertest.Receive[orderPaid](client))
	states, position, err = r.ReadState(t.Context(), "orders/1")
	require.NoError(t, err)
	assert.Len(t, states, 1)
	assert.Equal(t, before+3, position.Offset)

	var messages int
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT messages FROM "+schema+".topic").Scan(&messages))
	assert.Equal(t, 10, messages, "SQL keeps the retention")
}

// TestPublishSQL_RefusesWhatARouterRefuses publishes names that would break readers of the topic.
func TestPublishSQL_RefusesWhatARouterRefuses(t *testing.T) {
	t.Parallel()
	pool, schema := newSchema(t)
	publish := func(topic, typ any) error {
		_, err := pool.Exec(t.Context(), "SELECT "+schema+".publish($1, $2, '{}')", topic, typ)
		return err
	}
	for _, topic := range []any{nil, "", strings.Repeat("x", 257), strings.Repeat("é", 129), strings.Repeat("x", 3000), "a\nb", "a\u0085b", "\x01", "\x7f"} {
		assert.ErrorContains(t, publish(topic, "ORDER_PAID"), "a topic's name must have 1 to 256 bytes", topic)
	}
	for _, typ := range []any{nil, "", strings.Repeat("T", 129)} {
		assert.ErrorContains(t, publish("orders/1", typ), "a type must have 1 to 128 bytes", typ)
	}
	for _, typ := range []any{"$ws:position", "__heartbeat", "ERROR", "RPC_ERROR"} {
		assert.ErrorContains(t, publish("orders/1", typ), "is reserved for the protocol", typ)
	}
	assert.Zero(t, outboxRows(t, pool, schema))
	for _, topic := range []string{"x", strings.Repeat("é", 128), "a b/\u00a0ü"} {
		assert.NoError(t, publish(topic, strings.Repeat("T", 128)), topic)
	}
	assert.Equal(t, 3, outboxRows(t, pool, schema))
}
