package redis

import (
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/batch"
	"github.com/penstock-go/penstock/internal/batch/batchtest"
	"github.com/penstock-go/penstock/internal/keyname"
	"github.com/penstock-go/penstock/internal/redistest"
	"github.com/penstock-go/penstock/internal/testscale"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/limittest"
	"github.com/penstock-go/penstock/limit/limittest/serverclock"
)

// A movedServer is a Redis server whose clock a test moves, together with the clock by which limiters
// of this process keep what they know.
type movedServer struct {
	client goredis.UniversalClient
	server *serverclock.Clock
	local  batchtest.Clock
}

func startMovedServer(t *testing.T) *movedServer {
	clock := serverclock.New(t, time.Date(2024, 10, 27, 3, 33, 20, 0, time.UTC))
	return &movedServer{client: redistest.StartWithEnv(t, clock.Env()).Client(t), server: clock}
}

// startMovedCluster returns a Cluster of one node: others would take a step of the clock for a silence.
func startMovedCluster(t *testing.T) *movedServer {
	clock := serverclock.New(t, time.Date(2024, 10, 27, 3, 33, 20, 0, time.UTC))
	node := redistest.StartWithEnv(t, clock.Env(), "--cluster-enabled", "yes")
	require.NoError(t, node.Client(t).ClusterAddSlotsRange(t.Context(), 0, 16383).Err())
	client := goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: []string{node.Addr}})
	t.Cleanup(func() { _ = client.Close() })
	require.Eventually(t, func() bool {
		clock.Sleep(time.Second)
		return client.Set(t.Context(), "key", "value", time.Millisecond).Err() == nil
	}, time.Minute, 10*time.Millisecond)
	return &movedServer{client: client, server: clock}
}

// onServers runs a test on a node, and in the full tier on a Cluster, where limiters do not decide together.
func onServers(t *testing.T, test func(*testing.T, *movedServer)) {
	t.Parallel()
	t.Run("one node", func(t *testing.T) { test(t, startMovedServer(t)) })
	if testscale.Pick(false, true) {
		t.Run("cluster", func(t *testing.T) { test(t, startMovedCluster(t)) })
	}
}

func (m *movedServer) sleep(d time.Duration) {
	m.server.Sleep(d)
	m.local.Local.Add(int64(d))
}

func (m *movedServer) rewind(d time.Duration) {
	m.server.Sleep(-d)
	m.local.Local.Add(int64(2 * batch.CacheTime))
}

func (m *movedServer) now() time.Duration { return time.Duration(m.local.Local.Load()) }

func (m *movedServer) harness(t *testing.T) limittest.Harness {
	prefix := redistest.Prefix(t)
	return limittest.Harness{
		New: func(p limit.Policy) limit.Limiter {
			l := NewLimiter(m.client, p)
			l.buckets.prefix = keyname.Join("penstock:limit", []string{prefix + keyname.OfPolicy(p)})
			l.buckets.now = m.now
			return l
		},
		Shared: true, Sleep: m.sleep, Rewind: m.rewind,
	}
}

// use gives records the clocks of this process, and names of their own.
func (m *movedServer) use(r *records, prefix string) {
	r.prefix += prefix
	r.now, r.clock = m.now, m.server.Now
}
