package memstore

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/penstock-go/penstock/errors"
)

// DefaultMaxBytes is how much memory a [Store] uses if its MaxBytes is 0: 256 MiB.
const DefaultMaxBytes = 256 << 20

// Sizes in bytes of what a [Store] holds, without packets, names and keys, on a 64-bit system. Those
// of elements of maps include the part of a map that is not used, on average.
const (
	topicBytes       = 384 // a topic and its elements of Store.topics and Store.list
	forgottenBytes   = 24  // an element of firstEpochs.forgotten
	publicationBytes = 96  // an element of topic.stored
	stateBytes       = 176 // a stateEntry and its element of state.keys
	keyBytes         = 112 // an element of idempotencyKeys.offsets
	keyExpiryBytes   = 40  // an element of idempotencyKeys.queue
	valueBytes       = 160 // an element of values.byKey
)

// A memory counts the bytes that a [Store] uses. A caller that adds something reserves its bytes before,
// and releases them after its removal, so the sum never exceeds the maximum.
type memory struct{ used atomic.Int64 }

// reserve adds n bytes unless the sum would exceed the maximum. It always succeeds if n is not
// positive.
func (m *memory) reserve(n, maximum int64) bool {
	for n != 0 {
		used := m.used.Load()
		if n > 0 && used+n > maximum {
			return false
		}
		if m.used.CompareAndSwap(used, used+n) {
			return true
		}
	}
	return true
}

// release subtracts n bytes.
func (m *memory) release(n int64) {
	if n != 0 {
		m.used.Add(-n)
	}
}

// maxBytes returns the bound of the memory.
func (s *Store) maxBytes() int64 {
	if s.MaxBytes <= 0 {
		return DefaultMaxBytes
	}
	return s.MaxBytes
}

// reserve adds n bytes to what is used, unless that is too much.
func (s *Store) reserve(n int64) bool { return s.memory.reserve(n, s.maxBytes()) }

// Limits of the work of one call if the memory is full.
const (
	maxFreedTopics = 32
	maxFreedValues = 128
)

// free removes what has expired of some topics, until n bytes are free. If that is not enough, the next
// call continues.
func (s *Store) free(n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for range min(maxFreedTopics, len(s.list)) {
		if s.memory.used.Load()+n <= s.maxBytes() {
			return
		}
		s.cleanNextLocked(now)
	}
}

// errFull is the error of a call that needs n more bytes.
func (s *Store) errFull(message string, n int64) error {
	return &errors.Error{
		Code:    errors.ResourceExhausted,
		Message: message + " because the memory for histories is full",
		Err:     fmt.Errorf("memstore: %d of %d bytes are in use, and %d more are needed", s.memory.used.Load(), s.maxBytes(), n),
	}
}
