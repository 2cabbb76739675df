package runs_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
)

// A simStore is a store of histories and values that survives failovers, perhaps without what it has
// stored last. Nodes reach it through a simNode.
type simStore struct {
	mistake mistake

	mu       sync.Mutex
	rng      *rand.Rand
	state    simState
	journal  []func(*simState) // every change since the store was empty
	version  uint64            // of the last value, in whatever state
	epochs   int
	previous string // the epoch before this one; "" without a failover
	nodes    []*simNode
	faults   map[string]int
	healthy  bool
	down     time.Time                  // until then, calls fail
	refuse   func(*broker.Append) error // before anything else; nil refuses nothing
}

// A mistake is a defect of the store, or none, for tests of the model.
type mistake string

const (
	noFence mistake = "appends with a lower fence are stored"
	noEpoch mistake = "appends of an ended epoch are stored"
	noLast  mistake = "the end does not close the log"
)

// A simState is what the store has. A failover brings back an earlier one.
type simState struct {
	logs   map[string]*simLog
	values map[string]simValue
}

type simLog struct {
	entries []broker.Publication // the one at index i has offset i+1
	fence   uint64
	closed  bool
	keys    map[string]uint64 // offsets of idempotency keys
	ended   uint64            // the offset at which the previous epoch ended
}

type simValue struct {
	data    []byte
	version uint64
	expires time.Time
}

func newSimStore(seed uint64, m mistake) *simStore {
	return &simStore{
		mistake: m, rng: rand.New(rand.NewPCG(seed, 1)), state: newSimState(), faults: map[string]int{},
	}
}

func newSimState() simState {
	return simState{logs: map[string]*simLog{}, values: map[string]simValue{}}
}

// change makes a change that a failover may undo.
func (s *simStore) change(f func(*simState)) {
	f(&s.state)
	s.journal = append(s.journal, f)
}

// changes returns how many changes there were that no failover has undone.
func (s *simStore) changes() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.journal)
}

func (s *simStore) epoch() string { return fmt.Sprintf("e%d", s.epochs) }

// happens decides whether a fault occurs, with a probability in thousandths. The lock must be held.
func (s *simStore) happens(fault string, thousandths int) bool {
	if s.healthy || s.rng.IntN(1000) >= thousandths {
		return false
	}
	s.faults[fault]++
	return true
}

// upTo returns a random time. The lock must be held.
func (s *simStore) upTo(longest time.Duration) time.Duration {
	return time.Duration(s.rng.Int64N(int64(longest)))
}

// failOver begins a new epoch without the last changes.
func (s *simStore) failOver(lose int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.previous = s.epoch()
	s.epochs++
	s.faults["failover"]++
	s.journal = slices.Clip(s.journal[:max(0, len(s.journal)-lose)])
	s.state = newSimState()
	for _, f := range s.journal {
		f(&s.state)
	}
	s.change(func(st *simState) {
		for _, l := range st.logs {
			l.ended = uint64(len(l.entries))
		}
	})
	for _, n := range s.nodes {
		n.cutOff(s.upTo(1500 * time.Millisecond))
	}
}

// append stores a publication, and passes it on to the nodes that follow the topic.
func (s *simStore) append(a *broker.Append) (broker.Appended, error) {
	if s.refuse != nil {
		if err := s.refuse(a); err != nil {
			return broker.Appended{}, err
		}
	}
	l := s.state.logs[a.Topic]
	if l == nil {
		l = &simLog{}
	}
	offset, known := l.keys[a.IdempotencyKey]
	switch {
	case known && a.IdempotencyKey != "":
		return broker.Appended{Position: broker.Position{Epoch: s.epoch(), Offset: offset}, Duplicate: true}, nil
	case l.closed:
		return broker.Appended{}, errors.Errorf(errors.FailedPrecondition, "the topic is closed")
	case a.Fence < l.fence && s.mistake != noFence:
		return broker.Appended{}, errors.Errorf(errors.Aborted, "the fence is %d, and the topic has %d", a.Fence, l.fence)
	case a.Epoch != "" && a.Epoch != s.epoch() && s.mistake != noEpoch:
		return broker.Appended{}, errors.Errorf(errors.Aborted, "the epoch has ended")
	}
	p := broker.Publication{
		Position: broker.Position{Epoch: s.epoch(), Offset: uint64(len(l.entries)) + 1}, At: time.Now(), Packet: slices.Clone(a.Packet),
	}
	topic, key, fence, last := a.Topic, a.IdempotencyKey, a.Fence, a.Last && s.mistake != noLast
	s.change(func(st *simState) {
		l := st.logs[topic]
		if l == nil {
			l = &simLog{keys: map[string]uint64{}}
			st.logs[topic] = l
		}
		l.entries = append(l.entries, p)
		l.fence, l.closed = max(l.fence, fence), last
		l.keys[key] = p.Position.Offset
	})
	for _, n := range s.nodes {
		n.passOn(topic, p)
	}
	return broker.Appended{Position: p.Position}, nil
}

// read returns publications of a topic.
func (s *simStore) read(q *broker.Query) broker.Page {
	page := broker.Page{Position: broker.Position{Epoch: s.epoch()}}
	l := s.state.logs[q.Topic]
	if l == nil {
		l = &simLog{}
	}
	page.Position.Offset = uint64(len(l.entries))
	page.Closed = l.closed
	if s.previous != "" {
		page.Previous = broker.Position{Epoch: s.previous, Offset: l.ended}
	}
	for _, p := range l.entries[min(q.After, uint64(len(l.entries))):] {
		if len(page.Publications) < q.Limit {
			page.Publications = append(page.Publications, p)
		}
	}
	return page
}

// load returns a value.
func (s *simStore) load(key string) broker.Value {
	v := s.state.values[key]
	if !time.Now().Before(v.expires) {
		return broker.Value{}
	}
	return broker.Value{Data: slices.Clone(v.data), Version: v.version}
}

// store replaces a value that has a version.
func (s *simStore) store(key string, data []byte, version uint64, lifetime time.Duration) (uint64, error) {
	if held := s.load(key).Version; held != version {
		return 0, errors.Errorf(errors.Aborted, "the value has the version %d, and not %d", held, version)
	}
	s.version++
	v := simValue{slices.Clone(data), s.version, time.Now().Add(lifetime)}
	s.change(func(st *simState) { st.values[key] = v })
	if lifetime <= 0 {
		return 0, nil
	}
	return v.version, nil
}

// logs returns the logs of runs, by the IDs of the runs.
func (s *simStore) logs() map[string]*simLog {
	s.mu.Lock()
	defer s.mu.Unlock()
	logs := map[string]*simLog{}
	for topic, l := range maps.All(s.state.logs) {
		parts := strings.SplitN(topic, "/", 3)
		logs[parts[1]] = l
	}
	return logs
}
