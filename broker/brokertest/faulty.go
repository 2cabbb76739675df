package brokertest

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/cluster"
	"github.com/penstock-go/penstock/internal/cluster/enginetest"
	"github.com/penstock-go/penstock/internal/timerqueue"
)

// A FaultyStore is a store of histories and values in virtual time, with the nodes that use it. An
// Append, its answer, its delivery to each node, reads and confirmations are separate events, after
// times that are drawn from a seed: some milliseconds, sometimes half a second. So what the
// contract of [broker.Histories] permits happens without any fault: a publication is delivered
// before its Append returns, or is read by others before that. Faults are added by SetFaults and by
// the methods that interrupt nodes or replace the store.
//
// The same seed and the same calls in the same order give the same times, as far as the scheduler
// of Go permits. The store keeps everything that was ever stored, and no topic is forgotten.
//
// Its methods are safe for concurrent use, and return at once; Crash also waits for functions of
// handlers that run. The store has no goroutine while nothing happens, and each node has one for its
// heartbeats. The functions of handlers are called on goroutines of their own.
type FaultyStore struct {
	network *enginetest.Network // what the nodes send each other without a history
	pubsub  *cluster.Broker
	queue   timerqueue.Queue[*faultyEvent]

	// mu guards what follows and everything of hosts, nodes and calls. While it is held, the locks
	// of the network and of queues may be acquired, but no function of a handler is called.
	mu       sync.Mutex
	rng      *rand.Rand
	data     *faultyData
	faults   StoreFaults
	hosts    map[string]*faultyHost
	nodes    []*faultyNode // those that have neither closed nor crashed, in the order of Connect
	waiting  int           // calls
	occurred map[string]int

	unanswered map[string]int // Appends that were processed and still wait, by topic
}

// Faulty returns a store for a test in a testing/synctest bubble. It must be created and used in
// the same bubble, and its nodes must be closed before the bubble ends.
func Faulty(seed uint64) *FaultyStore {
	rng := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a simulation
	s := &FaultyStore{
		network: enginetest.New(), rng: rng, data: newFaultyData(rng),
		hosts: map[string]*faultyHost{}, occurred: map[string]int{}, unanswered: map[string]int{},
	}
	s.network.Randomize(seed)
	s.pubsub = cluster.New(s.network)
	return s
}

// Node returns the store as the node of that name reaches it. Each call of Connect or
// ConnectHistory adds a node; one that is started again has the same name. What has no history
// (Publish, presence, the liveness of nodes) goes through a network that delays packets. Its
// packets and those of the store are delayed, lost and interrupted independently, except for the
// methods that name a node.
func (s *FaultyStore) Node(name string) broker.HistoryBroker { return s.NodeWith(name, s.pubsub) }

// NodeWith is Node with another broker for what has no history, such as one that an adapter
// implements. FaultyStore disturbs only the half of histories and values: a test must disturb or
// kill the node of the other broker itself.
func (s *FaultyStore) NodeWith(name string, pubsub broker.Broker) broker.HistoryBroker {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.hosts[name]
	if h == nil {
		h = &faultyHost{}
		s.hosts[name] = h
	}
	return faultyBroker{s, h, pubsub}
}

// A faultyHost is where the nodes of a name run, one after the other or at the same time.
type faultyHost struct {
	cutOff, paused bool
}

// A faultyBroker is a FaultyStore as a host reaches it.
type faultyBroker struct {
	store  *FaultyStore
	host   *faultyHost
	pubsub broker.Broker
}

// Connect adds a node.
func (b faultyBroker) Connect(h broker.Callbacks) broker.Node {
	return b.ConnectHistory(h, broker.HistoryCallbacks{})
}

// ConnectHistory adds a node.
func (b faultyBroker) ConnectHistory(h broker.Callbacks, hh broker.HistoryCallbacks) broker.HistoryNode {
	n := &faultyNode{
		Node: b.pubsub.Connect(h), store: b.store, host: b.host, handler: hh.Complete(),
		subs: map[string]*faultySub{}, appends: map[string]*faultyLine{},
	}
	s := b.store
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nodes = append(s.nodes, n)
	n.up = true
	if n.host.cutOff {
		n.interruptLocked()
	}
	n.disturbLocked()
	return n
}

// A faultyEvent happens at a time.
type faultyEvent struct {
	store  *FaultyStore
	place  int32
	happen func()
}

func (e *faultyEvent) Place() *int32 { return &e.place }

func (e *faultyEvent) Fire() {
	e.store.mu.Lock()
	defer e.store.mu.Unlock()
	e.happen()
}

// afterLocked calls happen after d, with the lock held.
func (s *FaultyStore) afterLocked(d time.Duration, happen func()) {
	s.queue.Set(&faultyEvent{store: s, happen: happen}, d)
}

// delayLocked returns how long something takes.
func (s *FaultyStore) delayLocked() time.Duration {
	most := 5 * time.Millisecond
	switch n := s.rng.IntN(32); {
	case n == 0:
		most = 500 * time.Millisecond
	case n < 6:
		most = 50 * time.Millisecond
	}
	d := time.Duration(s.rng.Int64N(int64(most)))
	if s.faults.Slow > 0 {
		d += time.Duration(s.rng.Int64N(int64(s.faults.Slow)))
	}
	return d
}

// happensLocked decides whether something happens that has a probability, and counts it.
func (s *FaultyStore) happensLocked(name string, probability float64) bool {
	if probability <= 0 || s.rng.Float64() >= probability {
		return false
	}
	s.occurred[name]++
	return true
}

// noteEarlyLocked counts what happens to a topic while a publisher still waits.
func (s *FaultyStore) noteEarlyLocked(name, topic string) {
	if s.unanswered[topic] > 0 {
		s.occurred[name]++
	}
}

// coinLocked is true half of the time.
func (s *FaultyStore) coinLocked() bool { return s.rng.IntN(2) == 0 }

// A faultyLine orders events that must not overtake each other.
type faultyLine struct{ last time.Time }

// next returns after which time the next event happens, if it takes d.
func (l *faultyLine) next(d time.Duration) time.Duration {
	now := time.Now()
	if at := now.Add(d); at.After(l.last) {
		l.last = at
	} else {
		l.last = l.last.Add(1)
	}
	return l.last.Sub(now)
}
