package memstore

import (
	"time"

	"github.com/penstock-go/penstock/broker"
)

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
