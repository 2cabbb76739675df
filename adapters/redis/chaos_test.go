package redis_test

import (
	"context"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/redistest"
	"github.com/penstock-go/penstock/internal/testscale"
	"github.com/penstock-go/penstock/limit"
)

// chaosPolicies are the policies of one name that processes use at the same time.
var chaosPolicies = []limit.Policy{
	limit.PerSecond(40).Named("chaos"),
	limit.PerSecond(15).Burst(40).Named("chaos"),
	limit.PerSecond(60).Burst(10).Named("chaos"),
	{Name: "chaos", Capacity: 25, Refill: 97, Per: 1900 * time.Millisecond},
}

const (
	chaosCapacity  = 40 // the largest of chaosPolicies
	chaosPerSecond = 60
)

// A chaos is a server with a replica, and processes that consume from it.
type chaos struct {
	t        *testing.T
	args     []string
	addr     atomic.Value // of master
	master   *redistest.Server
	dir      string // of master's data
	replica  *redistest.Server
	replicas string           // directory of the replica's data
	link     *redistest.Proxy // between master and replica
	log      *chaosLog
	allowed  [chaosKeys][]chaosGrant // negative tokens: what faults may grant additionally
	outages  [][2]int64              // when the server cannot decide
	count    map[string]int          // of faults that took effect
}

// TestLimiter_Chaos has four clients, which share as little as processes, with different and changing policies consume while their
// server fails in several ways. In every interval, a bucket grants at most the largest capacity
// and the largest refill, and what the documentation of Limiter allows if data is lost.
func TestLimiter_Chaos(t *testing.T) {
	testscale.FullOnly(t, "TestLimiter_NeverChargesTwice")
	t.Parallel()
	for name, persistence := range map[string][]string{
		"append-only file": {"--appendonly", "yes", "--appendfsync", "always"},
		"snapshots":        {"--appendonly", "no"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := startChaos(t, persistence)
			faults := map[string]func(){
				"restart with data":    c.restartWithData,
				"restart without data": c.restartWithoutData,
				"pause":                c.pause,
				"out of memory":        c.outOfMemory,
				"script flush":         c.flushScripts,
				"failover":             c.failOver,
			}
			for name, fault := range faults { // in random order
				c.inject(name, fault)
			}
			c.inject("restart with data", c.restartWithData) // of the replica, which is the master by then
			for began := time.Now(); time.Since(began) < testscale.Soak(); {
				for name, fault := range faults {
					if rand.IntN(len(faults)) == 0 {
						c.inject(name, fault)
					}
				}
			}
			for name := range faults {
				assert.Positive(t, c.count[name], name)
			}
			c.check()
			t.Log(c.count)
		})
	}
}

func startChaos(t *testing.T, args []string) *chaos {
	c := &chaos{t: t, args: args, log: &chaosLog{}, count: map[string]int{}}
	c.master, c.dir = c.startServer()
	c.startReplica()
	c.addr.Store(c.master.Addr)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for n := range chaosPolicies {
		c.startProcess(ctx, &running, n)
	}
	t.Cleanup(func() { cancel(); running.Wait() })
	return c
}

func (c *chaos) startServer() (server *redistest.Server, dir string) {
	dir = c.t.TempDir()
	return redistest.Start(c.t, append([]string{"--dir", dir}, c.args...)...), dir
}

func (c *chaos) startReplica() {
	c.replica, c.replicas = c.startServer()
	c.link = redistest.StartProxy(c.t, c.master.Addr)
	host, port, err := net.SplitHostPort(c.link.Addr)
	require.NoError(c.t, err)
	c.do(c.replica, "replicaof", host, port)
}

// do executes a command that must succeed.
func (c *chaos) do(s *redistest.Server, args ...any) any {
	c.t.Helper()
	client := goredis.NewClient(&goredis.Options{Addr: s.Addr, MaxRetries: -1})
	defer func() { _ = client.Close() }()
	result, err := client.Do(c.t.Context(), args...).Result()
	require.NoError(c.t, err, "%v", args)
	return result
}

func (c *chaos) inject(name string, fault func()) {
	c.t.Helper()
	c.awaitGrants(20)
	fault()
	c.count[name]++
}

// awaitGrants waits for grants that begin at present or later.
func (c *chaos) awaitGrants(n int) {
	c.t.Helper()
	now := time.Now().UnixNano()
	c.await("grants", func() bool { return c.log.countGrants(now, time.Now().UnixNano()) >= n })
}

func (c *chaos) awaitErrors(after int64, n int) {
	c.t.Helper()
	c.await("errors", func() bool { return c.log.countErrors(after, time.Now().UnixNano()) >= n })
}

func (c *chaos) await(what string, done func() bool) {
	c.t.Helper()
	require.Eventually(c.t, done, 30*time.Second, 5*time.Millisecond, "no %s", what)
}

// allow allows additional grants of tokens to every key at a time.
func (c *chaos) allow(at, tokens int64) {
	for key := range c.allowed {
		c.allowed[key] = append(c.allowed[key], chaosGrant{-tokens, at, at})
	}
}

// allowLost allows to grant again what was granted between two times.
func (c *chaos) allowLost(from, to int64) {
	c.log.mu.Lock()
	defer c.log.mu.Unlock()
	for key, grants := range c.log.grants {
		lost := chaosGrant{0, to, to}
		for _, g := range grants {
			if g.received >= from && g.sent <= to {
				lost.tokens -= g.tokens
			}
		}
		c.allowed[key] = append(c.allowed[key], lost)
	}
}

func (c *chaos) restartWithData() {
	snapshots := c.args[1] == "no"
	mark := rand.Int64()
	c.do(c.master, "set", "mark", mark)
	var saved int64
	if snapshots {
		client := c.master.Client(c.t)
		c.await("snapshot", func() bool { // fails while the server saves for a replica
			saved = time.Now().UnixNano()
			return client.Save(c.t.Context()).Err() == nil
		})
		c.awaitGrants(10) // are lost
	}
	stopped := c.stop()
	if snapshots {
		c.allowLost(saved, stopped)
	}
	c.restart(stopped)
	require.Equal(c.t, strconv.FormatInt(mark, 10), c.do(c.master, "get", "mark"), "the data was not loaded")
}

func (c *chaos) restartWithoutData() {
	c.do(c.master, "set", "mark", 1)
	stopped := c.stop()
	files, err := filepath.Glob(filepath.Join(c.dir, "*"))
	require.NoError(c.t, err)
	for _, file := range files {
		require.NoError(c.t, os.RemoveAll(file))
	}
	c.allow(stopped, chaosCapacity)
	c.restart(stopped)
	require.EqualValues(c.t, 0, c.do(c.master, "exists", "mark"), "the data was not lost")
}

// stop kills the master and returns when it is dead and processes have noticed it.
func (c *chaos) stop() (stopped int64) {
	c.t.Helper()
	c.master.Stop()
	stopped = time.Now().UnixNano()
	c.awaitErrors(stopped, 5)
	return stopped
}

func (c *chaos) restart(stopped int64) {
	c.outages = append(c.outages, [2]int64{stopped, time.Now().UnixNano()})
	c.master.Restart()
	c.awaitGrants(10)
}

func (c *chaos) pause() {
	c.master.Pause()
	time.Sleep(10 * time.Millisecond) // the signal needs a moment, and replies may be under way
	paused := time.Now().UnixNano()
	c.awaitErrors(paused+int64(chaosTimeout), 5)
	c.outages = append(c.outages, [2]int64{paused, time.Now().UnixNano()})
	c.master.Resume()
}

// outOfMemory is no outage for scripts of limiters.
func (c *chaos) outOfMemory() {
	c.do(c.master, "config", "set", "maxmemory-policy", "noeviction", "maxmemory", 1)
	client := goredis.NewClient(&goredis.Options{Addr: c.master.Addr, MaxRetries: -1})
	defer func() { _ = client.Close() }()
	require.ErrorContains(c.t, client.Set(c.t.Context(), "mark", 1, 0).Err(), "OOM")
	c.awaitGrants(20)
	require.ErrorContains(c.t, client.Set(c.t.Context(), "mark", 1, 0).Err(), "OOM")
	c.do(c.master, "config", "set", "maxmemory", 0)
}

func (c *chaos) flushScripts() {
	before := c.master.CommandStats(c.t)["eval"]
	c.do(c.master, "script", "flush")
	c.await("EVAL", func() bool { return c.master.CommandStats(c.t)["eval"] > before })
	c.awaitGrants(20)
}

// failOver kills the master while its replica lags behind, and promotes the replica.
func (c *chaos) failOver() {
	var synced int64
	c.await("replica", func() bool {
		synced = time.Now().UnixNano()
		return c.do(c.master, "wait", 1, 1000) == int64(1)
	})
	c.link.Stall()
	c.awaitGrants(10) // are lost
	written := replicationOffset(c.t, c.master)
	stopped := c.stop()
	c.link.Cut()
	require.Less(c.t, replicationOffset(c.t, c.replica), written, "the replica did not lag behind")
	c.do(c.replica, "replicaof", "no", "one")
	c.allowLost(synced, stopped)
	c.outages = append(c.outages, [2]int64{stopped, time.Now().UnixNano()})
	c.master, c.dir = c.replica, c.replicas
	c.addr.Store(c.master.Addr)
	c.awaitGrants(10)
	c.startReplica()
}

// replicationOffset returns how many bytes of its history a server has.
func replicationOffset(t *testing.T, s *redistest.Server) int64 {
	t.Helper()
	info, err := s.Client(t).InfoMap(t.Context(), "replication").Result()
	require.NoError(t, err)
	name := "master_repl_offset"
	if info["Replication"]["role"] == "slave" {
		name = "slave_repl_offset"
	}
	offset, err := strconv.ParseInt(info["Replication"][name], 10, 64)
	require.NoError(t, err)
	return offset
}

func (c *chaos) check() {
	c.awaitGrants(20)
	for _, outage := range c.outages {
		assert.Zero(c.t, c.log.countGrants(outage[0], outage[1]), "grants during an outage of %v", time.Duration(outage[1]-outage[0]))
	}
	c.log.mu.Lock()
	defer c.log.mu.Unlock()
	for key, grants := range c.log.grants {
		excess := exceedsBound(append(grants, c.allowed[key]...))
		assert.LessOrEqual(c.t, excess, int64(0), "key %d was granted %.3f tokens too many, in %d grants", key, float64(excess)/1e9, len(grants))
		c.t.Logf("key %d: %d grants, %.3f tokens below the bound", key, len(grants), float64(-excess)/1e9)
	}
}
