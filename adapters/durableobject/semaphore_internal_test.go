package durableobject

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/durableobject/internal/workerdtest"
	"github.com/penstock-go/penstock/internal/batch/batchtest"
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
	alive := newTestSemaphore(NewClient(server.URL, server.Secret, nil), 2, 3*time.Second)
	dying := newTestSemaphore(NewClient("http://"+proxy.Addr, server.Secret, nil), 2, 3*time.Second)
	batchtest.DeadHolder(t, limit.Key{"ann"}, alive, dying, proxy.Cut)
	alive.awaitInUse(t, limit.Key{"ann"}, 0)
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
