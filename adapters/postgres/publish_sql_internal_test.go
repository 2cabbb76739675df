package postgres

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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

func TestPublish_RouterAndSQLFunction(t *testing.T) {
	t.Parallel()
	pool, schema := newSchema(t)
	r, o := newRouter(t, NewBroker(pool, &Options{Schema: schema})), Outbox{schema}
	client := routertest.Dial(t, r)

	a, err := r.Publication("orders/1", orderPaid{"a", 100})
	require.NoError(t, err)
	require.NoError(t, o.InTx(t.Context(), pool, func(ctx context.Context, tx pgx.Tx) error { return o.Publish(ctx, tx, a) }))
	assert.Equal(t, orderPaid{"a", 100}, routertest.Receive[orderPaid](client))

	_, err = pool.Exec(t.Context(), "SELECT "+schema+`.publish('orders/1', 'ORDER_PAID', '{"order": "é", "cents": 200}', state_key => 'é')`)
	require.NoError(t, err)
	assert.Equal(t, orderPaid{"é", 200}, routertest.Receive[orderPaid](client))
	states, position, err := r.ReadState(t.Context(), "orders/1")
	require.NoError(t, err)
	assert.Len(t, states, 2)
	assert.EqualValues(t, 2, position.Offset)

	for range 2 { // the second one is dropped
		_, err = pool.Exec(t.Context(), "SELECT "+schema+`.publish('orders/1', 'ORDER_PAID', '{"order": "é", "cents": 0}', state_key => 'é', removed => true, idempotency_key => 'k')`)
		require.NoError(t, err)
	}
	assert.Equal(t, orderPaid{"é", 0}, routertest.Receive[orderPaid](client))
	states, position, err = r.ReadState(t.Context(), "orders/1")
	require.NoError(t, err)
	assert.Len(t, states, 1)
	assert.EqualValues(t, 3, position.Offset)

	var messages int
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT messages FROM "+schema+".topic").Scan(&messages))
	assert.Equal(t, 10, messages, "SQL keeps the retention")
}
