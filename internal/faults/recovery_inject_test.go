//go:build unix

package faults_test

import (
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"syscall"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/redistest"
)

// A recoveryFault is injected into a run. Its function ends the fault, describes its effect, and
// reports whether it had one.
type recoveryFault struct {
	name   string
	target string // two faults with the same target are never injected at the same time
	inject func(*recoveryRun, *rand.Rand) (effect string, ok bool)
}

// nodeFaults and linkFaults need a single server or a replicated one.
var nodeFaults = []recoveryFault{
	{"node killed", "node", killStoryNode},
	{"node stopped below time-outs", "node", stopStoryNode(time.Second)},
	{"node stopped above time-outs", "node", stopStoryNode(7 * time.Second)},
	{"node shut down under load", "node", shutStoryNodeDown},
}

var linkFaults = []recoveryFault{
	{"command connections cut", "link", cutConns(commandConns)},
	{"Pub/Sub connections cut", "link", cutConns(pubSubConns)},
	{"replies to commands stalled", "link", stallConns(stall{commandConns, true})},
	{"Pub/Sub stalled", "link", stallConns(stall{pubSubConns, true})},
	{"connections stalled", "link", stallConns(stall{allConns, false})},
	{"one node partitioned", "link", partition(1)},
	{"all nodes partitioned", "link", partition(recoveryNodes)},
}

var serverFaults = []recoveryFault{
	{"Redis paused", "redis", pauseServer},
	{"Redis killed, restarted with its data", "redis", restartServer},
	{"first replica attached", "redis", attachReplica},
	{"script cache flushed", "redis", flushScripts},
	{"Redis out of memory", "redis", exhaustMemory},
}

// about returns a random duration around d.
func about(rng *rand.Rand, d time.Duration) time.Duration {
	return d/2 + time.Duration(rng.Int64N(int64(d)))
}

// waitFor waits until a condition holds, which is an effect of a fault.
func waitFor(done func() bool) bool {
	for deadline := time.Now().Add(wait); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if done() {
			return true
		}
	}
	return false
}

// reserve returns a node that no other fault affects, until release is called.
func (r *recoveryRun) reserve(rng *rand.Rand) *storyNode {
	r.mu.Lock()
	defer r.mu.Unlock()
	free := slices.DeleteFunc(slices.Clone(r.nodes), func(n *storyNode) bool { return !n.up || n.reserved })
	n := free[rng.IntN(len(free))]
	n.reserved = true
	return n
}

func (r *recoveryRun) release(n *storyNode) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n.reserved = false
}

// takeDown makes a node unavailable for new connections, and returns it.
func (r *recoveryRun) takeDown(rng *rand.Rand) *storyNode {
	n := r.reserve(rng)
	r.mu.Lock()
	defer r.mu.Unlock()
	n.up = false
	return n
}

// clientsOf returns the number of clients that are connected to a node.
func (r *recoveryRun) clientsOf(n *storyNode) (count int) {
	for _, c := range r.clients {
		c.mu.Lock()
		if c.addr == n.door.addr {
			count++
		}
		c.mu.Unlock()
	}
	return count
}

// triedBy returns the number of attempts of a node's publishers.
func (r *recoveryRun) triedBy(n *storyNode) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return n.tried
}

func killStoryNode(r *recoveryRun, rng *rand.Rand) (string, bool) {
	n := r.takeDown(rng)
	clients := r.clientsOf(n)
	n.kill(r.t)
	tried := r.triedBy(n)
	r.startNode()
	return fmt.Sprintf("after %d attempts, with %d clients", tried, clients), tried > 0
}

func stopStoryNode(lasts time.Duration) func(*recoveryRun, *rand.Rand) (string, bool) {
	return func(r *recoveryRun, rng *rand.Rand) (string, bool) {
		n := r.reserve(rng)
		defer r.release(n)
		n.signal(r.t, syscall.SIGSTOP)
		time.Sleep(100 * time.Millisecond) // for what it has printed
		before := r.triedBy(n)
		time.Sleep(lasts - 100*time.Millisecond)
		during := r.triedBy(n) - before
		n.signal(r.t, syscall.SIGCONT)
		return fmt.Sprintf("%d attempts in %v", during, lasts), during == 0 && before > 0
	}
}

func shutStoryNodeDown(r *recoveryRun, rng *rand.Rand) (string, bool) {
	n := r.takeDown(rng)
	before := r.triedBy(n)
	n.signal(r.t, syscall.SIGTERM)
	result := n.await(r.t, "shutdown").Text
	n.wait(r.t)
	after := r.triedBy(n) - before
	r.startNode()
	return fmt.Sprintf("%d attempts after the signal, result %s", after, result), after > 0 && result == "<nil>"
}

// allLinks returns the links of all nodes, including those that are being started or have ended.
func (r *recoveryRun) allLinks() []*relay {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.links)
}

// cutConns cuts connections of all nodes, at random moments.
func cutConns(k class) func(*recoveryRun, *rand.Rand) (string, bool) {
	return func(r *recoveryRun, rng *rand.Rand) (string, bool) {
		cuts := 0
		for range 5 {
			for _, link := range r.allLinks() {
				before, _ := link.count()
				link.cut(k)
				after, _ := link.count()
				cuts += after - before
				time.Sleep(about(rng, 50*time.Millisecond))
			}
		}
		return fmt.Sprintf("%d connections", cuts), cuts > 0
	}
}

// stallConns stalls connections of one node.
func stallConns(s stall) func(*recoveryRun, *rand.Rand) (string, bool) {
	return func(r *recoveryRun, rng *rand.Rand) (string, bool) {
		n := r.reserve(rng)
		defer r.release(n)
		link := n.link
		_, before := link.count()
		link.stall(s)
		time.Sleep(time.Second + about(rng, time.Second))
		_, after := link.count()
		link.restore()
		return fmt.Sprintf("%d times data had to wait", after-before), after > before
	}
}

// partition cuts nodes off from Redis.
func partition(nodes int) func(*recoveryRun, *rand.Rand) (string, bool) {
	return func(r *recoveryRun, rng *rand.Rand) (string, bool) {
		links := r.allLinks()
		if nodes == 1 {
			n := r.reserve(rng)
			defer r.release(n)
			links = []*relay{n.link}
		}
		failures := r.failures()
		for _, link := range links {
			link.refuse()
		}
		time.Sleep(about(rng, time.Second))
		ok := waitFor(func() bool { return r.failures() > failures })
		for _, link := range links {
			link.restore()
		}
		return fmt.Sprintf("%d failed attempts", r.failures()-failures), ok
	}
}

func pauseServer(r *recoveryRun, rng *rand.Rand) (string, bool) {
	failures := r.failures()
	r.server.Pause()
	time.Sleep(about(rng, time.Second))
	ok := waitFor(func() bool { return r.failures() > failures })
	r.server.Resume()
	return fmt.Sprintf("%d failed attempts", r.failures()-failures), ok
}

func restartServer(r *recoveryRun, rng *rand.Rand) (string, bool) {
	before := r.lineage(r.server)
	failures := r.failures()
	if r.attached != nil { // it would end another epoch when it returned
		r.attached.Stop()
		r.attached = nil
	}
	r.server.Stop()
	time.Sleep(about(rng, 500*time.Millisecond))
	r.server.Restart()
	ok := r.lineage(r.server) != before && waitFor(func() bool { return r.failures() > failures })
	keys, err := r.server.Client(r.t).DBSize(r.t.Context()).Result()
	require.NoError(r.t, err)
	return fmt.Sprintf("%d failed attempts, %d keys restored", r.failures()-failures, keys), ok && keys > 0
}

// attachReplica lets a replica follow the server, which then has another lineage. It stays.
func attachReplica(r *recoveryRun, _ *rand.Rand) (string, bool) {
	if r.attached != nil {
		return "already attached", true
	}
	before := r.lineage(r.server)
	host, port, err := net.SplitHostPort(r.server.Addr)
	require.NoError(r.t, err)
	r.attached = redistest.Start(r.t, "--replicaof", host+" "+port)
	return "epoch ended", waitFor(func() bool { return r.lineage(r.server) != before })
}

// lineage returns the replication ID of a server.
func (r *recoveryRun) lineage(s *redistest.Server) string { return r.info(s, "master_replid") }

// info returns a field of the replication section.
func (r *recoveryRun) info(s *redistest.Server, field string) string {
	info, err := s.Client(r.t).InfoMap(r.t.Context(), "replication").Result()
	require.NoError(r.t, err)
	return info["Replication"][field]
}

func flushScripts(r *recoveryRun, rng *rand.Rand) (string, bool) {
	admin := r.server.Client(r.t)
	unknownScripts := func() (n int) {
		errorStats, err := admin.InfoMap(r.t.Context(), "errorstats").Result()
		assert.NoError(r.t, err)
		_, _ = fmt.Sscanf(errorStats["Errorstats"]["errorstat_NOSCRIPT"], "count=%d", &n)
		return n
	}
	before := unknownScripts()
	for range 3 {
		require.NoError(r.t, admin.ScriptFlush(r.t.Context()).Err())
		time.Sleep(about(rng, 200*time.Millisecond))
	}
	ok := waitFor(func() bool { return unknownScripts() > before })
	return fmt.Sprintf("%d times a script was unknown", unknownScripts()-before), ok
}

func exhaustMemory(r *recoveryRun, rng *rand.Rand) (string, bool) {
	admin := r.server.Client(r.t)
	failures := r.failures()
	require.NoError(r.t, admin.ConfigSet(r.t.Context(), "maxmemory", "1").Err())
	time.Sleep(about(rng, time.Second))
	ok := waitFor(func() bool { return r.failures() > failures+10 })
	require.NoError(r.t, admin.ConfigSet(r.t.Context(), "maxmemory", "0").Err())
	return fmt.Sprintf("%d failed attempts", r.failures()-failures), ok
}

// lossFaults remove data of a server that cannot be recovered.
var lossFaults = []recoveryFault{
	{"FLUSHALL", "redis", loseData(func(r *recoveryRun) { require.NoError(r.t, r.server.Client(r.t).FlushAll(r.t.Context()).Err()) })},
	{"metadata deleted", "redis", loseData(func(r *recoveryRun) { r.deleteKeys("hash") })},
	{"streams deleted", "redis", deleteStreams},
	{"Redis killed, restarted without data", "redis", loseData(func(r *recoveryRun) { r.server.Restart() })},
}

// loseData removes data, after which clients have to load their state.
func loseData(remove func(*recoveryRun)) func(*recoveryRun, *rand.Rand) (string, bool) {
	return func(r *recoveryRun, _ *rand.Rand) (string, bool) {
		before := r.resets()
		remove(r)
		ok := waitFor(func() bool { return r.resets() >= before+len(r.clients) })
		return fmt.Sprintf("%d notices", r.resets()-before), ok
	}
}

// deleteStreams removes the publications, but not the positions, while a client is away. The others
// lose nothing.
func deleteStreams(r *recoveryRun, rng *rand.Rand) (string, bool) {
	for _, topic := range r.topics {
		topic.mu.Lock()
		topic.trimmed = true
		topic.mu.Unlock()
	}
	client := r.clients[rng.IntN(len(r.clients))]
	client.away.Store(true)
	left := waitFor(func() bool {
		client.mu.Lock()
		defer client.mu.Unlock()
		return client.addr == ""
	})
	time.Sleep(about(rng, 500*time.Millisecond))
	before := r.resets()
	deleted := r.deleteKeys("stream")
	client.away.Store(false)
	ok := waitFor(func() bool { return r.resets() > before })
	return fmt.Sprintf("%d streams, %d notices", deleted, r.resets()-before), left && ok && deleted > 0
}

// deleteKeys deletes the keys of a type that belong to histories.
func (r *recoveryRun) deleteKeys(kind string) (deleted int) {
	ctx, admin := r.t.Context(), r.server.Client(r.t, func(opts *goredis.Options) { opts.MaxRetries = -1 })
	iter := admin.ScanType(ctx, 0, "*", 1000, kind).Iterator()
	for iter.Next(ctx) {
		if strings.Contains(iter.Val(), ":history:") {
			deleted += int(admin.Del(ctx, iter.Val()).Val())
		}
	}
	require.NoError(r.t, iter.Err())
	return deleted
}
