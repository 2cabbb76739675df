package postgres

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/postgrestest"
	"github.com/penstock-go/penstock/internal/testscale"
)

// TestFailover_TwoPrimariesKeepOrder promotes a replica while the old primary continues for a
// second and uses more transaction IDs than the new one. Applications publish on both, and nodes
// with connections to both move publications of both to the histories.
func TestFailover_TwoPrimariesKeepOrder(t *testing.T) {
	testscale.FullOnly(t, "TestSequence_SnapshotOfAnotherServerIsNotUsed")
	t.Parallel()
	old := startServer(t)
	oldPool := openPool(t, old.URL())
	_, err := oldPool.Exec(t.Context(), "CREATE TABLE penstock.written (topic int, packet text)")
	require.NoError(t, err)
	promoted := old.StartReplica("replica")
	// One node stays with the old primary and ends with it. One moves: only it stores what the promoted
	// server has in its outbox, so that no other node corrects its mistakes.
	nodes := []*node{connect(t, NewBroker(oldPool, nil)), connectMoving(t, promoted, old)}
	reader := connect(t, NewBroker(openPool(t, promoted.URL()), &Options{PollInterval: time.Hour}))
	for topic := range checkTopics {
		for _, n := range nodes {
			n.follow(t, checkTopic(topic))
		}
		reader.Follow(checkTopic(topic))
	}

	ctx, cancel := context.WithCancel(t.Context())
	oldContext, cancelOld := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancelOld()
	defer cancel()
	for _, n := range nodes {
		running.Go(func() { wakeAll(ctx, n) })
	}
	publish := func(ctx context.Context, first int, servers ...*postgrestest.Server) {
		c := &outboxCheck{pool: ofAny(t, servers...), schema: DefaultSchema}
		for p := range 4 {
			running.Go(func() { c.publish(ctx, nil, first+p) })
		}
	}
	publish(oldContext, 0, old)
	publish(ctx, 4, promoted, old)
	time.Sleep(500 * time.Millisecond)
	running.Go(func() { useTransactionIDs(ctx, oldPool) })
	promoted.Promote()
	reader.eventuallyReads(t, checkTopic(0)) // which records the lineage
	publish(ctx, 8, promoted)
	time.Sleep(time.Second)
	cancelOld()
	old.Kill()
	for topic := range checkTopics {
		nodes[1].eventually(t, "following the new primary", func() bool { return nodes[1].following[checkTopic(topic)] > 1 })
		reader.eventually(t, "following", func() bool { return reader.following[checkTopic(topic)] > 0 })
	}
	time.Sleep(500 * time.Millisecond)
	cancel()
	running.Wait()

	c := &outboxCheck{pool: openPool(t, promoted.URL()), schema: DefaultSchema}
	require.EventuallyWithT(t, func(collect *assert.CollectT) { assert.NoError(collect, c.check(t, reader)) }, 10*time.Second, 100*time.Millisecond)
	assert.Zero(t, outboxRows(t, c.pool, DefaultSchema))
	checkReaders(t, reader, append(nodes, reader))
}

// useTransactionIDs does so until the server ends, faster than all publications.
func useTransactionIDs(ctx context.Context, pool *pgxpool.Pool) {
	for {
		_, err := pool.Exec(ctx, "DO $$ BEGIN FOR i IN 1..200 LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$")
		if err != nil {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// connectMoving returns a node that uses the first of the servers that is a primary. It renews each
// connection after half a second or later, so that it has some to both for a while.
func connectMoving(t *testing.T, servers ...*postgrestest.Server) *node {
	config := ofAny(t, servers...).Config()
	config.MaxConnLifetime, config.MaxConnLifetimeJitter = 500*time.Millisecond, time.Second
	b := NewBroker(openConfig(t, config), nil)
	b.rules.forgetSnapshot = time.Hour // nothing but the rule finds what a wrong snapshot hides
	return connect(t, b)
}

// checkReaders compares what nodes have received with the histories of the promoted server: an
// offset is used twice only in another epoch, and nothing that is lost is in the present one.
func checkReaders(t *testing.T, reader *node, nodes []*node) {
	lost, present := 0, make([]int, len(nodes))
	for number := range checkTopics {
		topic := checkTopic(number)
		page, _ := reader.page(t, topic)
		packets := map[broker.Position]string{}
		for _, p := range page.Publications {
			packets[p.Position] = string(p.Packet)
		}
		stored := len(packets)
		for i, n := range nodes {
			last := broker.Position{}
			n.mu.Lock()
			for _, p := range n.published[topic] {
				if p.Position.Epoch == last.Epoch {
					assert.Greater(t, p.Position.Offset, last.Offset, "node %d, %s", i, topic)
				}
				last = p.Position
				if last.Epoch == page.Position.Epoch {
					present[i]++
				}
				packet, isKnown := packets[p.Position]
				if isKnown {
					assert.Equal(t, packet, string(p.Packet), "node %d, %s, %v", i, topic, p.Position)
					continue
				}
				packets[p.Position] = string(p.Packet)
				assert.NotEqual(t, page.Position.Epoch, p.Position.Epoch, "node %d, %s: no notice that %q is lost", i, topic, p.Packet)
			}
			n.mu.Unlock()
		}
		lost += len(packets) - stored
	}
	for i, n := range present[1:] {
		assert.Positive(t, n, "node %d has received from the promoted server", i+1)
	}
	assert.Positive(t, lost, "the old primary has stored something after the promotion")
}
