package accesslog

import "sync"

// Recent remembers entries for those who are authenticated, but not registered yet. Its zero value is
// empty.
type Recent[K comparable, V any] struct {
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
