package postgres

import (
	"context"
	"database/sql"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
)

// keepAll is a retention that keeps what a test publishes.
var keepAll = broker.Retention{Messages: 1 << 17, Age: time.Hour}

// A node records what it receives of the topics that it follows.
type node struct {
	broker.HistoryNode

	mu        sync.Mutex
	published map[string][]broker.Publication
	following map[string]int
}

func connect(t testing.TB, b *Broker) *node {
	n := &node{published: map[string][]broker.Publication{}, following: map[string]int{}}
	n.HistoryNode = b.ConnectHistory(broker.Callbacks{}, broker.HistoryCallbacks{
		Published: func(topic string, p broker.Publication) {
			p.Packet = append([]byte{}, p.Packet...)
			n.mu.Lock()
			defer n.mu.Unlock()
			n.published[topic] = append(n.published[topic], p)
		},
		Following: func(topic string) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.following[topic]++
		},
	})
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = n.Close(ctx)
	})
	return n
}

// eventually waits until happened, which is called with the lock held, returns true.
func (n *node) eventually(t testing.TB, event string, happened func() bool) {
	t.Helper()
	require.Eventually(t, func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return happened()
	}, time.Minute, 2*time.Millisecond, event)
}

func (n *node) follow(t testing.TB, topic string) {
	t.Helper()
	n.Follow(topic)
	n.eventually(t, "following", func() bool { return n.following[topic] > 0 })
}

// packets returns what was received of a topic.
func (n *node) packets(topic string) (packets []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range n.published[topic] {
		packets = append(packets, string(p.Packet))
	}
	return packets
}

// page reads a topic.
func (n *node) page(t testing.TB, topic string) (broker.Page, []string) {
	t.Helper()
	page, err := n.Read(t.Context(), broker.Query{Topic: topic, Retention: keepAll, Limit: 1 << 20})
	require.NoError(t, err)
	return page, packetsOf(page)
}

func packetsOf(page broker.Page) (packets []string) {
	for _, p := range page.Publications {
		packets = append(packets, string(p.Packet))
	}
	return packets
}

func (n *node) publish(t testing.TB, topic, packet string) broker.Appended {
	t.Helper()
	appended, err := n.Append(t.Context(), broker.Append{Topic: topic, Retention: keepAll, Packet: []byte(packet)})
	require.NoError(t, err)
	return appended
}

func TestOutbox_PublishesIfTransactionCommits(t *testing.T) {
	t.Parallel()
	pool, schema := newSchema(t)
	n, o := connect(t, NewBroker(pool, &Options{Schema: schema})), Outbox{schema}
	n.follow(t, "news")
	publish := func(fail error, packets ...string) error {
		return o.InTx(t.Context(), pool, func(ctx context.Context, tx pgx.Tx) error {
			for _, packet := range packets {
				require.NoError(t, o.Publish(ctx, tx, broker.Append{Topic: "news", Retention: keepAll, Packet: []byte(packet)}))
			}
			return fail
		})
	}
	failure := errors.New("the order is invalid")
	require.ErrorIs(t, publish(failure, "rolled back"), failure)
	require.NoError(t, publish(nil, "1", "2"))
	n.eventually(t, "publications", func() bool { return len(n.published["news"]) == 2 })
	n.publish(t, "news", "3")
	page, packets := n.page(t, "news")
	assert.Equal(t, []string{"1", "2", "3"}, packets)
	assert.EqualValues(t, 3, page.Position.Offset)
	n.eventually(t, "all", func() bool { return len(n.published["news"]) == 3 })
	assert.Equal(t, []string{"1", "2", "3"}, n.packets("news"))
	assert.Zero(t, outboxRows(t, pool, schema))
}

// outboxRows returns how many publications wait.
func outboxRows(t testing.TB, pool *pgxpool.Pool, schema string) (rows int) {
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT count(*) FROM "+schema+".outbox").Scan(&rows))
	return rows
}

func TestOutbox_DatabaseSQL(t *testing.T) {
	t.Parallel()
	pool, schema := newSchema(t)
	n, o := connect(t, NewBroker(pool, &Options{Schema: schema})), Outbox{schema}
	n.follow(t, "news")
	db, err := sql.Open("pgx", pool.Config().ConnString())
	require.NoError(t, err)
	defer func() { _ = db.Close() }()
	for _, commit := range []bool{false, true} {
		tx, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		a := broker.Append{
			Topic: "news", Packet: []byte{0, 1}, Retention: broker.Retention{Messages: 3, Age: time.Hour, Bytes: 100},
			IdempotencyKey: "key", StateKey: "state\x00",
		}
		require.NoError(t, o.PublishSQL(t.Context(), tx, a))
		if commit {
			require.NoError(t, tx.Commit())
		} else {
			require.NoError(t, tx.Rollback())
		}
	}
	n.eventually(t, "publication without a wake-up", func() bool { return len(n.published["news"]) == 1 })
	p := n.published["news"][0]
	assert.Equal(t, []byte{0, 1}, p.Packet)
	assert.Equal(t, "state\x00", p.StateKey)
	duplicate, err := n.Append(t.Context(), broker.Append{Topic: "news", IdempotencyKey: "key"})
	require.NoError(t, err)
	assert.Equal(t, broker.Appended{Position: p.Position, Duplicate: true}, duplicate)
}

func TestOutbox_MissingSchemaIsExplained(t *testing.T) {
	t.Parallel()
	pool, _ := newSchema(t)
	err := Outbox{"missing"}.InTx(t.Context(), pool, func(ctx context.Context, tx pgx.Tx) error {
		return Outbox{"missing"}.Publish(ctx, tx, broker.Append{Topic: "news"})
	})
	assert.Equal(t, errors.FailedPrecondition, errors.CodeOf(err))
	require.ErrorContains(t, err, "postgres.Migrate")
	n := connect(t, NewBroker(pool, &Options{Schema: "missing"}))
	_, err = n.Append(t.Context(), broker.Append{Topic: "news"})
	assert.Equal(t, errors.FailedPrecondition, errors.CodeOf(err), err)
	_, err = n.Read(t.Context(), broker.Query{Topic: "news"})
	assert.Equal(t, errors.FailedPrecondition, errors.CodeOf(err), err)
}

// TestOutbox_OpenTransactionDelaysOnlyItself leaves a transaction open that has published.
func TestOutbox_OpenTransactionDelaysOnlyItself(t *testing.T) {
	t.Parallel()
	pool, schema := newSchema(t)
	n, o := connect(t, NewBroker(pool, &Options{Schema: schema})), Outbox{schema}
	n.follow(t, "news")
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(t.Context()) }()
	require.NoError(t, o.Publish(t.Context(), tx, broker.Append{Topic: "news", Retention: keepAll, Packet: []byte("late")}))
	for _, packet := range []string{"1", "2", "3"} {
		require.NoError(t, o.InTx(t.Context(), pool, func(ctx context.Context, tx pgx.Tx) error {
			return o.Publish(ctx, tx, broker.Append{Topic: "news", Retention: keepAll, Packet: []byte(packet)})
		}))
		n.eventually(t, packet, func() bool {
			all := n.published["news"]
			return len(all) > 0 && string(all[len(all)-1].Packet) == packet
		})
	}
	require.NoError(t, tx.Commit(t.Context()))
	n.eventually(t, "late", func() bool { return len(n.published["news"]) == 4 })
	assert.Equal(t, []string{"1", "2", "3", "late"}, n.packets("news"))
}
