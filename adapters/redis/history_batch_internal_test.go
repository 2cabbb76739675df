package redis

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/redis/internal/pubsub"
	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/redistest"
)

// batchOf returns the topics with these names.
func batchOf(limit int, names ...string) broker.Batch {
	b := broker.Batch{MaxMessages: 1000, MaxBytes: 1 << 20}
	for _, name := range names {
		b.Topics = append(b.Topics, broker.TopicQuery{Topic: name, Retention: retention, Limit: limit})
	}
	return b
}

// TestHistory_BatchNeedsOneScriptPerPartition counts scripts, and reads another lineage in them.
func TestHistory_BatchNeedsOneScriptPerPartition(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	n := connectHistory(t, server.Client(t))
	var names []string
	for i := range 100 {
		names = append(names, fmt.Sprint("room/", i))
		if i%2 == 0 {
			_, err := n.Append(t.Context(), broker.Append{Topic: names[i], Retention: retention, Packet: []byte("1")})
			require.NoError(t, err)
		}
	}
	before, err := n.ReadAll(t.Context(), batchOf(0, names...))
	require.NoError(t, err)
	for _, limit := range []int{0, 10} {
		server.ResetStats(t)
		pages, err := n.ReadAll(t.Context(), batchOf(limit, names...))
		require.NoError(t, err)
		assert.EqualValues(t, pubsub.Connections, server.CommandStats(t)["evalsha"], limit)
		for i, page := range pages {
			require.NoError(t, page.Err)
			assert.Equal(t, before[i].Position, page.Position)
			assert.Len(t, page.Publications, min(limit, int(page.Position.Offset)))
		}
	}
	require.NoError(t, server.Client(t).Save(t.Context()).Err())
	server.Restart()
	pages, err := n.ReadAll(t.Context(), batchOf(10, names...))
	require.NoError(t, err)
	for i, page := range pages {
		require.NoError(t, page.Err)
		assert.NotEqual(t, before[i].Position.Epoch, page.Position.Epoch)
		assert.Equal(t, before[i].Position, page.Previous)
		assert.Len(t, page.Publications, int(page.Position.Offset))
	}
	single, _ := n.page(t)
	assert.Equal(t, single.Position.Epoch, n.publish(t, "1").Position.Epoch)
}

// TestHistory_BatchWithWrongKeys has topics whose keys are of another type, or contain something else.
func TestHistory_BatchWithWrongKeys(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	n, admin := connectHistory(t, server.Client(t)), server.Client(t)
	names := []string{"metadata", "stream", "frames", "intact"}
	for _, name := range names {
		_, err := n.Append(t.Context(), broker.Append{Topic: name, Retention: retention, Packet: []byte("1")})
		require.NoError(t, err)
	}
	require.NoError(t, admin.Set(t.Context(), n.keysOf("metadata").channel.Name, "x", 0).Err())
	require.NoError(t, admin.Set(t.Context(), n.keysOf("stream").stream, "x", 0).Err())
	require.NoError(t, admin.Del(t.Context(), n.keysOf("frames").stream).Err())
	require.NoError(t, admin.Do(t.Context(), "XADD", n.keysOf("frames").stream, "1-0", "p", "x").Err())
	for _, plain := range []bool{false, true} {
		n.scripts.batch.IsPlain.Store(plain)
		pages, err := n.ReadAll(t.Context(), batchOf(10, names...))
		require.NoError(t, err)
		for i := range 3 {
			require.Error(t, pages[i].Err, names[i])
		}
		require.NoError(t, pages[3].Err)
		assert.Len(t, pages[3].Publications, 1)
	}
}

// TestHistory_ReplicaIsNotUsed reads and publishes on a server that has become a replica.
func TestHistory_ReplicaIsNotUsed(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	n := connectHistory(t, server.Client(t))
	n.publish(t, "1")
	require.NoError(t, server.Client(t).ReplicaOf(t.Context(), "127.0.0.1", "1").Err())
	for _, plain := range []bool{false, true} {
		n.scripts.read.IsPlain.Store(plain)
		n.scripts.append.IsPlain.Store(plain)
		_, readErr := n.Read(t.Context(), broker.Query{Topic: "news", Retention: retention})
		_, appendErr := n.Append(t.Context(), broker.Append{Topic: "news", Retention: retention})
		for _, err := range []error{readErr, appendErr} {
			assert.Equal(t, errors.Unavailable, errors.CodeOf(err))
			require.ErrorContains(t, err, "READONLY")
		}
	}
	pages, err := n.ReadAll(t.Context(), batchOf(0, "news"))
	require.NoError(t, err)
	assert.Error(t, pages[0].Err)
}

// TestHistory_BatchKeepsMetadata reads topics in a server whose memory is full.
func TestHistory_BatchKeepsMetadata(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	n, admin := connectHistory(t, server.Client(t)), server.Client(t)
	position := n.publish(t, "1").Position
	keys := n.keysOf("news")
	require.NoError(t, admin.HSet(t.Context(), keys.channel.Name, "l", "x").Err(), "of another lineage")
	require.NoError(t, admin.PExpire(t.Context(), keys.channel.Name, time.Hour).Err())
	require.NoError(t, admin.ConfigSet(t.Context(), "maxmemory", "1").Err())
	for _, limit := range []int{0, 10} {
		pages, err := n.ReadAll(t.Context(), batchOf(limit, "news", "never used"))
		require.NoError(t, err)
		require.NoError(t, pages[0].Err)
		require.NoError(t, pages[1].Err)
		assert.Equal(t, position, pages[0].Previous)
		assert.Greater(t, admin.PTTL(t.Context(), keys.channel.Name).Val(), 24*time.Hour)
	}
}
