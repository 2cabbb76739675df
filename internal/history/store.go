package history

import (
	"crypto/rand"
	"sync"
	"time"

	"github.com/penstock-go/penstock/broker"
)

// A Store holds the histories of all topics. Its zero value is an empty store. It is safe for
// concurrent use.
//
// Every call does a bounded amount of work in addition to its result: it removes at most a fixed
// number of publications, keys and topics that have expired. What has expired is not returned, even
// if it has not been removed.
//
// Locks: a call that holds a topic's lock does not take the Store's. A call that holds the Store's
// lock takes a topic's only if it need not wait.
type Store struct {
	mu     sync.Mutex
	topics map[string]*topic
	list   []*topic // the same topics
	next   int      // index in list of the topic that is cleaned next
}

// metadataAge is how long the position of a topic is kept after its last use, or after its last
// publication has expired.
const metadataAge = 24 * time.Hour

// Limits of the work of one call.
const (
	maxRemoved = 128 // publications and keys of a topic
	maxCleaned = 2   // topics
)

// Append stores a publication and calls publish with it, unless it is a duplicate. publish runs
// under the topic's lock, so that its calls are in the order of the offsets: it must not block or
// call the store.
func (s *Store) Append(a broker.Append, publish func(topic string, p broker.Publication)) broker.Appended {
	t, now := s.lock(a.Topic)
	defer t.mu.Unlock()
	if offset, ok := t.keys.find(a.IdempotencyKey, now); ok {
		return broker.Appended{Position: broker.Position{Epoch: t.epoch, Offset: offset}, Duplicate: true}
	}
	t.top++
	p := broker.Publication{Position: t.position(), At: now, Packet: a.Packet, StateKey: a.StateKey, Removed: a.Removed}
	t.keys.add(a.IdempotencyKey, t.top, now)
	t.state.set(p)
	t.stored.push(p)
	t.bytes += int64(len(p.Packet))
	t.trim(a.Retention, now)
	publish(a.Topic, p)
	return broker.Appended{Position: p.Position}
}

// Read returns a page.
func (s *Store) Read(q broker.Query) broker.Page {
	t, now := s.lock(q.Topic)
	defer t.mu.Unlock()
	page := broker.Page{Position: t.position()}
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

// ReadState returns the latest publication of every key.
func (s *Store) ReadState(name string, r broker.Retention) broker.State {
	t, now := s.lock(name)
	defer t.mu.Unlock()
	return broker.State{Publications: t.state.since(now.Add(-age(r))), Position: t.position()}
}

// lock returns a topic with its lock held, and the time. It creates the topic on its first use. The
// times that it returns for a topic never decrease.
func (s *Store) lock(name string) (*topic, time.Time) {
	for {
		now := time.Now()
		t := s.find(name, now)
		t.mu.Lock()
		if !t.removed {
			if now.Before(t.used) { // another call has taken the lock first
				now = t.used
			}
			t.used = now
			return t, now
		}
		t.mu.Unlock()
	}
}

func (s *Store) find(name string, now time.Time) *topic {
	s.mu.Lock()
	defer s.mu.Unlock()
	for range maxCleaned {
		s.clean(now)
	}
	t := s.topics[name]
	if t == nil {
		t = &topic{name: name, epoch: rand.Text(), used: now}
		if s.topics == nil {
			s.topics = map[string]*topic{}
		}
		s.topics[name] = t
		s.list = append(s.list, t)
	}
	return t
}

// clean removes what has expired of one topic, or the topic. It must be called with s.mu held.
func (s *Store) clean(now time.Time) {
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
	if now.Sub(t.used) <= metadataAge+t.age {
		t.clean(now)
		s.next++
		return
	}
	t.removed = true
	delete(s.topics, t.name)
	last := len(s.list) - 1
	s.list[s.next], s.list[last] = s.list[last], nil
	s.list = s.list[:last]
}
