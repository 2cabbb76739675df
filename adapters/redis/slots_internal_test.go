package redis

import (
	"context"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/redistest"
	"github.com/penstock-go/penstock/middleware/ratelimit"
	"github.com/penstock-go/penstock/middleware/ratelimit/ratelimittest"
)

func TestSlots(t *testing.T) {
	client := redistest.Any(t)
	slots := NewSlots(client, redistest.Prefix(t), 3)
	ratelimittest.Slots(t, slots, func(key ratelimit.Key, taken int64) {
		require.Eventually(t, func() bool {
			return client.ZCard(t.Context(), name(slots.prefix, parts(&key))).Val() <= taken
		}, 10*time.Second, time.Millisecond)
	})
	assert.Panics(t, func() { NewSlots(nil, "x", 1) })
	assert.Panics(t, func() { NewSlots(client, "", 1) })
	assert.Panics(t, func() { NewSlots(client, "x", 0) })
}

// TestPlacesOfADeadProcessComeBack has one process hold a place for longer than a lease,
// and one that dies.
func TestPlacesOfADeadProcessComeBack(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Addr)
	key := ratelimit.Key{"user", "", "ann"}
	alive := NewSlots(server.Client(t), "render", 2)
	dying := NewSlots(server.Client(t, func(o *goredis.Options) { o.Addr = proxy.Addr }), "render", 2)
	alive.lease, dying.lease = 3*time.Second, 3*time.Second
	held, err := alive.Acquire(t.Context(), key)
	require.NoError(t, err)
	lost, err := dying.Acquire(t.Context(), key)
	require.NoError(t, err)
	proxy.Cut()
	refused, err := alive.Acquire(t.Context(), key)
	require.NoError(t, err)
	assert.Nil(t, refused.Release)
	require.Eventually(t, func() bool {
		s, err := alive.Acquire(t.Context(), key)
		if err != nil || s.Release == nil {
			return false
		}
		assert.EqualValues(t, 2, s.Taken, "the one that is alive keeps its own")
		s.Release()
		return true
	}, 20*time.Second, 10*time.Millisecond)
	held.Release()
	lost.Release()
	require.Eventually(t, func() bool { return server.Client(t).DBSize(t.Context()).Val() == 0 }, 10*time.Second, 10*time.Millisecond)
}

// TestAPlaceIsNotTakenAfterItWasGivenBack has callers give up while Redis does not know the
// script, so that it is sent a second time.
func TestAPlaceIsNotTakenAfterItWasGivenBack(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Addr)
	client := server.Client(t, func(o *goredis.Options) { o.Addr = proxy.Addr })
	direct := server.Client(t)
	s := NewSlots(client, "late", 1000)
	var warm sync.WaitGroup
	for range 20 {
		warm.Go(func() { client.Ping(t.Context()) })
	}
	warm.Wait()
	for range 5 {
		require.NoError(t, direct.ScriptFlush(t.Context()).Err())
		proxy.Delay(80 * time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		_, err := s.Acquire(ctx, ratelimit.Key{"ann"})
		cancel()
		require.Error(t, err)
		proxy.Delay(0)
	}
	time.Sleep(time.Second) // which is longer than all of it takes, and shorter than a lease
	assert.Zero(t, direct.ZCard(t.Context(), name(s.prefix, []string{"ann"})).Val())
}
