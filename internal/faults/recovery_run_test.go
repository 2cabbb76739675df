//go:build unix

package faults_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/client"
	"github.com/penstock-go/penstock/internal/redistest"
)

// wait bounds everything that must happen at some time.
const wait = time.Minute

const (
	recoveryNodes   = 3
	recoveryWriters = 6
	recoveryClients = 6
)

// A recovery is a cluster of node processes with writers, and followers that move between them.
type recovery struct {
	t          *testing.T
	topics     []string
	server     *redistest.Server   // nil with Sentinel
	sentinel   *redistest.Sentinel // nil without
	replicated bool                // the server
	durability broker.Durability   // of the topics that begin with "safe"

	followers []*follower
	away      atomic.Bool // followers stay disconnected
	stay      atomic.Bool // followers stay with their nodes

	mu       sync.Mutex // guards what follows
	nodes    []*recoveryNode
	started  int
	attempts map[string][]written // by key, in their order
	failed   int                  // attempts
}

// A recoveryNode is a node process.
type recoveryNode struct {
	*process

	link *redistest.Proxy // to a single server
}

func startDurable(r *recovery) {
	r.server = redistest.Start(r.t, "--appendonly", "yes", "--appendfsync", "always")
	r.durability.OnDisk = r.server.HasCommand(r.t, "waitaof")
}

func startVolatile(r *recovery) { r.server = redistest.Start(r.t) }

func startMonitored(r *recovery) {
	r.sentinel = redistest.StartSentinel(r.t)
	r.durability.Replicas = 1
}

// replicaOf is the argument --replicaof for a server.
func replicaOf(s *redistest.Server) string { return strings.Replace(s.Addr, ":", " ", 1) }

// runRecovery injects faults one after the other, each until all followers are live again, and checks what was received.
func runRecovery(t *testing.T, s *scenario, seed uint64, faults []recoveryFault) {
	t.Logf("seed %d, %s", seed, s.name)
	r := &recovery{t: t, topics: []string{"full/a", "full/b", "brief/a"}, attempts: map[string][]written{}}
	s.start(r)
	if r.durability != (broker.Durability{}) {
		r.topics = append(r.topics, "safe/a")
	}
	for range recoveryNodes {
		r.startNode()
	}
	writing, stop := context.WithCancel(t.Context())
	moving, end := context.WithCancel(t.Context())
	var writers, movers sync.WaitGroup
	defer func() { stop(); end(); writers.Wait(); movers.Wait() }()
	for i := range recoveryClients {
		f := r.follow(fmt.Sprint("client", i))
		movers.Go(func() { f.move(moving, rand.New(rand.NewPCG(seed, 1000+uint64(i)))) })
	}
	for i := range recoveryWriters {
		writers.Go(func() { r.write(writing, fmt.Sprint("writer", i), rand.New(rand.NewPCG(seed, 2000+uint64(i)))) })
	}
	r.awaitLive("start")
	rng := rand.New(rand.NewPCG(seed, 1))
	for _, f := range faults {
		time.Sleep(time.Duration(rng.IntN(1000)) * time.Millisecond) // something to lose
		f.inject(r, rng)
		healed := time.Now()
		r.awaitLive(f.name)
		t.Logf("%s: clients live after %v", f.name, time.Since(healed))
	}
	r.stay.Store(true)
	r.eventually("presence of all", func() bool { return !slices.ContainsFunc(r.followers, func(f *follower) bool { return !f.seesAll(r) }) })
	stop()
	writers.Wait()
	r.check(s)
}

func (r *recovery) startNode() {
	spec := nodeSpec{Durability: r.durability}
	n := &recoveryNode{}
	if r.sentinel != nil {
		spec.Redis = r.sentinel.Address()
	} else {
		n.link = redistest.StartProxy(r.t, r.server.Addr)
		spec.Redis.Addr = n.link.Addr
	}
	r.started++
	n.process = startTest(r.t, "TestRecoveryNode", recoveryNodeEnv, fmt.Sprint("node", r.started), spec)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.nodes = append(r.nodes, n)
}

// takeDown removes a node from those to which clients connect.
func (r *recovery) takeDown(rng *rand.Rand) *recoveryNode {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := rng.IntN(len(r.nodes))
	n := r.nodes[i]
	r.nodes = slices.Delete(slices.Clone(r.nodes), i, i+1)
	return n
}

// pick returns the address of a node.
func (r *recovery) pick(rng *rand.Rand) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.nodes[rng.IntN(len(r.nodes))].addr
}

// write publishes stories until ctx is done, one at a time, and connects to another node now and then. What may not be stored
// is tried again with the same key, mostly.
func (r *recovery) write(ctx context.Context, name string, rng *rand.Rand) {
	c, l := newClient(r.pick(rng), name, client.Options{PingInterval: time.Second})
	defer func() { _ = c.Close(ctx) }()
	for number := 1; ctx.Err() == nil; number++ {
		if number%20 == 0 {
			l.move(r.pick(rng))
		}
		m := write{story{Topic: r.topics[rng.IntN(len(r.topics))], Key: fmt.Sprint(name, "-", number), Begun: now()}}
		for again := true; again && ctx.Err() == nil; again = rng.IntN(4) > 0 {
			attempt, cancel := context.WithTimeout(ctx, 2*attemptTimeout)
			answer, err := client.Call[written](attempt, c, m)
			cancel()
			if err != nil {
				answer = written{Outcome: unknown}
			}
			if r.record(m.Key, answer); answer.Outcome == stored {
				break
			}
			l.move(r.pick(rng)) // the node may be gone
		}
		time.Sleep(time.Duration(rng.IntN(120)) * time.Millisecond)
	}
}

func (r *recovery) record(key string, answer written) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.attempts[key] = append(r.attempts[key], answer)
	if answer.Outcome != stored {
		r.failed++
	}
}

// failures returns the number of attempts that did not succeed.
func (r *recovery) failures() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}

// resets returns how often followers had to load their state.
func (r *recovery) resets() int { return r.sum(func(l *ledger) int { return l.resets }) }

// ended returns how often followers have learned that an epoch has ended.
func (r *recovery) ended() int { return r.sum(func(l *ledger) int { return l.ended }) }

func (r *recovery) sum(count func(*ledger) int) (n int) {
	for _, f := range r.followers {
		f.mu.Lock()
		for _, l := range f.ledgers {
			n += count(l)
		}
		f.mu.Unlock()
	}
	return n
}

// failing begins a fault, and waits until it has had an effect: a number that has grown.
func (r *recovery) failing(effect string, count func() int, by int, begin func()) {
	r.t.Helper()
	before := count()
	begin()
	r.eventually(effect, func() bool { return count() >= before+by })
}

func (r *recovery) eventually(what string, done func() bool) {
	r.t.Helper()
	for deadline := time.Now().Add(wait); !done(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			for _, n := range r.nodes {
				n.kill()
				r.t.Logf("%s: %s", n.name, &n.stderr)
			}
			require.Fail(r.t, "no "+what)
		}
	}
}

// awaitLive waits until all followers have received on all topics what was begun from now on.
func (r *recovery) awaitLive(after string) {
	r.t.Helper()
	begun := now()
	r.eventually("deliveries to all clients after: "+after, func() bool {
		return !slices.ContainsFunc(r.followers, func(f *follower) bool { return !f.isLive(begun) })
	})
}
