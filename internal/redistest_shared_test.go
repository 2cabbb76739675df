package internal_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/redistest"
)

func TestShared_MissingServerSkipsOrFails(t *testing.T) {
	t.Setenv("PATH", "")
	t.Setenv("REDIS_URL", "")
	t.Setenv("CI", "")
	t.Setenv("PENSTOCK_REQUIRE_REDIS", "")
	text := resultOf(t, func(t testing.TB) { redistest.Shared(t) })
	assert.True(t, strings.HasPrefix(text, "skip: "), text)

	t.Setenv("CI", "true")
	text = resultOf(t, func(t testing.TB) { redistest.Shared(t) })
	assert.True(t, strings.HasPrefix(text, "fail: "), text)
}

func TestShared_UsesServerAtURL(t *testing.T) {
	server := redistest.Start(t)
	t.Setenv("REDIS_URL", "redis://"+server.Addr+"/3")
	require.NoError(t, redistest.Shared(t).Set(t.Context(), "key", "value", 0).Err())
	keys, err := server.Client(t).InfoMap(t.Context(), "keyspace").Result()
	require.NoError(t, err)
	assert.Contains(t, keys["Keyspace"], "db3")
}

func TestShared_IsOneServer(t *testing.T) {
	redistest.Start(t) // skips the test without redis-server
	t.Setenv("REDIS_URL", "")
	key := redistest.Prefix(t) + "key"
	t.Run("writes", func(t *testing.T) {
		require.NoError(t, redistest.Shared(t).Set(t.Context(), key, "value", time.Minute).Err())
	})
	t.Run("reads", func(t *testing.T) {
		assert.Equal(t, "value", redistest.Shared(t).Get(t.Context(), key).Val())
	})
	assert.NotEqual(t, key, redistest.Prefix(t)+"key")
}
