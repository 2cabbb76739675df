package memstore

import (
	"sync"
	"time"

	"github.com/penstock-go/penstock/broker"
)

// A Store holds the histories of all topics, and values. Its zero value is an empty store. It is safe
// for concurrent use.
//
// If its memory is full, calls that need more of it return a RESOURCE_EXHAUSTED error and change
// nothing, after they have removed what has expired of a few other topics. Others succeed: reading any
// topic, or publishing on one whose retention removes as much as is added.
//
// Reading creates nothing: a topic exists from its first Append on.
//
// Every call does a bounded amount of work in addition to its result: it removes at most a fixed
// number of publications, keys and topics that have expired. What has expired is not returned, even
// if it has not been removed.
//
// Locks: a call that holds a topic's lock or that of the values does not take the Store's. A call that
// holds the Store's lock takes that of the values, or a topic's if it need not wait.
type Store struct {
	// MaxBytes bounds the memory of packets, names, keys, and the data structures that
	// contain them; values have a quarter of it in addition, so that neither can fill that of the other. A packet that is both in the history and the state of a key counts twice. A map
	// keeps the memory of removed elements until it is empty, which does not count. 0 means
	// DefaultMaxBytes. It must not be changed after the first use.
	MaxBytes int64

	memory memory
	values values

	valueMemory memory

	mu     sync.Mutex
	topics map[string]*topic
	list   []*topic // the same topics
	next   int      // index in list of the topic that is cleaned next
	first  firstEpochs
}

// metadataAge is how long the position of a topic is kept after its last use, or after its last
// publication has expired.
const metadataAge = 24 * time.Hour

// Limits of the work of one call.
const (
	maxRemoved = 128 // publications and keys of a topic
	maxCleaned = 2   // topics
)

// Append stores a publication and calls publish with it, unless it is a duplicate or the topic refuses
// it. publish runs under the topic's lock, so that its calls are in the order of the offsets: it must not block or
// call the store.
func (s *Store) Append(a broker.Append, publish func(topic string, p broker.Publication)) (broker.Appended, error) {
	result, missing, err := s.append(a, publish)
	for retries := 2; missing > 0 && retries > 0; retries-- { // one for a new topic, one for its publication
		s.free(missing)
		result, missing, err = s.append(a, publish)
	}
	if missing > 0 {
		return broker.Appended{}, s.errFull("the publication was not stored,", missing)
	}
	return result, err
}

// append stores a publication, or returns how many bytes it needs that are not free, or why the topic
// refuses it.
func (s *Store) append(a broker.Append, publish func(topic string, p broker.Publication)) (_ broker.Appended, missing int64, _ error) {
	t, now, missing := s.lockNew(a.Topic)
	if missing > 0 {
		return broker.Appended{}, missing, nil
	}
	defer t.mu.Unlock()
	if offset, ok := t.keys.find(a.IdempotencyKey, now); ok {
		return broker.Appended{Position: broker.Position{Epoch: t.epoch, Offset: offset}, Duplicate: true}, 0, nil
	}
	if err := t.check(&a); err != nil {
		return broker.Appended{}, 0, err
	}
	growth, excess := t.growth(&a)
	if !s.reserve(growth) {
		s.cleanLocked(t, now)
		if growth, excess = t.growth(&a); !s.reserve(growth) {
			return broker.Appended{}, growth, nil
		}
	}
	before := t.size
	p := broker.Publication{
		Position: broker.Position{Epoch: t.epoch, Offset: t.top + 1},
		At:       now, Packet: a.Packet, StateKey: a.StateKey, Removed: a.Removed,
	}
	t.append(&a, &p, excess)
	s.memory.release(growth - (t.size - before))
	publish(a.Topic, p)
	return broker.Appended{Position: p.Position}, 0, nil
}

// Read returns a page.
func (s *Store) Read(q broker.Query) broker.Page {
	t, unused, now := s.lock(q.Topic)
	if t == nil {
		return unused
	}
	defer t.mu.Unlock()
	page := broker.Page{Position: t.position(), Previous: t.previous, Closed: t.closed}
	end := t.top + 1
	first := end - uint64(t.stored.len())                          // the lowest stored offset
	from := max(q.After+1, first+t.expired(age(q.Retention), now)) // the page is [from, to)
	to := end
	if q.Before > 0 {
		to = min(to, q.Before)
	}
	if q.Limit <= 0 || q.After >= to || from >= to {
		return page
	}
	if limit := uint64(q.Limit); to-from > limit {
		if q.Backward {
			from = to - limit
		} else {
			to = from + limit
		}
	}
	page.Publications = make([]broker.Publication, 0, to-from)
	for offset := from; offset < to; offset++ {
		page.Publications = append(page.Publications, *t.stored.at(int(offset - first)))
	}
	return page
}

// ReadAll returns a page for each topic.
func (s *Store) ReadAll(b broker.Batch) []broker.BatchPage {
	pages := make([]broker.BatchPage, len(b.Topics))
	messages, bytes := uint64(max(b.MaxMessages, 0)), max(b.MaxBytes, 0)
	for i, q := range b.Topics {
		page := s.Read(broker.Query{Topic: q.Topic, Retention: q.Retention, After: q.After, Limit: q.Limit})
		n, size := min(uint64(max(q.Limit, 0)), page.Position.Offset-min(q.After, page.Position.Offset)), 0
		for _, p := range page.Publications {
			size += len(p.Packet)
		}
		omitted := n > messages
		if !omitted {
			messages -= n
			omitted = size > bytes
		}
		if omitted {
			page.Publications = nil
		} else {
			bytes -= size
		}
		pages[i] = broker.BatchPage{Page: page, Omitted: omitted}
	}
	return pages
}

// ReadState returns a part of the latest publications of all keys.
func (s *Store) ReadState(q broker.StateQuery) broker.StatePart {
	t, first, now := s.lock(q.Topic)
	if t == nil {
		return broker.StatePart{Position: first.Position}
	}
	defer t.mu.Unlock()
	part := broker.StatePart{Position: t.position()}
	part.Publications, part.Next = t.state.part(q.Cursor, now.Add(-age(q.Retention)), stateBytesOf(q))
	return part
}

// stateBytesOf returns the bound of a part.
func stateBytesOf(q broker.StateQuery) int {
	if q.MaxBytes <= 0 {
		return broker.DefaultStateBytes
	}
	return q.MaxBytes
}

// lock returns a topic with its lock held, and the time; or nil and its page if it does not exist. The
// times that lock and lockNew return for a topic never decrease.
func (s *Store) lock(name string) (t *topic, first broker.Page, now time.Time) {
	for {
		now = time.Now()
		if t, first = s.find(name, now); t == nil {
			return nil, first, now
		}
		if t.lock(&now) {
			return t, first, now
		}
	}
}

// lockNew is lock for a topic that is created if it does not exist. It returns how many bytes that
// needs if they are not free.
func (s *Store) lockNew(name string) (t *topic, now time.Time, missing int64) {
	for {
		now = time.Now()
		if t, missing = s.findNew(name, now); missing > 0 || t.lock(&now) {
			return t, now, missing
		}
	}
}

func (s *Store) find(name string, now time.Time) (t *topic, first broker.Page) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cleanSome(now)
	if t = s.topics[name]; t == nil {
		first.Position, first.Previous = s.first.of(name)
	}
	return t, first
}

func (s *Store) findNew(name string, now time.Time) (t *topic, missing int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cleanSome(now)
	if t = s.topics[name]; t != nil {
		return t, 0
	}
	size := topicBytes + int64(len(name))
	if !s.reserve(size) {
		return nil, size
	}
	first, previous := s.first.of(name)
	t = &topic{name: name, epoch: first.Epoch, previous: previous, used: now, size: size}
	if s.topics == nil {
		s.topics = map[string]*topic{}
	}
	s.topics[name] = t
	s.list = append(s.list, t)
	return t, 0
}

func (s *Store) cleanSome(now time.Time) {
	for range min(maxCleaned, len(s.list)) {
		s.cleanNextLocked(now)
	}
}

// cleanNextLocked removes what has expired of one topic, or the topic.
func (s *Store) cleanNextLocked(now time.Time) {
	if s.next >= len(s.list) {
		s.next = 0
	}
	if len(s.list) == 0 {
		return
	}
	t := s.list[s.next]
	if !t.mu.TryLock() { // the topic is in use
		s.next++
		return
	}
	defer t.mu.Unlock()
	// Without a publication, it has only been created for one that did not fit.
	if t.top > 0 && now.Sub(t.used) <= metadataAge+t.age {
		s.cleanLocked(t, now)
		s.next++
		return
	}
	t.removed = true
	s.memory.release(t.size)
	if t.top > 0 {
		s.memory.release(-s.first.forget(t))
	}
	delete(s.topics, t.name)
	last := len(s.list) - 1
	s.list[s.next], s.list[last] = s.list[last], nil
	s.list = s.list[:last]
}

// cleanLocked removes what has expired of a topic. It needs the topic's lock.
func (s *Store) cleanLocked(t *topic, now time.Time) {
	before := t.size
	t.clean(now)
	s.memory.release(before - t.size)
}
