package postgres

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
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

// grants are the statements of docs/guides/postgresql.md.
const grants = `
GRANT USAGE ON SCHEMA penstock TO nodes, publishers;
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA penstock TO nodes;
GRANT INSERT ON penstock.outbox TO publishers;
`

func TestPrivileges_LeastOnes(t *testing.T) {
	t.Parallel()
	pool, schema := newSchema(t)
	for _, role := range []string{"nodes", "publishers"} {
		name := schema + "_" + role
		_, err := pool.Exec(t.Context(), "CREATE ROLE "+name+" LOGIN NOSUPERUSER")
		require.NoError(t, err)
		t.Cleanup(func() { _, _ = pool.Exec(context.Background(), "DROP OWNED BY "+name+"; DROP ROLE "+name) })
	}
	text := replaceAll(grants, "SCHEMA penstock", "SCHEMA "+schema, "penstock.", schema+".", "nodes", schema+"_nodes", "publishers", schema+"_publishers")
	_, err := pool.Exec(t.Context(), text)
	require.NoError(t, err)
	as := func(role string) *pgxpool.Pool {
		config := pool.Config()
		config.ConnConfig.User = schema + "_" + role
		p, err := pgxpool.NewWithConfig(t.Context(), config)
		require.NoError(t, err)
		t.Cleanup(p.Close)
		return p
	}
	nodes, publishers, o := as("nodes"), as("publishers"), Outbox{schema}
	n := connect(t, NewBroker(nodes, &Options{Schema: schema}))
	n.follow(t, "orders/1")
	n.publish(t, "orders/1", "1")
	version, err := n.StoreValue(t.Context(), "key", []byte("value"), 0, 1<<40)
	require.NoError(t, err)
	assert.NotZero(t, version)
	require.NoError(t, n.HistoryNode.(*historyNode).sequencer.deleteExpired())

	require.NoError(t, o.InTx(t.Context(), publishers, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "SELECT "+schema+".publish('orders/1', 'ORDER_PAID')")
		require.NoError(t, err)
		return o.Publish(ctx, tx, appendOf("orders/1", "2"))
	}))
	n.eventually(t, "publications", func() bool { return len(n.published["orders/1"]) == 3 })
	for _, table := range []string{"history", "outbox", "value", "topic"} {
		_, err := publishers.Exec(t.Context(), "SELECT FROM "+schema+"."+table)
		require.ErrorContains(t, err, "permission denied", table)
	}
	_, err = nodes.Exec(t.Context(), "DROP TABLE "+schema+".history")
	require.ErrorContains(t, err, "must be owner")
}
