//go:build unix

package faults_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/redistest"
)

// A recoveryRun is a cluster of node processes with publishers, and clients that move between them.
type recoveryRun struct {
	t      *testing.T
	kind   topology
	seed   uint64
	topics map[string]*topicRecord
	names  []string // of the topics
	spec   nodeSpec // of the nodes, without a name

	server   *redistest.Server // a single one, or the master
	attached *redistest.Server // a replica of a single one that a fault has started
	replica  *redistest.Server // of a replicated one
	backlog  *relay            // through which the replica follows the master
	sentinel *redistest.Sentinel
	servers  []*redistest.Server // of a Cluster: the masters, then their replicas

	stop      chan struct{} // ends the publishers of this process
	writers   sync.WaitGroup
	clients   []*follower
	leave     context.CancelFunc
	following sync.WaitGroup

	mu       sync.Mutex // guards what follows
	nodes    []*storyNode
	links    []*relay        // of all nodes
	outcomes map[outcome]int // of all attempts that have ended
	slowest  time.Duration   // until all clients were live after a fault
	effects  []string
}

// A storyNode is a node process, as this process sees it.
type storyNode struct {
	*process

	link       *relay // to Redis; nil if the node connects directly
	door       *relay // for clients
	events     chan nodeEvent
	goroutines int // when it started
	up         bool
	reserved   bool // for one fault
	tried      int  // attempts that have begun
}

const (
	recoveryNodes   = 3
	nodePublishers  = 2
	remoteWriters   = 2
	recoveryClients = 6
	publishInterval = 60 * time.Millisecond
)

// topology is how Redis is run.
type topology string

const (
	durable    topology = "durable"    // one server, which writes every command to disk
	volatile   topology = "volatile"   // one server without persistence
	replicated topology = "replicated" // a master and a replica, without Sentinel
	monitored  topology = "sentinel"
	clustered  topology = "cluster"
)

func startRecovery(t *testing.T, kind topology, seed uint64) *recoveryRun {
	r := &recoveryRun{
		t: t, kind: kind, seed: seed, topics: map[string]*topicRecord{}, names: []string{"full/a", "full/b", "brief/a"},
		spec: nodeSpec{Kind: single}, stop: make(chan struct{}), outcomes: map[outcome]int{},
	}
	switch kind {
	case durable:
		r.server = redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	case volatile:
		r.server = redistest.Start(t)
	case replicated:
		r.server, r.replica = redistest.Start(t), redistest.Start(t)
		r.backlog = startRelay(t, r.server.Addr, nil)
		r.replicate()
	case monitored:
		r.sentinel = redistest.StartSentinel(t)
		r.sentinel.Client(t, func(opts *goredis.FailoverOptions) {
			r.spec = nodeSpec{Kind: sentinel, Addrs: opts.SentinelAddrs, Master: opts.MasterName}
		})
	case clustered:
		r.spec.Kind = cluster
		r.servers, r.spec.Addrs = startCluster(t)
		r.names = []string{"full/a", "full/b", "full/c", "full/d", "brief/a", "brief/b"}
	}
	if r.spec.Durability = r.durability(); r.spec.Durability != (broker.Durability{}) {
		r.names = append(r.names, "safe/a", "safe/b")
	}
	for _, name := range r.names {
		r.topics[name] = newTopicRecord(name, retainedBy(name))
	}
	for range recoveryNodes {
		r.startNode()
	}
	r.startClients()
	r.awaitLive("start", 0)
	return r
}

// durability returns what the faults of a run must not break.
func (r *recoveryRun) durability() broker.Durability {
	switch r.kind {
	case replicated, monitored, clustered:
		return broker.Durability{Replicas: 1}
	case durable:
		return broker.Durability{OnDisk: r.server.HasCommand(r.t, "waitaof")}
	}
	return broker.Durability{} // nothing survives
}

// rng returns a generator that depends on the seed of the run.
func (r *recoveryRun) rng(purpose uint64) *rand.Rand { return rand.New(rand.NewPCG(r.seed, purpose)) }

// startNode starts a node process and waits until it accepts connections.
func (r *recoveryRun) startNode() {
	r.mu.Lock()
	number := len(r.nodes)
	r.mu.Unlock()
	n := &storyNode{events: make(chan nodeEvent, 100)}
	spec := recoveryNodeSpec{Node: r.spec, Topics: r.names, Publishers: nodePublishers, Interval: publishInterval, Seed: r.seed + uint64(number)}
	spec.Node.Name = fmt.Sprint("node", number)
	if r.server != nil {
		r.mu.Lock()
		n.link = startRelay(r.t, r.server.Addr, nil)
		r.links = append(r.links, n.link)
		r.mu.Unlock()
		spec.Node.Addrs = []string{n.link.addr}
	}
	n.process = startTest(r.t, "TestRecoveryNode", recoveryNodeEnv, spec.Node.Name, spec, func(line string) { r.handle(n, line) })
	listen := n.await(r.t, "listen")
	n.goroutines = listen.Count
	rng := r.rng(1000 + uint64(number))
	n.door = startRelay(r.t, listen.Text, func() sabotage {
		kinds := []sabotageKind{cutShort, cutShort, cutShort, halfOpen, paused}
		if rng.IntN(2) == 0 {
			return sabotage{}
		}
		return sabotage{1 + rng.IntN(30_000), kinds[rng.IntN(len(kinds))]}
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	n.up = true
	r.nodes = append(r.nodes, n)
}

// await returns the next event of a kind.
func (n *storyNode) await(t *testing.T, kind string) nodeEvent {
	t.Helper()
	timeout := time.After(wait)
	for {
		select {
		case e := <-n.events:
			if e.Kind == kind {
				return e
			}
		case <-timeout:
			require.Fail(t, "no event "+kind, "%s: %s", n.name, &n.stderr)
		}
	}
}

// handle handles a line that a node has printed. The last one of a killed node may be incomplete.
func (r *recoveryRun) handle(n *storyNode, line string) {
	var e nodeEvent
	if json.Unmarshal([]byte(line), &e) != nil {
		return
	}
	id := storyID{e.Publisher, e.Number}
	switch e.Kind {
	case "begin":
		r.begin(n, e.Topic, id, e.At)
	case "end":
		r.end(e.Topic, id, e.Outcome, at(e.Epoch, e.Offset))
	default:
		n.events <- e
	}
}

func (r *recoveryRun) begin(n *storyNode, topic string, id storyID, at int64) {
	r.topics[topic].begin(id, at)
	if n != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		n.tried++
	}
}

// pick returns the address of a node that accepts connections.
func (r *recoveryRun) pick(rng *rand.Rand) (addr string, ok bool) {
	nodes := r.upNodes()
	if len(nodes) == 0 {
		return "", false
	}
	return nodes[rng.IntN(len(nodes))].door.addr, true
}

func (r *recoveryRun) upNodes() []*storyNode {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.nodes), func(n *storyNode) bool { return !n.up })
}

// startClients starts the clients and the writers. They end before the run does.
func (r *recoveryRun) startClients() {
	for i := range remoteWriters {
		rng := r.rng(2000 + uint64(i))
		w := &remoteWriter{name: fmt.Sprint("writer", i), pick: func() (string, bool) { return r.pick(rng) }}
		p := &publisher{
			name: w.name, topics: r.names, rng: r.rng(3000 + uint64(i)), publish: w.publish, end: r.end,
			begin: func(topic string, id storyID, at int64) { r.begin(nil, topic, id, at) },
		}
		r.writers.Go(func() {
			defer w.close()
			p.run(r.stop, publishInterval)
		})
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.leave = cancel
	r.t.Cleanup(func() {
		cancel()
		r.following.Wait()
	})
	for i := range recoveryClients {
		rng, picks := r.rng(4000+uint64(i)), r.rng(5000+uint64(i))
		f := &follower{
			name: fmt.Sprint("client", i), rng: rng, topic: r.topics, pick: func() (string, bool) { return r.pick(picks) },
			last: map[string]position{}, newest: map[string]int64{},
		}
		r.clients = append(r.clients, f)
		r.following.Go(func() { f.run(ctx) })
	}
}

func (r *recoveryRun) end(topic string, id storyID, o outcome, p position) {
	r.topics[topic].end(id, o, p)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.outcomes[o]++
}

// failures returns the number of attempts that did not succeed.
func (r *recoveryRun) failures() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.outcomes[notStored] + r.outcomes[unknown]
}

// resets returns how often clients had to load their state.
func (r *recoveryRun) resets() (n int) {
	for _, c := range r.clients {
		c.mu.Lock()
		n += c.resets
		c.mu.Unlock()
	}
	return n
}

// eventually waits for a condition.
func (r *recoveryRun) eventually(what string, done func() bool) {
	r.t.Helper()
	if assert.Eventually(r.t, done, wait, 20*time.Millisecond, what) {
		return
	}
	for _, c := range r.clients {
		r.t.Log(c.lag(now()))
	}
	for _, n := range r.upNodes() {
		_ = n.cmd.Process.Kill()
		<-n.read
		_ = n.cmd.Wait()
		r.t.Logf("%s: %s", n.name, &n.stderr)
	}
	require.Fail(r.t, "no "+what)
}

// awaitLive waits until all clients receive on all topics what was begun after a time.
func (r *recoveryRun) awaitLive(fault string, after int64) {
	r.t.Helper()
	r.eventually("deliveries to all clients after: "+fault, func() bool {
		return !slices.ContainsFunc(r.clients, func(f *follower) bool { return !f.isLive(after) })
	})
	if after > 0 {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.slowest = max(r.slowest, time.Duration(now()-after))
	}
}

// inject injects faults at the same time, and waits until all clients are live.
func (r *recoveryRun) inject(rng *rand.Rand, faults ...*recoveryFault) {
	time.Sleep(about(rng, 500*time.Millisecond)) // something to lose
	var all sync.WaitGroup
	names := make([]string, len(faults))
	for i, f := range faults {
		names[i] = f.name
		own := rand.New(rand.NewPCG(rng.Uint64(), uint64(i)))
		all.Go(func() {
			effect, ok := f.inject(r, own)
			assert.True(r.t, ok, "%s had no effect: %s", f.name, effect)
			r.mu.Lock()
			defer r.mu.Unlock()
			r.effects = append(r.effects, f.name+": "+effect)
		})
	}
	all.Wait()
	healed := now()
	r.awaitLive(strings.Join(names, ", "), healed)
	r.t.Logf("%s %s: clients live after %d ms", time.Unix(0, healed).Format("15:04:05.000"), strings.Join(r.effects[len(r.effects)-len(faults):], "; "), (now()-healed)/1e6)
}
