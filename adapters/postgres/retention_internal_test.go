package postgres

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/broker"
)

// TestRetention_RingIsResized changes how many publications a topic keeps, and looks at its rows.
func TestRetention_RingIsResized(t *testing.T) {
	t.Parallel()
	pool, schema := newSchema(t)
	n := connect(t, NewBroker(pool, &Options{Schema: schema}))
	published := 0
	publish := func(messages, number int) {
		for range number {
			published++
			a := broker.Append{Topic: "news", Retention: broker.Retention{Messages: messages, Age: time.Hour}, Packet: fmt.Append(nil, published)}
			_, err := n.Append(t.Context(), a)
			require.NoError(t, err)
		}
	}
	check := func(messages, slots int) {
		t.Helper()
		page, packets := n.page(t, "news")
		require.EqualValues(t, published, page.Position.Offset)
		require.GreaterOrEqual(t, len(packets), min(messages, published))
		for i, packet := range packets {
			assert.Equal(t, fmt.Sprint(published-len(packets)+i+1), packet)
		}
		var rows, ring int
		require.NoError(t, pool.QueryRow(t.Context(), "SELECT (SELECT count(*) FROM "+schema+".history), slots FROM "+schema+".topic").Scan(&rows, &ring))
		assert.Equal(t, slots, ring)
		assert.LessOrEqual(t, rows, slots)
	}
	publish(20, 50)
	check(20, 32)
	publish(60, 1) // 21 are left
	check(21, 64)
	publish(60, 100)
	check(60, 64)
	publish(17, 1) // not much smaller
	check(17, 64)
	publish(5, 1)
	check(5, 8)
	publish(5, 20)
	check(5, 8)
}

// TestMaintain_DeletesExpiredRows lets publications expire.
func TestMaintain_DeletesExpiredRows(t *testing.T) {
	t.Parallel()
	pool, schema := newSchema(t)
	n := connect(t, NewBroker(pool, &Options{Schema: schema}))
	a := broker.Append{Topic: "news", Retention: broker.Retention{Messages: 10, Age: time.Millisecond}, StateKey: "key", IdempotencyKey: "key"}
	_, err := n.Append(t.Context(), a)
	require.NoError(t, err)
	_, err = n.StoreValue(t.Context(), "key", nil, 0, time.Millisecond)
	require.NoError(t, err)
	_, err = pool.Exec(t.Context(), "UPDATE "+schema+".idempotency SET expires_at = now()")
	require.NoError(t, err)
	time.Sleep(5 * time.Millisecond)
	q := n.HistoryNode.(*historyNode).sequencer
	require.NoError(t, q.deleteExpired())
	require.NoError(t, q.deleteAll(sweepSQL()))
	for _, table := range []string{"history", "state", "idempotency", "value"} {
		var rows int
		require.NoError(t, pool.QueryRow(t.Context(), "SELECT count(*) FROM "+schema+"."+table).Scan(&rows))
		assert.Zero(t, rows, table)
	}
	page, _ := n.page(t, "news")
	assert.EqualValues(t, 1, page.Position.Offset, "the topic is kept")
}

// TestMaintain_ForgottenTopicBeginsAnotherEpoch deletes a topic whose lifetime has ended.
func TestMaintain_ForgottenTopicBeginsAnotherEpoch(t *testing.T) {
	t.Parallel()
	pool, schema := newSchema(t)
	n := connect(t, NewBroker(pool, &Options{Schema: schema}))
	s := n.HistoryNode.(*historyNode).store
	shard, unused := shardOf("news"), ""
	for i := 0; unused == ""; i++ {
		if name := fmt.Sprint("unused ", i); shardOf(name) == shard {
			unused = name
		}
	}
	n.publish(t, "news", "1")
	before, _ := n.page(t, "news")
	first, _ := n.page(t, unused)
	require.Equal(t, before.Position.Epoch, first.Position.Epoch)
	expire := func() {
		_, err := pool.Exec(t.Context(), "UPDATE "+schema+".topic SET expires_at = now() - interval '1 second'")
		require.NoError(t, err)
	}
	expire()
	_, err := s.forget(t.Context(), shard)
	require.NoError(t, err)
	kept, _ := n.page(t, "news")
	assert.Equal(t, before.Position, kept.Position, "the first epoch is not a day old")

	expire()
	_, err = pool.Exec(t.Context(), "UPDATE "+schema+".shard SET forgot_at = now() - interval '25 hours'")
	require.NoError(t, err)
	_, err = s.forget(t.Context(), shard)
	require.NoError(t, err)
	after, packets := n.page(t, "news")
	assert.Empty(t, packets)
	assert.Zero(t, after.Position.Offset)
	assert.NotEqual(t, before.Position.Epoch, after.Position.Epoch)
	assert.Zero(t, after.Previous, "where its epoch ended is not known")
	other, _ := n.page(t, unused)
	assert.Equal(t, after.Position, other.Position)
	assert.Equal(t, first.Position, other.Previous)
	assert.Equal(t, broker.Position{Epoch: after.Position.Epoch, Offset: 1}, n.publish(t, "news", "again").Position)

	// A topic of an earlier epoch needs no other first epoch.
	_, err = pool.Exec(t.Context(), "UPDATE "+schema+".topic SET epoch = 'earlier'")
	require.NoError(t, err)
	expire()
	_, err = s.forget(t.Context(), shard)
	require.NoError(t, err)
	again, _ := n.page(t, "news")
	assert.Equal(t, after.Position, again.Position)
}

// TestRetention_BytesRemoveRows checks that packets beyond Retention.Bytes do not stay in the
// table.
func TestRetention_BytesRemoveRows(t *testing.T) {
	t.Parallel()
	pool, schema := newSchema(t)
	n := connect(t, NewBroker(pool, &Options{Schema: schema}))
	for i := range 100 {
		a := broker.Append{Topic: "news", Retention: broker.Retention{Messages: 1000, Age: time.Hour, Bytes: 1000}, Packet: make([]byte, 100)}
		_, err := n.Append(t.Context(), a)
		require.NoError(t, err)
		_, packets := n.page(t, "news")
		require.Len(t, packets, min(i+1, 10))
	}
	var stored int
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT sum(octet_length(packet)) FROM "+schema+".history").Scan(&stored))
	assert.LessOrEqual(t, stored, 2*1000+100)

	_, err := n.Append(t.Context(), broker.Append{Topic: "news", Retention: broker.Retention{Messages: 1000, Age: time.Hour, Bytes: 1000}, Packet: make([]byte, 1001)})
	require.NoError(t, err)
	page, packets := n.page(t, "news")
	assert.EqualValues(t, 101, page.Position.Offset)
	assert.Empty(t, packets, "a packet that is larger than Bytes is not kept")
}
