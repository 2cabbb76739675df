package redis

import (
	"context"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/batch/batchtest"
	"github.com/penstock-go/penstock/internal/keyname"
	"github.com/penstock-go/penstock/internal/redistest"
	"github.com/penstock-go/penstock/internal/testscale"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/limittest"
)

func TestSemaphore_Contract(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t)
	semaphore := NewSemaphore(client, redistest.Prefix(t), 3)
	limittest.Semaphore(t, semaphore, func(key limit.Key, inUse int64) {
		require.Eventually(t, func() bool {
			return client.ZCard(t.Context(), keyname.Join(semaphore.prefix, keyname.Parts(&key))).Val() <= inUse
		}, time.Minute, time.Millisecond)
	})
	assert.Panics(t, func() { NewSemaphore(nil, "x", 1) })
	assert.Panics(t, func() { NewSemaphore(client, "", 1) })
	assert.Panics(t, func() { NewSemaphore(client, "x", 0) })
}

// TestSemaphore_LeaseOfDeadProcessExpires has one process hold a permit for longer than a lease,
// while another process dies.
func TestSemaphore_LeaseOfDeadProcessExpires(t *testing.T) {
	testscale.FullOnly(t, "TestSemaphore_Contract")
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Addr)
	alive := NewSemaphore(server.Client(t), "render", 2)
	dying := NewSemaphore(server.Client(t, func(o *goredis.Options) { o.Addr = proxy.Addr }), "render", 2)
	alive.lease, dying.lease = 3*time.Second, 3*time.Second
	batchtest.DeadHolder(t, limit.Key{"ann"}, alive, dying, proxy.Cut)
	require.Eventually(t, func() bool { return server.Client(t).DBSize(t.Context()).Val() == 0 }, time.Minute, 10*time.Millisecond)
}

// TestSemaphore_CanceledAcquireLeavesNoPermit has callers time out while Redis does not know the
// script, so that it is sent a second time.
func TestSemaphore_CanceledAcquireLeavesNoPermit(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Addr)
	client := server.Client(t, func(o *goredis.Options) { o.Addr = proxy.Addr })
	direct := server.Client(t)
	s := NewSemaphore(client, "late", 1000)
	var warm sync.WaitGroup
	for range 20 {
		warm.Go(func() { client.Ping(t.Context()) })
	}
	warm.Wait()
	for range 5 {
		require.NoError(t, direct.ScriptFlush(t.Context()).Err())
		proxy.Delay(80 * time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		_, err := s.Acquire(ctx, limit.Key{"ann"})
		cancel()
		require.Error(t, err)
		proxy.Delay(0)
	}
	time.Sleep(time.Second) // longer than the late scripts take, and shorter than a lease
	assert.Zero(t, direct.ZCard(t.Context(), keyname.Join(s.prefix, []string{"ann"})).Val())
}

// TestSemaphore_BackwardsClockKeepsDeadHoldersForOneLease has holders that died before the clock went
// back by an hour.
func TestSemaphore_BackwardsClockKeepsDeadHoldersForOneLease(t *testing.T) {
	t.Parallel()
	m := startMovedServer(t)
	s := NewSemaphore(m.client, "render", 2)
	for _, holder := range []string{"one", "two"} {
		ends := float64(m.server.Now().Add(s.lease).UnixMilli())
		require.NoError(t, m.client.ZAdd(t.Context(), keyname.Join(s.prefix, []string{"ann"}), goredis.Z{Score: ends, Member: holder}).Err())
	}
	m.rewind(time.Hour)
	for _, pause := range []time.Duration{0, s.lease - time.Millisecond} {
		m.sleep(pause)
		denied, err := s.Acquire(t.Context(), limit.Key{"ann"})
		require.NoError(t, err)
		assert.Nil(t, denied.Release, "a lease may still be in use")
	}
	m.sleep(time.Millisecond)
	p, err := s.Acquire(t.Context(), limit.Key{"ann"})
	require.NoError(t, err)
	require.NotNil(t, p.Release)
	assert.EqualValues(t, 1, p.InUse)
	p.Release()
}

// TestSemaphore_EmptyRestartGrantsAtMostTwice restarts a Redis that loses its data while all
// permits are in use.
func TestSemaphore_EmptyRestartGrantsAtMostTwice(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := server.Client(t)
	key := limit.Key{"user", "", "ann"}
	s := NewSemaphore(client, "render", 2)
	s.lease = 3 * time.Second
	inUse := func() int64 { return client.ZCard(t.Context(), keyname.Join(s.prefix, keyname.Parts(&key))).Val() }
	var held []limit.Permit
	acquire := func() bool {
		p, err := s.Acquire(t.Context(), key)
		if err != nil || p.Release == nil {
			return false
		}
		held = append(held, p)
		return true
	}
	require.True(t, acquire())
	require.True(t, acquire())
	server.Restart()
	require.Eventually(t, func() bool { acquire(); return inUse() >= 2 }, time.Minute, time.Millisecond)
	for range 20 {
		acquire()
	}
	granted := len(held)
	assert.LessOrEqual(t, granted, 4)
	require.Eventually(t, func() bool { return inUse() == int64(granted) }, time.Minute, time.Millisecond, "every holder must be counted after its renewal")
	for len(held) > 2 {
		assert.False(t, acquire(), "%d permits are in use", len(held))
		held[0].Release()
		held = held[1:]
		require.Eventually(t, func() bool { return inUse() == int64(len(held)) }, time.Minute, time.Millisecond)
	}
	assert.False(t, acquire(), "two permits are in use")
	held[0].Release()
	require.Eventually(t, acquire, time.Minute, time.Millisecond)
	for _, p := range held {
		p.Release()
	}
}
