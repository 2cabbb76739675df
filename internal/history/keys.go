package history

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

func (k *idempotencyKeys) add(key string, offset uint64, now time.Time) {
	if key == "" {
		return
	}
	if k.offsets == nil {
		k.offsets = map[string]keyEntry{}
	}
	expires := now.Add(broker.IdempotencyTime)
	k.offsets[key] = keyEntry{offset, expires}
	k.queue.push(keyExpiry{key, expires})
}

// clean removes keys that have expired.
func (k *idempotencyKeys) clean(now time.Time) {
	for range maxRemoved {
		if k.queue.len() == 0 || !now.After(k.queue.at(0).expires) {
			return
		}
		if e := k.queue.pop(); k.offsets[e.key].expires.Equal(e.expires) { // it was not added again
			delete(k.offsets, e.key)
		}
	}
}
