package sequencer_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/sequencer"
	"github.com/penstock-go/penstock/internal/testscale"
)

// This file runs sequencers of several nodes and subscribers that move between them on a simulated
// store, with a seed per run: publications get lost, repeated and delayed on their way to a node,
// reads fail, and failovers lose the end of the history. It compares what every subscriber sees with
// what the store has assigned. While nothing fails, nothing is lost, however little the store retains.

// A simStore is a store of one topic that survives failovers, perhaps without its last publications.
type simStore struct {
	mu       sync.Mutex
	rng      *rand.Rand
	keep     int
	epoch    string
	epochs   int
	previous broker.Position
	top      uint64
	stored   []broker.Publication
	log      []broker.Publication       // all that led to the current position
	assigned map[broker.Position]string // the truth, of all epochs
	conns    []*simConn
	faults   map[string]int
	healthy  bool

	faultless bool          // healthy from the beginning
	slowest   time.Duration // for a publication on its way to a node
}

func newSimStore(seed uint64, keep int) *simStore {
	return &simStore{
		rng: rand.New(rand.NewPCG(seed, 1)), keep: keep, epoch: "e0",
		assigned: map[broker.Position]string{}, faults: map[string]int{}, slowest: 30 * time.Millisecond,
	}
}

// happens decides whether a fault occurs. The lock must be held.
func (s *simStore) happens(fault string, percent int) bool {
	if s.healthy || s.rng.IntN(100) >= percent {
		return false
	}
	s.faults[fault]++
	return true
}

func (s *simStore) append(packet, key string, removed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.top++
	p := broker.Publication{
		Position: broker.Position{Epoch: s.epoch, Offset: s.top}, Packet: []byte(packet), StateKey: key, Removed: removed,
	}
	s.assigned[p.Position] = packet
	s.log = append(s.log, p)
	s.stored = append(s.stored, p)
	s.stored = s.stored[max(0, len(s.stored)-s.keep):]
	publisher := s.rng.IntN(len(s.conns))
	for i, conn := range s.conns {
		if i == publisher {
			time.AfterFunc(s.delay(s.slowest), func() { conn.call((*sequencer.Sequencer).Stored, p) })
		}
		if s.happens("publication lost", 10) {
			continue
		}
		conn.passOn(p, s.delay(s.slowest))
		if s.happens("publication repeated", 5) {
			conn.passOn(p, s.delay(2*s.slowest))
		}
	}
}

// delay returns a random time. The lock must be held.
func (s *simStore) delay(longest time.Duration) time.Duration {
	return time.Duration(s.rng.Int64N(int64(longest)))
}

// failOver begins a new epoch without the last publications.
func (s *simStore) failOver(lose int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	lose = min(lose, len(s.stored))
	s.stored = slices.Clip(s.stored[:len(s.stored)-lose])
	s.top -= uint64(lose)
	s.log = slices.Clip(s.log[:s.top])
	s.previous = broker.Position{Epoch: s.epoch, Offset: s.top}
	s.epochs++
	s.epoch = fmt.Sprintf("e%d", s.epochs)
	s.faults["failover"]++
}

// A simConn is the connection of a node.
type simConn struct {
	broker.ValueStore

	store *simStore
	next  time.Time // when the next publication can arrive; guarded by the store's lock

	mu  sync.Mutex
	seq *sequencer.Sequencer
}

// passOn delivers a publication after some time, and after those before it.
func (s *simConn) passOn(p broker.Publication, after time.Duration) {
	if at := time.Now().Add(after); at.After(s.next) {
		s.next = at
	} else {
		s.next = s.next.Add(time.Nanosecond)
	}
	time.AfterFunc(time.Until(s.next), func() { s.call((*sequencer.Sequencer).Publish, p) })
}

func (s *simConn) call(method func(*sequencer.Sequencer, broker.Publication), p broker.Publication) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seq != nil {
		method(s.seq, p)
	}
}

func (s *simConn) Append(context.Context, broker.Append) (broker.Appended, error) {
	return broker.Appended{}, errors.New("not used")
}

func (s *simConn) Follow(string) {
	time.AfterFunc(10*time.Millisecond, func() { s.following() })
}

func (s *simConn) following() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seq != nil {
		s.seq.Following()
	}
}

func (s *simConn) Unfollow(string) {}

func (s *simConn) Read(_ context.Context, q broker.Query) (page broker.Page, err error) {
	st := s.store
	err = st.read(func() {
		page = broker.Page{Position: broker.Position{Epoch: st.epoch, Offset: st.top}, Previous: st.previous}
		for _, p := range st.stored {
			if p.Position.Offset > q.After && len(page.Publications) < q.Limit {
				page.Publications = append(page.Publications, p)
			}
		}
	})
	return page, err
}

// ReadAll reads each topic with Read.
func (s *simConn) ReadAll(ctx context.Context, b broker.Batch) ([]broker.BatchPage, error) {
	return readEach(ctx, s.Read, b)
}

// readEach answers a batch with a function that reads one topic.
func readEach(ctx context.Context, read func(context.Context, broker.Query) (broker.Page, error), b broker.Batch) (pages []broker.BatchPage, err error) {
	messages := uint64(b.MaxMessages)
	for _, q := range b.Topics {
		page, err := read(ctx, broker.Query{Topic: q.Topic, Retention: q.Retention, After: q.After, Limit: q.Limit})
		n := min(uint64(q.Limit), page.Position.Offset-min(q.After, page.Position.Offset))
		omitted := n > messages
		if omitted {
			page.Publications = nil
		} else {
			messages -= n
		}
		pages = append(pages, broker.BatchPage{Page: page, Omitted: omitted, Err: err})
	}
	return pages, nil
}

// ReadState returns up to three keys in the order of their names, or all if the bound of the part is large.
// The cursor is the last one, and means nothing in another epoch.
func (s *simConn) ReadState(_ context.Context, q broker.StateQuery) (part broker.StatePart, err error) {
	st := s.store
	err = st.read(func() {
		part.Position = broker.Position{Epoch: st.epoch, Offset: st.top}
		latest := map[string]broker.Publication{}
		for _, p := range st.log {
			if latest[p.StateKey] = p; p.Removed {
				delete(latest, p.StateKey)
			}
		}
		epoch, last, _ := strings.Cut(q.Cursor, " ")
		if q.Cursor != "" && epoch != st.epoch {
			last = "key 3"
		}
		keys := slices.Sorted(maps.Keys(latest))
		keys = slices.DeleteFunc(keys, func(key string) bool { return key <= last })
		if n := 1 + st.rng.IntN(3); q.MaxBytes < 1000 && n < len(keys) {
			keys = keys[:n]
			part.Next = st.epoch + " " + keys[n-1]
		}
		for _, key := range keys {
			part.Publications = append(part.Publications, latest[key])
		}
	})
	return part, err
}

// read calls f after some time with the lock held, and returns after some more time; or fails.
func (s *simStore) read(f func()) error {
	s.mu.Lock()
	delay := time.Duration(s.rng.IntN(20)) * time.Millisecond
	fails := s.happens("read failed", 5)
	s.mu.Unlock()
	time.Sleep(delay)
	if fails {
		return errors.New("the store is away")
	}
	s.mu.Lock()
	f()
	delay = time.Duration(s.rng.IntN(20)) * time.Millisecond
	if s.happens("answer delayed", 20) {
		delay += 100 * time.Millisecond
	}
	s.mu.Unlock()
	time.Sleep(delay)
	return nil
}

// connect adds a node.
func (s *simStore) connect(sink sequencer.Sink) *simConn {
	conn := &simConn{store: s}
	s.mu.Lock()
	s.conns = append(s.conns, conn)
	s.mu.Unlock()
	conn.mu.Lock()
	defer conn.mu.Unlock()
	conn.seq = sequencer.New(sequencer.NewReader(conn), "topic", broker.Retention{Messages: s.keep}, sink)
	return conn
}

// A simNode has a sequencer and subscribers.
type simNode struct {
	t     *testing.T
	store *simStore
	conn  *simConn
	seq   *sequencer.Sequencer
	subs  map[*subscriber]struct{} // guarded by the sequencer's lock
}

// A subscriber checks what it receives.
type subscriber struct {
	position  broker.Position
	seen      map[broker.Position]bool // since the last reset
	received  int
	losses    int
	recovered int
	joins     int
}

func (u *subscriber) receive(t *testing.T, store *simStore, p broker.Publication) {
	require.Equal(t, u.position.Offset+1, p.Position.Offset, "an offset was skipped or repeated without notice")
	require.False(t, u.seen[p.Position], "%v was received twice", p.Position)
	u.seen[p.Position] = true
	want, ok := store.assigned[p.Position]
	require.True(t, ok, "%v was never assigned", p.Position)
	require.Equal(t, want, string(p.Packet))
	u.position.Offset = p.Position.Offset
	u.received++
}

func (u *subscriber) lose(t *testing.T, l sequencer.Loss) {
	u.losses++
	switch {
	case l.Reset:
		u.position, u.seen = l.Position, map[broker.Position]bool{}
	case l.Epoch != "":
		require.Equal(t, u.position.Epoch, l.Epoch)
		u.position = broker.Position{Epoch: l.Position.Epoch, Offset: min(u.position.Offset, l.EndedAt)}
	default:
		require.Equal(t, u.position.Offset+1, l.From)
		require.GreaterOrEqual(t, l.To, l.From)
		u.position.Offset = l.To
	}
	require.Equal(t, l.Position, u.position)
}

func newSimNode(t *testing.T, store *simStore) *simNode {
	n := &simNode{t: t, store: store, subs: map[*subscriber]struct{}{}}
	n.conn = store.connect(sequencer.Sink{
		Deliver: func(p broker.Publication) {
			store.mu.Lock()
			defer store.mu.Unlock()
			for u := range n.subs {
				u.receive(t, store, p)
			}
		},
		Lost: func(l sequencer.Loss) {
			store.mu.Lock()
			if !l.Reset && l.Epoch == "" && len(store.stored) > 0 && l.Position.Epoch == store.epoch {
				assert.Less(t, l.To, store.stored[0].Position.Offset, "what is stored is not lost")
			}
			store.mu.Unlock()
			assert.False(t, store.faultless, "%+v was lost without a fault", l)
			for u := range n.subs {
				u.lose(t, l)
			}
		},
	})
	n.seq = n.conn.seq
	return n
}

// join continues a subscriber on the node.
func (n *simNode) join(u *subscriber, since broker.Position) {
	err := n.seq.Join(n.t.Context(), since, sequencer.NewCatchup(n.conn, n.store.keep, 1<<20).Topic(n.store.keep), func(j sequencer.Joined) {
		n.subs[u] = struct{}{}
		u.joins++
		if !j.Recovered || since.Epoch == "" {
			u.position, u.seen = j.Position, map[broker.Position]bool{}
			return
		}
		u.recovered++
		n.store.mu.Lock()
		defer n.store.mu.Unlock()
		if j.Ended != nil {
			require.Equal(n.t, since.Epoch, j.Ended.Epoch)
			u.position.Offset = min(u.position.Offset, j.Ended.Offset)
		}
		for _, p := range j.Publications {
			u.receive(n.t, n.store, p)
		}
		u.position.Epoch = j.Position.Epoch
		require.Equal(n.t, j.Position, u.position)
	})
	require.NoError(n.t, err)
}

func (n *simNode) leave(u *subscriber) {
	n.seq.WithLock(func() { delete(n.subs, u) })
}

func TestSequencer_SubscribersSeeEveryPublicationOnceInOrder(t *testing.T) {
	for seed := range testscale.Tiers[uint64](3, 4, 20) {
		for name, sc := range map[string]scenario{
			"without failovers": {keep: 600}, "with failovers": {keep: 600, failovers: true}, "with a short history": {keep: 3, failovers: true},
			"without faults": {keep: 3, faultless: true}, "slow without faults": {keep: 1, faultless: true, slowest: 900 * time.Millisecond},
		} {
			t.Run(fmt.Sprintf("%s %d", name, seed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { simulate(t, seed, sc) })
			})
		}
	}
}

type scenario struct {
	keep      int // publications
	failovers bool
	faultless bool
	slowest   time.Duration // 30 ms if it is 0
}

func simulate(t *testing.T, seed uint64, sc scenario) {
	const publications, subscribers = 1500, 12
	store := newSimStore(seed, sc.keep)
	store.healthy, store.faultless, store.slowest = sc.faultless, sc.faultless, cmp.Or(sc.slowest, store.slowest)
	rng := rand.New(rand.NewPCG(seed, 2))
	var nodes []*simNode
	for range 3 {
		nodes = append(nodes, newSimNode(t, store))
	}
	var clients sync.WaitGroup
	subs := make([]*subscriber, subscribers)
	stop := make(chan struct{})
	for i := range subs {
		u := new(subscriber)
		subs[i] = u
		own := rand.New(rand.NewPCG(seed, uint64(10+i)))
		clients.Go(func() { move(nodes, u, own, stop) })
	}
	for n := range publications {
		store.append(fmt.Sprint(n), "", false)
		time.Sleep(time.Duration(rng.IntN(6)) * time.Millisecond)
		switch n := rng.IntN(200); {
		case n == 0 && sc.failovers:
			store.failOver(rng.IntN(5))
			if rng.IntN(4) == 0 {
				store.failOver(1) // the store remembers only the end of this epoch
			}
		case n <= 2 && !sc.faultless:
			nodes[rng.IntN(len(nodes))].conn.following()
		}
	}
	store.mu.Lock()
	store.healthy = true
	store.mu.Unlock()
	close(stop)
	clients.Wait()
	time.Sleep(30 * time.Second) // the idle check finds what was lost last
	recovered, joins := 0, 0
	defer time.Sleep(time.Second) // reads that have begun end
	for _, n := range nodes {
		n.seq.WithLock(func() {
			for u := range n.subs {
				assert.Equal(t, broker.Position{Epoch: store.epoch, Offset: store.top}, u.position)
			}
		})
		n.seq.Close()
	}
	for _, u := range subs {
		recovered += u.recovered
		joins += u.joins - 1 // the first has no position
		if sc.keep > 3 {
			assert.Positive(t, u.received)
		}
	}
	if sc.faultless {
		return
	}
	for _, fault := range []string{"publication lost", "publication repeated", "read failed", "answer delayed"} {
		assert.Positive(t, store.faults[fault], fault)
	}
	if sc.failovers {
		assert.Positive(t, store.faults["failover"])
		return
	}
	assert.GreaterOrEqual(t, recovered*100, joins*97, "%d of %d subscribers that returned have recovered", recovered, joins)
}

// move lets a subscriber leave and return on any node until stop is closed. It ends subscribed.
func move(nodes []*simNode, u *subscriber, rng *rand.Rand, stop chan struct{}) {
	node := nodes[rng.IntN(len(nodes))]
	node.join(u, broker.Position{})
	for {
		select {
		case <-stop:
			return
		case <-time.After(time.Duration(rng.IntN(300)) * time.Millisecond):
		}
		node.leave(u)
		time.Sleep(time.Duration(rng.IntN(100)) * time.Millisecond)
		node = nodes[rng.IntN(len(nodes))]
		node.join(u, u.position)
	}
}
