package postgres

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/postgrestest"
	"github.com/penstock-go/penstock/internal/testscale"
)

// An outboxCheck publishes in transactions that write first and publish later, one packet or two,
// that commit late, and of which one of ten is rolled back, while two nodes move publications to
// the histories. Then it compares the histories with what the transactions have written.
type outboxCheck struct {
	pool     *pgxpool.Pool
	schema   string
	rules    transactionRules
	lasts    time.Duration
	disturb  func(ctx context.Context) // while the publishers run; nil is nothing
	wait     time.Duration             // for the last publications
	appended bool                      // publishers also call Append
}

const (
	checkTopics     = 6
	checkPublishers = 16
)

func checkTopic(n int) string { return fmt.Sprint("topic ", n) }

// run returns the first violation that it finds.
func (c *outboxCheck) run(t *testing.T) error {
	t.Helper()
	_, err := c.pool.Exec(t.Context(), "CREATE TABLE "+c.schema+".written (topic int, packet text)")
	require.NoError(t, err)
	var nodes []*node
	for range 2 {
		b := NewBroker(c.pool, &Options{Schema: c.schema})
		b.rules = c.rules
		nodes = append(nodes, connect(t, b))
	}
	ctx, cancel := context.WithTimeout(t.Context(), c.lasts)
	defer cancel()
	var running sync.WaitGroup
	for _, n := range nodes {
		running.Go(func() { wakeAll(ctx, n) })
	}
	for p := range checkPublishers {
		running.Go(func() { c.publish(ctx, nodes[p%2], p) })
	}
	if c.disturb != nil {
		running.Go(func() { c.disturb(ctx) })
	}
	running.Wait()
	deadline := time.Now().Add(c.wait)
	for {
		err := c.check(t, nodes[0])
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// wakeAll makes a node look at all shards.
func wakeAll(ctx context.Context, n *node) {
	for ctx.Err() == nil {
		for shard := range shards {
			n.HistoryNode.(*historyNode).sequencer.wake(shard)
		}
		time.Sleep(time.Duration(rand.IntN(3)) * time.Millisecond)
	}
}

// publish publishes in one transaction after the other.
func (c *outboxCheck) publish(ctx context.Context, n *node, publisher int) {
	for k := 0; ctx.Err() == nil; k++ {
		topic := rand.IntN(checkTopics)
		packet := fmt.Sprintf("%d %d", publisher, k)
		if c.appended && k%5 == 4 {
			if _, err := n.Append(context.Background(), broker.Append{Topic: checkTopic(topic), Retention: keepAll, Packet: []byte(packet)}); err == nil {
				_, _ = c.pool.Exec(context.Background(), "INSERT INTO "+c.schema+".written VALUES ($1, $2)", topic, packet)
			}
			continue
		}
		packets := []string{packet}
		if rand.IntN(2) == 0 {
			k++
			packets = append(packets, fmt.Sprintf("%d %d", publisher, k))
		}
		_ = c.transaction(context.Background(), topic, packets)
	}
}

// transaction publishes packets to a topic, or rolls back. An error may mean either.
func (c *outboxCheck) transaction(ctx context.Context, topic int, packets []string) error {
	return pgx.BeginFunc(ctx, c.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "INSERT INTO "+c.schema+".written SELECT $1, unnest($2::text[])", topic, packets); err != nil {
			return err
		}
		pause := time.Duration(0)
		if rand.IntN(3) == 0 { // others begin later and commit earlier
			pause = time.Duration(rand.IntN(40)) * time.Millisecond
		}
		time.Sleep(pause / 2)
		for _, packet := range packets {
			if err := (Outbox{c.schema}).Publish(ctx, tx, broker.Append{Topic: checkTopic(topic), Retention: keepAll, Packet: []byte(packet)}); err != nil {
				return err
			}
		}
		time.Sleep(pause / 2)
		if rand.IntN(10) == 0 {
			return context.Canceled
		}
		return nil
	})
}

// check compares the histories with the table written.
func (c *outboxCheck) check(t *testing.T, n *node) error {
	written := map[string]bool{}
	rows, err := c.pool.Query(t.Context(), "SELECT topic, packet FROM "+c.schema+".written")
	if err != nil {
		return err
	}
	var topic int
	var packet string
	if _, err := pgx.ForEachRow(rows, []any{&topic, &packet}, func() error { written[fmt.Sprint(topic, " ", packet)] = true; return nil }); err != nil {
		return err
	}
	if len(written) < checkPublishers {
		return fmt.Errorf("only %d transactions have committed", len(written))
	}
	for topic := range checkTopics {
		page, err := n.Read(t.Context(), broker.Query{Topic: checkTopic(topic), Retention: keepAll, Limit: 1 << 20})
		if err != nil {
			return err
		}
		if err := checkTopicOrder(topic, page, written); err != nil {
			return err
		}
	}
	if len(written) > 0 {
		return fmt.Errorf("%d publications of committed transactions are missing", len(written))
	}
	return nil
}

// checkTopicOrder removes the publications of a topic from written.
func checkTopicOrder(topic int, page broker.Page, written map[string]bool) error {
	last := map[int]int{} // of each publisher
	for i, p := range page.Publications {
		if p.Position.Offset != uint64(i+1) {
			return fmt.Errorf("topic %d has offset %d after %d", topic, p.Position.Offset, i)
		}
		key := fmt.Sprint(topic, " ", string(p.Packet))
		if !written[key] {
			return fmt.Errorf("%q is stored twice, or its transaction was rolled back", key)
		}
		delete(written, key)
		var publisher, k int
		if _, err := fmt.Sscan(string(p.Packet), &publisher, &k); err != nil {
			return err
		}
		if k < last[publisher] {
			return fmt.Errorf("topic %d: publication %d of publisher %d comes after %d", topic, k, publisher, last[publisher])
		}
		last[publisher] = k
	}
	if page.Position.Offset != uint64(len(page.Publications)) {
		return fmt.Errorf("topic %d has %d publications at offset %d", topic, len(page.Publications), page.Position.Offset)
	}
	return nil
}

func TestOutbox_CommittedIsStoredOnceInOrder(t *testing.T) {
	t.Parallel()
	pool, schema := newSchema(t)
	c := &outboxCheck{pool: pool, schema: schema, rules: sequencingRules(), lasts: testscale.Pick(2*time.Second, 8*time.Second), wait: 20 * time.Second, appended: true}
	c.rules.forgetSnapshot = time.Hour // nothing but the rule finds what commits late
	require.NoError(t, c.run(t))
	assert.Zero(t, outboxRows(t, pool, schema))
}

// TestOutbox_CommittedIsStoredOnceAfterKill kills processes of the server.
func TestOutbox_CommittedIsStoredOnceAfterKill(t *testing.T) {
	t.Parallel()
	server := postgrestest.Start(t)
	pool := openPool(t, server.URL())
	require.NoError(t, Migrate(t.Context(), pool, "orders"))
	kills := 0
	c := &outboxCheck{pool: pool, schema: "orders", rules: sequencingRules(), lasts: testscale.Pick(4*time.Second, 8*time.Second), wait: 30 * time.Second}
	c.disturb = func(ctx context.Context) {
		for ctx.Err() == nil {
			time.Sleep(time.Second)
			var pid int
			err := pool.QueryRow(ctx, `SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()
				ORDER BY query LIKE '%outbox%' DESC, random() LIMIT 1`).Scan(&pid)
			if err == nil {
				server.KillBackend(pid)
				kills++
			}
		}
	}
	require.NoError(t, c.run(t))
	assert.Positive(t, kills)
	assert.Zero(t, outboxRows(t, pool, "orders"))
}
