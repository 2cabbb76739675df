package redistest_test

import (
	"context"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/redistest"
	"github.com/penstock-go/penstock/internal/testscale"
)

// failFast makes a client fail instead of retrying, and obey context deadlines.
func failFast(opts *redis.Options) {
	opts.MaxRetries = -1
	opts.DialerRetries = 1
	opts.ContextTimeoutEnabled = true
}

// ping returns an error if the server does not answer within the given time.
func ping(t *testing.T, client *redis.Client, within time.Duration) error {
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	return client.Ping(ctx).Err()
}

// requireTimeout fails the test unless err is a timeout.
func requireTimeout(t *testing.T, err error) {
	t.Helper()
	var timeout net.Error
	require.ErrorAs(t, err, &timeout)
	require.True(t, timeout.Timeout(), "%v", err)
}

const (
	shortTimeout = 100 * time.Millisecond // for events that must not happen
	longTimeout  = 10 * time.Second       // for events that must happen
)

func TestStart_PassesArguments(t *testing.T) {
	server := redistest.Start(t, "--maxmemory", "5mb")
	client := server.Client(t, failFast)
	require.NoError(t, ping(t, client, longTimeout))

	limit, err := client.ConfigGet(t.Context(), "maxmemory").Result()
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"maxmemory": "5242880"}, limit)
}

func TestStart_ServersAreIndependent(t *testing.T) {
	one, other := redistest.Start(t), redistest.Start(t)
	require.NoError(t, one.Client(t).Set(t.Context(), "key", "value", 0).Err())
	assert.ErrorIs(t, other.Client(t).Get(t.Context(), "key").Err(), redis.Nil)
}

func TestServer_RestartAwaitsLoadedData(t *testing.T) {
	testscale.FullOnly(t, "TestServer_RestartsWithoutData")
	server := redistest.Start(t, "--appendonly", "yes", "--key-load-delay", "20")
	client := server.Client(t)
	const keys = 20_000
	_, err := client.Pipelined(t.Context(), func(pipe redis.Pipeliner) error {
		for i := range keys {
			pipe.Set(t.Context(), strconv.Itoa(i), "", 0)
		}
		return nil
	})
	require.NoError(t, err)
	server.Restart()
	restored, err := server.Client(t, failFast).DBSize(t.Context()).Result()
	require.NoError(t, err)
	assert.EqualValues(t, keys, restored)
}

func TestServer_RestartsWithoutData(t *testing.T) {
	server := redistest.Start(t, "--maxclients", "77")
	client := server.Client(t, failFast)
	require.NoError(t, client.Set(t.Context(), "key", "value", 0).Err())

	server.Stop()
	server.Stop()
	require.Error(t, ping(t, client, longTimeout))

	for range 2 { // first from stopped, then from running
		server.Restart()
		client = server.Client(t, failFast)
		assert.ErrorIs(t, client.Get(t.Context(), "key").Err(), redis.Nil)
		require.NoError(t, client.Set(t.Context(), "key", "value", 0).Err())
	}
	limit, err := client.ConfigGet(t.Context(), "maxclients").Result()
	require.NoError(t, err)
	assert.Equal(t, "77", limit["maxclients"])
}

func TestServer_PauseAndResume(t *testing.T) {
	server := redistest.Start(t)
	client := server.Client(t, failFast)
	require.NoError(t, ping(t, client, longTimeout))

	server.Pause()
	server.Pause()
	requireTimeout(t, ping(t, client, shortTimeout))

	server.Resume()
	assert.NoError(t, ping(t, client, longTimeout))

	server.Pause()
	server.Restart()
	assert.NoError(t, ping(t, server.Client(t, failFast), longTimeout))
}

func TestServer_CommandStats(t *testing.T) {
	server := redistest.Start(t)
	client := server.Client(t)
	for range 3 {
		require.NoError(t, client.Set(t.Context(), "key", "value", 0).Err())
	}
	script := redis.NewScript(`return redis.call("GET", KEYS[1])`)
	require.NoError(t, script.Run(t.Context(), client, []string{"key"}).Err())

	calls := server.CommandStats(t)
	assert.EqualValues(t, 3, calls["set"])
	assert.EqualValues(t, 1, calls["get"])
	assert.EqualValues(t, 1, calls["eval"])
	assert.NotContains(t, calls, "del")

	server.ResetStats(t)
	require.NoError(t, client.Get(t.Context(), "key").Err())
	calls = server.CommandStats(t)
	assert.EqualValues(t, 1, calls["get"])
	assert.NotContains(t, calls, "set")
}

func TestSentinel_Promote(t *testing.T) {
	testscale.FullOnly(t, "TestStart_ServersAreIndependent")
	sentinel := redistest.StartSentinel(t)
	client := sentinel.Client(t, func(opts *redis.FailoverOptions) { opts.ClientName = "writer" })
	require.NoError(t, client.Set(t.Context(), "key", "before", 0).Err())
	clients, err := sentinel.Master.Client(t).ClientList(t.Context()).Result()
	require.NoError(t, err)
	assert.Contains(t, clients, "name=writer")

	master, replica := sentinel.Master, sentinel.Replica
	sentinel.Promote(t)
	assert.Same(t, replica, sentinel.Master)
	assert.Same(t, master, sentinel.Replica)

	promoted := sentinel.Master.Client(t)
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		require.NoError(c, client.Set(t.Context(), "key", "after", 0).Err())
		assert.Equal(c, "after", promoted.Get(t.Context(), "key").Val())
	}, longTimeout, 10*time.Millisecond)
}

func TestCluster(t *testing.T) {
	testscale.FullOnly(t, "TestStart_ServersAreIndependent")
	cluster := redistest.StartCluster(t)
	t.Run("serves all slots", func(t *testing.T) { testSlots(t, cluster) })
	t.Run("accepts a restarted node", func(t *testing.T) { testRestart(t, cluster) })
}

func testSlots(t *testing.T, cluster *redistest.Cluster) {
	client := cluster.Client(t)
	keys := keyOfEachSlot()

	sets := client.Pipeline()
	for _, key := range keys {
		sets.Set(t.Context(), key, key, 0)
	}
	_, err := sets.Exec(t.Context())
	require.NoError(t, err)

	gets := client.Pipeline()
	for _, key := range keys {
		gets.Get(t.Context(), key)
	}
	values, err := gets.Exec(t.Context())
	require.NoError(t, err)
	for i, key := range keys {
		require.Equal(t, key, values[i].(*redis.StringCmd).Val())
	}

	for i, want := range []int64{5461, 5462, 5461} {
		held, err := cluster.Nodes[i].Client(t).DBSize(t.Context()).Result()
		require.NoError(t, err)
		assert.Equal(t, want, held)
	}
}

func testRestart(t *testing.T, cluster *redistest.Cluster) {
	client := cluster.Client(t)
	require.NoError(t, client.Set(t.Context(), "a", "value", 0).Err()) // slot 15495

	cluster.Nodes[2].Restart()
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		assert.ErrorIs(c, client.Get(t.Context(), "a").Err(), redis.Nil)
	}, longTimeout, 10*time.Millisecond)
}

// keyOfEachSlot returns one key for each slot of a cluster.
func keyOfEachSlot() []string {
	keys := make([]string, 16384)
	for n, left := 0, len(keys); left > 0; n++ {
		key := "key" + strings.Repeat("!", n>>16) + string(rune(n&0x7fff+0x100))
		if slot := crc16(key) % len(keys); keys[slot] == "" {
			keys[slot] = key
			left--
		}
	}
	return keys
}

// crc16 is the checksum that assigns keys to slots.
func crc16(key string) int {
	var crc uint16
	for _, b := range []byte(key) {
		crc ^= uint16(b) << 8
		for range 8 {
			carry := crc >> 15
			crc = crc<<1 ^ 0x1021*carry
		}
	}
	return int(crc)
}
