package redis

import (
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/redistest"
)

func TestValue_ExpiresInRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := goredis.NewClient(&goredis.Options{Addr: server.Addr})
	defer func() { _ = client.Close() }()
	session := connectHistory(t, client)
	version, err := session.StoreValue(t.Context(), "a b", []byte("data"), 0, time.Minute)
	require.NoError(t, err)
	loaded, err := session.LoadValue(t.Context(), "a b")
	require.NoError(t, err)
	assert.Equal(t, broker.Value{Data: []byte("data"), Version: version}, loaded)
	keys, err := client.Keys(t.Context(), "*:value:*").Result()
	require.NoError(t, err)
	require.Len(t, keys, 1)
	life, err := client.PTTL(t.Context(), keys[0]).Result()
	require.NoError(t, err)
	assert.Greater(t, life, 50*time.Second)
	_, err = session.StoreValue(t.Context(), "a b", nil, version+1, time.Minute)
	assert.Equal(t, errors.Aborted, errors.CodeOf(err))
}
