package redis

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/redis/internal/pubsub"
	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/redistest"
	"github.com/penstock-go/penstock/internal/testscale"
)

// readInvented reads names on which there is no publication.
func (n *observedNode) readInvented(t *testing.T, names int) {
	t.Helper()
	const readers = 10
	var reading sync.WaitGroup
	for reader := range readers {
		reading.Go(func() {
			for i := reader; i < names; i += readers {
				name := fmt.Sprint("invented ", i)
				var page broker.Page
				var state broker.StatePart
				patiently(t, func() (err error) {
					page, err = n.Read(t.Context(), broker.Query{Topic: name, Retention: retention})
					return err
				})
				patiently(t, func() (err error) {
					state, err = n.ReadState(t.Context(), broker.StateQuery{Topic: name, Retention: retention})
					return err
				})
				assert.NotEmpty(t, page.Position.Epoch)
				assert.Equal(t, page.Position, state.Position)
			}
		})
	}
	reading.Wait()
}

// patiently makes a call that may time out on a busy machine.
func patiently(t *testing.T, call func() error) {
	t.Helper()
	var err error
	for range 10 {
		if err = call(); err == nil {
			return
		}
	}
	assert.NoError(t, err)
}

func TestHistory_ReadingCreatesNoTopic(t *testing.T) {
	t.Parallel()
	names := testscale.Tiers(300, 3000, 10_000)
	server := redistest.Start(t)
	n, admin := connectHistory(t, server.Client(t)), server.Client(t)
	n.readInvented(t, names)
	keys := admin.DBSize(t.Context()).Val()
	assert.LessOrEqual(t, keys, int64(pubsub.Partitions))
	for _, key := range admin.Keys(t.Context(), "*").Val() {
		assert.EqualValues(t, 3, admin.HLen(t.Context(), key).Val(), key)
		assert.Greater(t, admin.PTTL(t.Context(), key).Val(), 24*time.Hour, key)
	}
	n.readInvented(t, names)
	assert.Equal(t, keys, admin.DBSize(t.Context()).Val())
}

// TestHistory_UnusedTopicIsReadWhenMemoryIsFull needs a record of the partition.
func TestHistory_UnusedTopicIsReadWhenMemoryIsFull(t *testing.T) {
	t.Parallel()
	for _, plain := range []bool{false, true} {
		t.Run(fmt.Sprintf("plain scripts: %v", plain), func(t *testing.T) {
			server := redistest.Start(t)
			n := connectHistory(t, server.Client(t))
			n.scripts.read.IsPlain.Store(plain)
			require.NoError(t, server.Client(t).ConfigSet(t.Context(), "maxmemory", "1").Err())
			first, _ := n.page(t)
			again, _ := n.page(t)
			assert.NotEmpty(t, first.Position.Epoch)
			assert.Equal(t, first, again)
		})
	}
}

// otherTopic returns a topic in the partition of news.
func (n *observedNode) otherTopic(t *testing.T) string {
	t.Helper()
	for i := range 100_000 {
		if name := fmt.Sprint("other ", i); n.keysOf(name).first == n.keysOf("news").first {
			return name
		}
	}
	t.Fatal("no topic of the partition")
	return ""
}

// TestHistory_RecordOfPartitionIsBounded ages the epoch of a partition: the next topic that begins ends
// it, after it has taken it over itself.
func TestHistory_RecordOfPartitionIsBounded(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	n, admin := connectHistory(t, server.Client(t)), server.Client(t)
	record, other := n.keysOf("news").first, n.otherTopic(t)
	last := ""
	for i := range 5 {
		require.NoError(t, admin.Del(t.Context(), n.keysOf("news").channel.Name).Err())
		before, _ := n.page(t)
		idle, err := n.Read(t.Context(), broker.Query{Topic: other, Retention: retention})
		require.NoError(t, err)
		require.NoError(t, admin.HSet(t.Context(), record, "t", time.Now().Add(-25*time.Hour).UnixMilli()).Err())
		assert.Equal(t, before.Position.Epoch, n.publish(t, "1").Position.Epoch)
		after, err := n.Read(t.Context(), broker.Query{Topic: other, Retention: retention})
		require.NoError(t, err)
		assert.NotEqual(t, idle.Position, after.Position)
		assert.Equal(t, idle.Position, after.Previous)
		assert.NotEqual(t, last, after.Position.Epoch)
		last = after.Position.Epoch
		assert.LessOrEqual(t, admin.HLen(t.Context(), record).Val(), int64(4+2), i)
	}
}

// TestHistory_RestartEndsEpochOfUnusedTopic restarts a server that has saved its data.
func TestHistory_RestartEndsEpochOfUnusedTopic(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	n := connectHistory(t, server.Client(t))
	before, _ := n.page(t)
	require.NoError(t, server.Client(t).Save(t.Context()).Err())
	server.Restart()
	after, _ := n.page(t)
	assert.NotEqual(t, before.Position, after.Position)
	assert.Zero(t, after.Position.Offset)
	assert.Equal(t, before.Position, after.Previous, "nothing was published in it that is stored")
	assert.Equal(t, after.Position.Epoch, n.publish(t, "1").Position.Epoch)
	page, _ := n.page(t)
	assert.Equal(t, before.Position, page.Previous)
}
