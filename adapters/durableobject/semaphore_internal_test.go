package durableobject

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/durableobject/internal/workerdtest"
	"github.com/penstock-go/penstock/internal/keyname"
	"github.com/penstock-go/penstock/internal/redistest"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/limittest"
)

// newTestSemaphore returns a semaphore whose leases are that long.
func newTestSemaphore(client *Client, permits int64, length time.Duration) *Semaphore {
	s := NewSemaphore(client, "render", permits)
	s.lease = length
	return s
}

// inUse returns how many permits of a key are in use: a release by another holder changes nothing.
func (s *Semaphore) inUse(t *testing.T, key limit.Key) int64 {
	h := &holder{semaphore: s, key: keyname.JoinASCII(s.prefix, keyname.Parts(&key)), name: "reader"}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	c, err := h.call(ctx, releasePermit)
	if err != nil {
		t.Logf("a call during an outage: %v", err)
		return -1
	}
	return c.Response.inUse
}

func (s *Semaphore) awaitInUse(t *testing.T, key limit.Key, n int64) {
	t.Helper()
	require.Eventually(t, func() bool { return s.inUse(t, key) == n }, time.Minute, 5*time.Millisecond, "%d permits", n)
}

func TestSemaphore_Contract(t *testing.T) {
	t.Parallel()
	for _, shards := range []string{"1", "8"} {
		server := startServer(t, func(o *workerdtest.Options) { o.Variables["SHARDS"] = shards })
		s := NewSemaphore(NewClient(server.URL, server.Secret, nil), "contract", 3)
		limittest.Semaphore(t, s, func(key limit.Key, inUse int64) {
			require.Eventually(t, func() bool { return s.inUse(t, key) <= inUse }, time.Minute, time.Millisecond)
		})
	}
}

// TestSemaphore_LeaseOfDeadProcessExpires has one process hold a permit for longer than a lease,
// while another process dies.
func TestSemaphore_LeaseOfDeadProcessExpires(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	proxy := redistest.StartProxy(t, strings.TrimPrefix(server.URL, "http://"))
	key := limit.Key{"user", "", "ann"}
	alive := newTestSemaphore(NewClient(server.URL, server.Secret, nil), 2, 3*time.Second)
	dying := newTestSemaphore(NewClient("http://"+proxy.Addr, server.Secret, nil), 2, 3*time.Second)
	held, err := alive.Acquire(t.Context(), key)
	require.NoError(t, err)
	lost, err := dying.Acquire(t.Context(), key)
	require.NoError(t, err)
	proxy.Cut()
	denied, err := alive.Acquire(t.Context(), key)
	require.NoError(t, err)
	assert.Nil(t, denied.Release)
	start := time.Now()
	require.Eventually(t, func() bool {
		p, err := alive.Acquire(t.Context(), key)
		if err != nil || p.Release == nil {
			return false
		}
		assert.EqualValues(t, 2, p.InUse, "the live process keeps its permit")
		p.Release()
		return true
	}, time.Minute, 10*time.Millisecond)
	assert.Less(t, time.Since(start), 30*time.Second)
	held.Release()
	lost.Release()
	alive.awaitInUse(t, key, 0)
}

// TestSemaphore_CanceledAcquireLeavesNoPermit has callers time out while the reply is delayed.
func TestSemaphore_CanceledAcquireLeavesNoPermit(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	proxy := redistest.StartProxy(t, strings.TrimPrefix(server.URL, "http://"))
	s := NewSemaphore(NewClient("http://"+proxy.Addr, server.Secret, nil), "late", 1000)
	direct := NewSemaphore(NewClient(server.URL, server.Secret, nil), "late", 1000)
	key := limit.Key{"ann"}
	require.Zero(t, s.inUse(t, key), "the connection is open")
	for range 5 {
		proxy.StallReplies()
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		_, err := s.Acquire(ctx, key)
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		proxy.Restore()
	}
	require.Eventually(t, func() bool { return direct.inUse(t, key) == 0 }, time.Minute, 10*time.Millisecond, "sooner than a lease expires")
}

// TestSemaphore_BackwardsClockKeepsDeadHoldersForOneLease moves the clock of the object back by an
// hour, so that the leases of dead processes end in an hour.
func TestSemaphore_BackwardsClockKeepsDeadHoldersForOneLease(t *testing.T) {
	t.Parallel()
	server, c := startTestClock(t, 1), newClock()
	s := newTestSemaphore(newTestClient(server, c), 3, time.Second)
	key := limit.Key{"user", "", "ann"}
	for _, name := range []string{"one", "two", "three"} {
		h := &holder{semaphore: s, key: keyname.JoinASCII(s.prefix, keyname.Parts(&key)), name: name}
		call, err := h.call(t.Context(), acquirePermit)
		require.NoError(t, err)
		require.True(t, call.Response.acquired)
	}
	c.Rewind(time.Hour)
	denied, err := s.Acquire(t.Context(), key)
	require.NoError(t, err)
	assert.Nil(t, denied.Release, "a lease may still be in use")
	c.Sleep(999 * time.Millisecond)
	require.EqualValues(t, 3, s.inUse(t, key))
	c.Sleep(time.Millisecond)
	require.Zero(t, s.inUse(t, key))
}

func TestSemaphore_RestartKeepsPermits(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	s := NewSemaphore(NewClient(server.URL, server.Secret, nil), "render", 1)
	key := limit.Key{"user", "", "ann"}
	held, err := s.Acquire(t.Context(), key)
	require.NoError(t, err)
	require.NotNil(t, held.Release)
	server.Restart()
	var denied limit.Permit
	require.Eventually(t, func() bool {
		denied, err = s.Acquire(t.Context(), key)
		return err == nil
	}, time.Minute, time.Millisecond)
	assert.Nil(t, denied.Release)
	held.Release()
	s.awaitInUse(t, key, 0)
}

// TestSemaphore_ClearedStorageGrantsAtMostTwice removes the storage while all permits are in use.
func TestSemaphore_ClearedStorageGrantsAtMostTwice(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	key := limit.Key{"user", "", "ann"}
	s := newTestSemaphore(NewClient(server.URL, server.Secret, nil), 2, 3*time.Second)
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
	server.Clear()
	require.Eventually(t, func() bool { acquire(); return s.inUse(t, key) >= 2 }, time.Minute, time.Millisecond)
	for range 20 {
		acquire()
	}
	granted := int64(len(held))
	assert.LessOrEqual(t, granted, int64(4))
	s.awaitInUse(t, key, granted) // after its renewal, every holder counts
	for len(held) > 2 {
		assert.False(t, acquire(), "%d permits are in use", len(held))
		held[0].Release()
		held = held[1:]
		s.awaitInUse(t, key, int64(len(held)))
	}
	assert.False(t, acquire(), "two permits are in use")
	held[0].Release()
	require.Eventually(t, acquire, time.Minute, time.Millisecond)
	for _, p := range held {
		p.Release()
	}
	s.awaitInUse(t, key, 0)
}
