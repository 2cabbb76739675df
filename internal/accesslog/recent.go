package accesslog

import (
	"sync"
	"sync/atomic"
)

// Recent remembers entries for those who are authenticated, but not registered yet. Its zero value is
// empty. The numbers of the entries are those of a Log, or its own.
type Recent[K comparable, V any] struct {
	latest atomic.Uint32 // own number

	mu        sync.Mutex
	entries   map[K]entry[V]
	forgotten uint32 // the number of the newest entry that is not among them any more
}

type entry[V any] struct {
	number uint32
	value  V
}

// maxRecent bounds the entries.
const maxRecent = 1024

// Add adds the latest entry of a key.
func (r *Recent[K, V]) Add(key K, number uint32, v V) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.entries == nil || len(r.entries) == maxRecent {
		if r.entries != nil {
			r.forgotten = number - 1
		}
		r.entries = map[K]entry[V]{}
	}
	r.entries[key] = entry[V]{number, v}
}

// Now is [Log.Now] for own numbers.
func (r *Recent[K, V]) Now() uint32 { return r.latest.Load() }

// AddNext adds the latest entry of a key with the next own number.
func (r *Recent[K, V]) AddNext(key K, v V) { r.Add(key, r.latest.Add(1), v) }

// Find returns the entry that concerns a user for whom Now has returned since. unknown is true if
// there may be one.
func (r *Recent[K, V]) Find(key K, since uint32) (v V, found, unknown bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e, ok := r.entries[key]; ok && Precedes(since, e.number) {
		return e.value, true, false
	}
	return v, false, Precedes(since, r.forgotten)
}
