package memstore

import (
	"sort"
	"sync"
	"time"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
)

// A topic is the history of one topic.
type topic struct {
	name string

	mu       sync.Mutex
	removed  bool          // from the store
	used     time.Time     // by the last call
	age      time.Duration // of the last Append
	epoch    string
	previous broker.Position          // see broker.Page
	fence    uint64                   // the highest of the publications
	closed   bool                     // by broker.Append.Last
	top      uint64                   // the last offset; 0 until the first publication is stored
	stored   ring[broker.Publication] // adjacent, in the order of offset and time; the last one has offset top
	bytes    int64                    // of the packets in stored
	size     int64                    // of the memory that the topic uses; part of Store.memory
	state    state
	keys     idempotencyKeys
}

// lock acquires the lock unless the topic was removed. If another call has acquired it first, now
// becomes the time of that.
func (t *topic) lock(now *time.Time) bool {
	t.mu.Lock()
	if t.removed {
		t.mu.Unlock()
		return false
	}
	if now.Before(t.used) {
		*now = t.used
	}
	t.used = *now
	return true
}

// age returns the age at which publications expire.
func age(r broker.Retention) time.Duration {
	if r.Age <= 0 {
		return broker.DefaultAge
	}
	return r.Age
}

func (t *topic) position() broker.Position { return broker.Position{Epoch: t.epoch, Offset: t.top} }

// expired returns how many of the stored publications have expired.
func (t *topic) expired(age time.Duration, now time.Time) uint64 {
	oldest := now.Add(-age)
	return uint64(sort.Search(t.stored.len(), func(i int) bool { return !t.stored.at(i).At.Before(oldest) }))
}

// check returns why the topic refuses a publication that is no duplicate, or nil.
func (t *topic) check(a *broker.Append) error {
	switch {
	case t.closed:
		return errors.Errorf(errors.FailedPrecondition, "the publication was not stored: the topic %q is closed", t.name)
	case a.Fence < t.fence:
		return errors.Errorf(errors.Aborted, "the publication was not stored: the topic %q has the fence %d, and the publication %d", t.name, t.fence, a.Fence)
	case a.Epoch != "" && a.Epoch != t.epoch:
		return errors.Errorf(errors.Aborted, "the publication was not stored: the topic %q is in the epoch %q, and the publication requires %q", t.name, t.epoch, a.Epoch)
	default:
		return nil
	}
}

// growth returns how much memory a publication needs at most, in addition to what it replaces, and
// how many of the oldest publications the retention does not keep when it has been added. The last of
// these may be the publication itself.
func (t *topic) growth(a *broker.Append) (bytes int64, excess int) {
	excess, bytes = t.excess(a)
	if n := t.stored.len(); excess <= n {
		bytes += publicationSize(a) + publicationBytes*int64(t.stored.growth(n-excess))
	}
	if a.StateKey != "" {
		bytes -= t.state.size(a.StateKey)
		if !a.Removed {
			bytes += stateSize(a.StateKey, a.Packet)
		}
	}
	if a.IdempotencyKey != "" {
		bytes += keySize(a.IdempotencyKey) + keyExpiryBytes*int64(t.keys.queue.growth(t.keys.queue.len()))
	}
	return bytes, excess
}

// excess returns how many of the oldest publications exceed the retention when one has been added,
// and minus the memory of those that are stored.
func (t *topic) excess(a *broker.Append) (excess int, bytes int64) {
	messages, packets := t.stored.len()+1, t.bytes+int64(len(a.Packet))
	most := maxRemoved
	if a.Retention.Bytes > 0 && int64(len(a.Packet)) > a.Retention.Bytes {
		most = t.stored.len() + 1 // the publication itself is not kept, nor is any before it
	}
	for excess < most && (messages > max(a.Retention.Messages, 1) || a.Retention.Bytes > 0 && packets > a.Retention.Bytes) {
		if excess == t.stored.len() {
			return excess + 1, bytes
		}
		p := t.stored.at(excess)
		messages--
		packets -= int64(len(p.Packet))
		bytes -= int64(cap(p.Packet) + len(p.StateKey))
		excess++
	}
	return excess, bytes
}

// append adds a publication, removes the oldest ones that exceed the retention, and what has expired.
func (t *topic) append(a *broker.Append, p *broker.Publication, excess int) {
	t.age = age(a.Retention)
	t.top = p.Position.Offset
	t.fence, t.closed = max(t.fence, a.Fence), a.Last
	if a.IdempotencyKey != "" {
		t.size += t.keys.add(a.IdempotencyKey, t.top, p.At)
	}
	if a.StateKey != "" {
		t.size += t.state.set(p)
	}
	kept := excess <= t.stored.len()
	for range min(excess, t.stored.len()) {
		t.removeOldest()
	}
	if kept {
		t.size += publicationSize(a) + publicationBytes*int64(t.stored.push(*p))
		t.bytes += int64(len(p.Packet))
	}
	t.clean(p.At)
}

// publicationSize returns the memory of a stored publication, without its element of the ring.
func publicationSize(a *broker.Append) int64 { return int64(cap(a.Packet) + len(a.StateKey)) }

// clean removes what has expired.
func (t *topic) clean(now time.Time) {
	oldest := now.Add(-t.age)
	for range maxRemoved {
		if t.stored.len() == 0 || !t.stored.at(0).At.Before(oldest) {
			break
		}
		t.removeOldest()
	}
	t.size -= t.state.clean(oldest)
	t.size -= t.keys.clean(now)
}

func (t *topic) removeOldest() {
	p, shrunk := t.stored.pop()
	t.bytes -= int64(len(p.Packet))
	t.size -= int64(cap(p.Packet)+len(p.StateKey)) + publicationBytes*int64(shrunk)
}

// idempotencyKeys are the keys of a topic's publications, which outlive the publications.
type idempotencyKeys struct {
	offsets map[string]keyEntry
	queue   ring[keyExpiry] // in the order of time; a key that was added again occurs twice
}

type keyEntry struct {
	offset  uint64
	expires time.Time
}

type keyExpiry struct {
	key     string
	expires time.Time
}

// find returns the offset of a key. The empty key is not found.
func (k *idempotencyKeys) find(key string, now time.Time) (offset uint64, ok bool) {
	e, ok := k.offsets[key]
	return e.offset, ok && !now.After(e.expires)
}

// keySize returns the memory of a key, without its element of the queue.
func keySize(key string) int64 { return keyBytes + int64(len(key)) }

// add adds a key that is not found, and returns how much memory that takes.
func (k *idempotencyKeys) add(key string, offset uint64, now time.Time) (grown int64) {
	if k.offsets == nil {
		k.offsets = map[string]keyEntry{}
	}
	expires := now.Add(broker.IdempotencyTime)
	k.offsets[key] = keyEntry{offset, expires}
	return keySize(key) + keyExpiryBytes*int64(k.queue.push(keyExpiry{key, expires}))
}

// clean removes keys that have expired, and returns how much memory that frees. The memory of the map
// is freed when the last key is removed.
func (k *idempotencyKeys) clean(now time.Time) (freed int64) {
	for range maxRemoved {
		if k.queue.len() == 0 || !now.After(k.queue.at(0).expires) {
			break
		}
		e, shrunk := k.queue.pop()
		freed += keySize(e.key) + keyExpiryBytes*int64(shrunk)
		if k.offsets[e.key].expires.Equal(e.expires) { // it was not added again
			delete(k.offsets, e.key)
		}
	}
	if len(k.offsets) == 0 {
		k.offsets = nil
	}
	return freed
}

// A ring is a queue whose elements can be read by index. Its zero value is empty.
type ring[T any] struct {
	buffer []T // its length is 0 or a power of two
	head   int // index of the oldest element
	n      int
}

const minRing = 4 // elements

func (r *ring[T]) len() int { return r.n }

// at returns an element; 0 is the oldest one.
func (r *ring[T]) at(i int) *T { return &r.buffer[(r.head+i)&(len(r.buffer)-1)] }

// growth returns by how many elements the buffer grows when one is added to n elements.
func (r *ring[T]) growth(n int) int {
	if n < len(r.buffer) {
		return 0
	}
	return max(2*n, minRing) - len(r.buffer)
}

// push adds an element and returns by how many elements the buffer has grown.
func (r *ring[T]) push(v T) (grown int) {
	if grown = r.growth(r.n); grown > 0 {
		r.resize(len(r.buffer) + grown)
	}
	r.n++
	*r.at(r.n - 1) = v
	return grown
}

// pop removes the oldest element, and returns by how many elements the buffer has shrunk. The memory
// of removed elements is freed gradually.
func (r *ring[T]) pop() (v T, shrunk int) {
	var zero T
	oldest := r.at(0)
	v = *oldest
	*oldest = zero
	r.head = (r.head + 1) & (len(r.buffer) - 1)
	r.n--
	if r.n <= len(r.buffer)/4 && len(r.buffer) > minRing {
		shrunk = len(r.buffer) / 2
		r.resize(len(r.buffer) - shrunk)
	}
	return v, shrunk
}

func (r *ring[T]) resize(size int) {
	buffer := make([]T, size)
	for i := range r.n {
		buffer[i] = *r.at(i)
	}
	r.buffer, r.head = buffer, 0
}
