package redis

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/redis/internal/pubsub"
	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/redisclient"
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

// createValue stores the first value of key.
func createValue(t *testing.T, n *observedNode) (version uint64) {
	t.Helper()
	require.Eventually(t, func() bool { // on a busy machine, a call may exceed its time limit
		_, _ = n.StoreValue(t.Context(), "key", []byte("data"), 0, time.Hour)
		loaded, err := n.LoadValue(t.Context(), "key")
		version = loaded.Version
		return err == nil && version != 0
	}, time.Minute, 10*time.Millisecond)
	return version
}

// TestValue_FullMemory fills the memory of a server. Values can still be loaded and deleted.
func TestValue_FullMemory(t *testing.T) {
	t.Parallel()
	for _, plain := range []bool{false, true} {
		t.Run(fmt.Sprintf("plain scripts: %v", plain), func(t *testing.T) {
			server := redistest.Start(t)
			n := connectHistory(t, server.Client(t))
			for _, s := range []*redisclient.Script{n.scripts.value, n.scripts.storeValue} {
				s.IsPlain.Store(plain)
			}
			version := createValue(t, n)
			require.NoError(t, server.Client(t).ConfigSet(t.Context(), "maxmemory", "1").Err())
			for key, version := range map[string]uint64{"key": version, "other": 0} {
				_, err := n.StoreValue(t.Context(), key, []byte("new"), version, time.Hour)
				assert.Equal(t, errors.ResourceExhausted, errors.CodeOf(err), err)
			}
			loaded, err := n.LoadValue(t.Context(), "key")
			require.NoError(t, err)
			assert.Equal(t, broker.Value{Data: []byte("data"), Version: version}, loaded)
			_, err = n.StoreValue(t.Context(), "key", nil, version, 0)
			require.NoError(t, err)
			loaded, err = n.LoadValue(t.Context(), "key")
			require.NoError(t, err)
			assert.Zero(t, loaded)
		})
	}
}

// A sendHook receives a value when a client begins to execute a script.
type sendHook chan struct{}

func (sendHook) DialHook(next goredis.DialHook) goredis.DialHook { return next }

func (h sendHook) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, c goredis.Cmder) error {
		if c.Name() == "evalsha" {
			h <- struct{}{}
		}
		return next(ctx, c)
	}
}

func (sendHook) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return next
}

// TestValue_DataIsNotKept changes the data of a call whose context ended while it was being sent.
func TestValue_DataIsNotKept(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Addr)
	patient := func(o *goredis.Options) {
		o.ContextTimeoutEnabled, o.ReadTimeout, o.WriteTimeout = false, time.Minute, time.Minute
	}
	client := server.Client(t, patient, func(o *goredis.Options) { o.Addr = proxy.Addr })
	n, observer := connectHistory(t, client), connectHistory(t, server.Client(t, patient))
	var err error
	attempts := 0
	require.Eventually(t, func() bool { // connects, and sends the script, which may take longer on a busy machine than a call may
		attempts++
		_, err = n.StoreValue(t.Context(), fmt.Sprint("other", attempts), nil, 0, time.Hour)
		return err == nil
	}, time.Minute, 10*time.Millisecond)

	sending := make(sendHook, 10)
	client.AddHook(sending)
	proxy.Stall()
	data := bytes.Repeat([]byte("a"), 16<<20) // more than the sockets buffer
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() {
		_, err := n.StoreValue(ctx, "key", data, 0, time.Hour)
		result <- err
	}()
	<-sending
	cancel()
	err = <-result
	require.Equal(t, errors.OutcomeUnknown, errors.CodeOf(err), err)
	copy(data, bytes.Repeat([]byte("b"), len(data)))
	proxy.Restore()
	var loaded broker.Value
	require.Eventually(t, func() bool {
		loaded, err = observer.LoadValue(t.Context(), "key")
		return err == nil && loaded.Version > 0
	}, time.Minute, 10*time.Millisecond)
	assert.Zero(t, bytes.Count(loaded.Data, []byte("b")))
}

// TestValue_CallsShareAScript executes calls together. The error of one does not make others fail.
func TestValue_CallsShareAScript(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	n, admin := connectHistory(t, server.Client(t)), server.Client(t)
	var calls []*valueCall
	add := func(stores bool, key string, args ...any) {
		partition, name := n.keyOf(valueKind, key)
		calls = append(calls, &valueCall{Request: valueRequest{stores, partition, name, args}})
	}
	const keys = 8
	for i := range keys {
		add(true, fmt.Sprint("key", i), "0", i+1, fmt.Sprint("data", i), 60_000)
	}
	add(true, "mistyped", "0", 1, "data", 60_000)
	require.NoError(t, admin.Set(t.Context(), calls[keys].Request.key, "x", 0).Err())
	stored := calls
	n.execValues(t.Context(), stored)
	for _, c := range stored[:keys] {
		require.NoError(t, c.Err)
	}
	require.True(t, goredis.HasErrorPrefix(stored[keys].Err, "WRONGTYPE"), stored[keys].Err)

	for _, plain := range []bool{false, true} {
		n.scripts.value.IsPlain.Store(plain)
		n.scripts.storeValue.IsPlain.Store(plain)
		calls = nil
		for i := range keys {
			add(false, fmt.Sprint("key", i))
		}
		add(false, "mistyped")
		add(false, "none")
		add(true, "key0", "9", "7", "other", 60_000)
		add(true, "key1", "2", "2", "DATA", 60_000, 0, 4)
		add(true, "key2", "3", "3", "x", 60_000, 4, 2)
		server.ResetStats(t)
		n.execValues(t.Context(), calls)
		assert.LessOrEqual(t, server.CommandStats(t)["evalsha"], int64(2*pubsub.Connections))
		for i, c := range calls[2:keys] {
			require.NoError(t, c.Err)
			assert.Equal(t, valueReply{uint64(i + 3), fmt.Sprint("data", i+2)}, c.Response)
		}
		require.Error(t, calls[keys].Err, "mistyped")
		require.NoError(t, calls[keys+1].Err)
		assert.Zero(t, calls[keys+1].Response)
		require.True(t, goredis.HasErrorPrefix(calls[keys+2].Err, "OTHERVERSION"), calls[keys+2].Err)
		require.NoError(t, calls[keys+3].Err)
		require.True(t, goredis.HasErrorPrefix(calls[keys+4].Err, "SHORTVALUE"), calls[keys+4].Err)
		loaded, err := n.LoadValue(t.Context(), "key1")
		require.NoError(t, err)
		assert.Equal(t, broker.Value{Data: []byte("DATA1"), Version: 2}, loaded)
	}
}
