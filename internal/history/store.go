package history

import (
	crand "crypto/rand"
	"sync"
	"time"

	"github.com/penstock-go/penstock/broker"
)

// A Store holds the histories of all topics. Its zero value is an empty store. It is safe for
// concurrent use.
type Store struct {
	mu     sync.Mutex
	topics map[string]*topic
	swept  time.Time // when forgotten topics were removed last
}

// metadataAge is how long the position of a topic outlives its last use.
const metadataAge = 24 * time.Hour

// A topic has its own lock, under which publications are delivered, so that their order is that
// of their offsets.
type topic struct {
	mu     sync.Mutex
	used   time.Time
	gone   bool // removed from the store
	epoch  string
	top    uint64               // the last offset
	stored []broker.Publication // adjacent, the last one has offset top
	bytes  int64                // of the packets in stored
	state  map[string]broker.Publication
	dedup  dedup
}

// Append stores a publication and calls deliver with it, unless it is a duplicate. deliver runs
// under the topic's lock: it must not block or call the store.
func (s *Store) Append(a broker.Append, deliver func(broker.Publication)) broker.Appended {
	now := time.Now()
	t := s.lock(a.Topic, now)
	defer t.mu.Unlock()
	if offset, ok := t.dedup.find(a.IdempotencyKey, now); ok {
		return broker.Appended{Position: broker.Position{Epoch: t.epoch, Offset: offset}, Duplicate: true}
	}
	t.top++
	p := broker.Publication{
		Position: broker.Position{Epoch: t.epoch, Offset: t.top},
		At:       now, Packet: a.Packet, StateKey: a.StateKey, Removed: a.Removed,
	}
	t.dedup.add(a.IdempotencyKey, t.top, now)
	t.stored = append(t.stored, p)
	t.bytes += int64(len(p.Packet))
	t.setState(p)
	t.trim(a.Retention, now)
	deliver(p)
	return broker.Appended{Position: p.Position}
}

// Read returns a page and calls follow under the topic's lock, so that the caller knows which
// publications follow the page. follow may be nil.
func (s *Store) Read(q broker.Query, follow func()) broker.Page {
	now := time.Now()
	t := s.lock(q.Topic, now)
	defer t.mu.Unlock()
	t.trim(q.Retention, now)
	if follow != nil {
		follow()
	}
	page := broker.Page{Position: broker.Position{Epoch: t.epoch, Offset: t.top}}
	first := t.top + 1 - uint64(len(t.stored)) // the offset of stored[0]
	from, to := max(q.After+1, first), t.top+1
	if q.Before > 0 {
		to = min(to, q.Before)
	}
	if from >= to || q.Limit <= 0 {
		return page
	}
	if limit := uint64(q.Limit); to-from > limit {
		if q.Backward {
			from = to - limit
		} else {
			to = from + limit
		}
	}
	page.Publications = append(page.Publications, t.stored[from-first:to-first]...)
	return page
}

// ReadState returns the latest publication of every key.
func (s *Store) ReadState(name string, r broker.Retention) broker.State {
	now := time.Now()
	t := s.lock(name, now)
	defer t.mu.Unlock()
	t.trim(r, now)
	state := broker.State{Position: broker.Position{Epoch: t.epoch, Offset: t.top}}
	for _, p := range t.state {
		state.Publications = append(state.Publications, p)
	}
	return state
}

// lock returns a topic with its lock held, and creates it on the first use.
func (s *Store) lock(name string, now time.Time) *topic {
	for {
		t := s.find(name, now)
		t.mu.Lock()
		if !t.gone {
			t.used = now
			return t
		}
		t.mu.Unlock()
	}
}

func (s *Store) find(name string, now time.Time) *topic {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.topics == nil {
		s.topics = map[string]*topic{}
	}
	if now.Sub(s.swept) > time.Hour {
		s.swept = now
		s.sweep(now)
	}
	t := s.topics[name]
	if t == nil {
		t = &topic{epoch: crand.Text(), used: now}
		s.topics[name] = t
	}
	return t
}

// sweep removes topics that have not been used for metadataAge. It must be called with s.mu held,
// before any topic's lock.
func (s *Store) sweep(now time.Time) {
	for name, t := range s.topics {
		t.mu.Lock()
		if now.Sub(t.used) > metadataAge {
			t.gone = true
			delete(s.topics, name)
		}
		t.mu.Unlock()
	}
}

// maxAge is the default of broker.Retention.Age.
const maxAge = 24 * time.Hour

// trim drops what the retention does not keep.
func (t *topic) trim(r broker.Retention, now time.Time) {
	age := r.Age
	if age <= 0 {
		age = maxAge
	}
	n := 0
	for n < len(t.stored) {
		p := t.stored[n]
		keep := len(t.stored)-n <= max(r.Messages, 1) && now.Sub(p.At) < age && (r.Bytes <= 0 || t.bytes <= r.Bytes)
		if keep {
			break
		}
		t.bytes -= int64(len(p.Packet))
		t.stored[n] = broker.Publication{} // frees the packet
		n++
	}
	t.stored = t.stored[n:]
	for key, p := range t.state {
		if now.Sub(p.At) >= age {
			delete(t.state, key)
		}
	}
}

func (t *topic) setState(p broker.Publication) {
	switch {
	case p.StateKey == "":
	case p.Removed:
		delete(t.state, p.StateKey)
	case t.state == nil:
		t.state = map[string]broker.Publication{p.StateKey: p}
	default:
		t.state[p.StateKey] = p
	}
}

// dedup remembers idempotency keys in the order in which they expire.
type dedup struct {
	offsets map[string]uint64
	queue   []dedupEntry
}

type dedupEntry struct {
	key   string
	until time.Time
}

// find returns the offset of a key. The empty key is not found.
func (d *dedup) find(key string, now time.Time) (offset uint64, ok bool) {
	for len(d.queue) > 0 && !d.queue[0].until.After(now) {
		delete(d.offsets, d.queue[0].key)
		d.queue = d.queue[1:]
	}
	offset, ok = d.offsets[key]
	return offset, ok
}

func (d *dedup) add(key string, offset uint64, now time.Time) {
	if key == "" {
		return
	}
	if d.offsets == nil {
		d.offsets = map[string]uint64{}
	}
	d.offsets[key] = offset
	d.queue = append(d.queue, dedupEntry{key, now.Add(broker.IdempotencyTime)})
}
