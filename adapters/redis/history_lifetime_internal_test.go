package redis

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/redistest"
)

// TestHistory_ReadsKeepMetadata reads a topic whose publications have expired, when its metadata is
// about to expire. The memory of the server is full.
func TestHistory_ReadsKeepMetadata(t *testing.T) {
	t.Parallel()
	for _, plain := range []bool{false, true} {
		t.Run(fmt.Sprintf("plain scripts: %v", plain), func(t *testing.T) {
			server := redistest.Start(t)
			n, admin := connectHistory(t, server.Client(t)), server.Client(t)
			n.scripts.read.IsPlain.Store(plain)
			n.scripts.state.IsPlain.Store(plain)
			position := n.publish(t, "1").Position
			keys := n.keysOf("news")
			require.NoError(t, admin.Del(t.Context(), keys.stream).Err())
			require.NoError(t, admin.ConfigSet(t.Context(), "maxmemory", "1").Err())
			day := broker.Retention{Messages: 100, Age: 24 * time.Hour}
			for name, read := range map[string]func() (broker.Position, error){
				"position": func() (broker.Position, error) {
					page, err := n.Read(t.Context(), broker.Query{Topic: "news", Retention: day})
					return page.Position, err
				},
				"empty page": func() (broker.Position, error) {
					page, err := n.Read(t.Context(), broker.Query{Topic: "news", Retention: day, After: 1, Limit: 100})
					return page.Position, err
				},
				"state": func() (broker.Position, error) {
					state, err := n.ReadState(t.Context(), broker.StateQuery{Topic: "news", Retention: day})
					return state.Position, err
				},
			} {
				require.NoError(t, admin.PExpire(t.Context(), keys.channel.Name, time.Hour).Err())
				server.ResetStats(t)
				for range 10 {
					got, err := read()
					require.NoError(t, err, name)
					assert.Equal(t, position, got, name)
				}
				assert.EqualValues(t, 1, server.CommandStats(t)["pexpire"], name)
				lifetime := admin.PTTL(t.Context(), keys.channel.Name).Val()
				assert.InDelta(t, 55*time.Hour, lifetime, float64(time.Minute), name)
			}
		})
	}
}

// TestHistory_ReadsDoNotShortenLifetime reads with a shorter age than that of the publications.
func TestHistory_ReadsDoNotShortenLifetime(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	n, admin := connectHistory(t, server.Client(t)), server.Client(t)
	_, err := n.Append(t.Context(), broker.Append{Topic: "news", Retention: broker.Retention{Age: 100 * time.Hour}})
	require.NoError(t, err)
	keys := n.keysOf("news")
	before := admin.PTTL(t.Context(), keys.channel.Name).Val()
	n.read(t, broker.Query{})
	n.read(t, broker.Query{After: 1, Limit: 100})
	_, err = n.ReadState(t.Context(), broker.StateQuery{Topic: "news", Retention: retention})
	require.NoError(t, err)
	assert.InDelta(t, before, admin.PTTL(t.Context(), keys.channel.Name).Val(), float64(time.Minute))
}

// TestHistory_MetadataOutlivesStream compares the lifetimes after publications with different
// retentions. A read that returns publications does not extend the lifetime of the metadata.
func TestHistory_MetadataOutlivesStream(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	n, admin := connectHistory(t, server.Client(t)), server.Client(t)
	keys := n.keysOf("news")
	n.page(t) // creates the metadata
	for _, age := range []time.Duration{time.Minute, 1000 * time.Hour, time.Minute, time.Hour} {
		for range 2 {
			_, err := n.Append(t.Context(), broker.Append{Topic: "news", Retention: broker.Retention{Age: age}})
			require.NoError(t, err)
			n.page(t)
			stream, metadata := admin.PTTL(t.Context(), keys.stream).Val(), admin.PTTL(t.Context(), keys.channel.Name).Val()
			assert.Greater(t, metadata, stream+24*time.Hour, age)
			require.NoError(t, admin.HSet(t.Context(), keys.channel.Name, "r", 0).Err()) // the next one renews the lifetimes
		}
	}
}

// TestHistory_LongerAgeAppliesAtOnce to all that is kept, before the lifetimes are due to be renewed.
func TestHistory_LongerAgeAppliesAtOnce(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	n, admin := connectHistory(t, server.Client(t)), server.Client(t)
	keys := n.keysOf("news")
	for _, age := range []time.Duration{time.Hour, 2 * time.Hour, 30 * 24 * time.Hour} {
		_, err := n.Append(t.Context(), broker.Append{Topic: "news", Retention: broker.Retention{Age: age}, StateKey: "key"})
		require.NoError(t, err)
		for _, key := range []string{keys.stream, keys.state} {
			assert.Greater(t, admin.PTTL(t.Context(), key).Val(), age, key)
		}
	}
}

// TestHistory_QuietTopicKeepsItsEpoch moves the clock of the server by three days, in which a node reads the
// topic as often as an idle one is compared.
func TestHistory_QuietTopicKeepsItsEpoch(t *testing.T) {
	t.Parallel()
	m := startMovedServer(t)
	n := connectHistory(t, m.client)
	short := broker.Retention{Messages: 10, Age: time.Minute}
	first, err := n.Append(t.Context(), broker.Append{Topic: "news", Retention: short})
	require.NoError(t, err)
	for range 3 * 24 * 20 {
		m.sleep(3 * time.Minute)
		page, err := n.Read(t.Context(), broker.Query{Topic: "news", Retention: short, After: 1, Limit: 256})
		require.NoError(t, err)
		require.Equal(t, first.Position, page.Position)
	}
	assert.Zero(t, m.client.Exists(t.Context(), n.keysOf("news").stream).Val(), "the publication has expired")
	second, err := n.Append(t.Context(), broker.Append{Topic: "news", Retention: short})
	require.NoError(t, err)
	assert.Equal(t, broker.Position{Epoch: first.Position.Epoch, Offset: 2}, second.Position)

	require.NoError(t, m.client.FlushAll(t.Context()).Err())
	page, err := n.Read(t.Context(), broker.Query{Topic: "news", Retention: short, After: 2, Limit: 256})
	require.NoError(t, err)
	assert.NotEqual(t, second.Position.Epoch, page.Position.Epoch)
	assert.Zero(t, page.Previous, "where the epoch ended is unknown")
	m.sleep(26 * time.Hour)
	third, err := n.Append(t.Context(), broker.Append{Topic: "news", Retention: short})
	require.NoError(t, err)
	m.sleep(27 * time.Hour)
	page, err = n.Read(t.Context(), broker.Query{Topic: "news", Retention: short, After: 1, Limit: 256})
	require.NoError(t, err)
	assert.NotEqual(t, third.Position.Epoch, page.Position.Epoch, "without reads, the position expires")
}
