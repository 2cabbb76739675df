package sequencer_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/sequencer"
)

// This file simulates a store with a seed: publications get lost, repeated and delayed on their way to a node,
// reads fail, and failovers lose the end of the history.

// slowest is for a publication on its way to a node.
const slowest = 30 * time.Millisecond

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
	conns    []*simConn
	faults   map[string]int
	healthy  bool
}

func newSimStore(seed uint64, keep int) *simStore {
	return &simStore{
		rng: rand.New(rand.NewPCG(seed, 1)), keep: keep, epoch: "e0",
		faults: map[string]int{},
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

func (s *simStore) append(packet string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.top++
	p := broker.Publication{Position: broker.Position{Epoch: s.epoch, Offset: s.top}, Packet: []byte(packet)}
	s.stored = append(s.stored, p)
	s.stored = s.stored[max(0, len(s.stored)-s.keep):]
	publisher := s.rng.IntN(len(s.conns))
	for i, conn := range s.conns {
		if i == publisher {
			time.AfterFunc(s.delay(slowest), func() { conn.call(func(s *sequencer.Sequencer, p broker.Publication) { s.Stored(p) }, p) })
		}
		if s.happens("publication lost", 10) {
			continue
		}
		conn.passOn(p, s.delay(slowest))
		if s.happens("publication repeated", 5) {
			conn.passOn(p, s.delay(2*slowest))
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
	s.previous = broker.Position{Epoch: s.epoch, Offset: s.top}
	s.epochs++
	s.epoch = fmt.Sprintf("e%d", s.epochs)
	s.faults["failover"]++
}

// A simConn is the connection of a node.
type simConn struct {
	broker.Histories

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
