package redis

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/redistest"
)

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
