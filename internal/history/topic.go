package history

import (
	"sort"
	"sync"
	"time"

	"github.com/penstock-go/penstock/broker"
)

// A topic is the history of one topic.
type topic struct {
	name string

	mu      sync.Mutex
	removed bool          // from the store
	used    time.Time     // by the last call
	age     time.Duration // of the last Append
	epoch   string
	top     uint64                   // the last offset
	stored  ring[broker.Publication] // adjacent, in the order of offset and time; the last one has offset top
	bytes   int64                    // of the packets in stored
	state   state
	keys    idempotencyKeys
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

// trim removes what the retention does not keep.
func (t *topic) trim(r broker.Retention, now time.Time) {
	t.age = age(r)
	for range maxRemoved {
		if t.stored.len() <= max(r.Messages, 1) && (r.Bytes <= 0 || t.bytes <= r.Bytes) {
			break
		}
		t.removeOldest()
	}
	t.clean(now)
}

// clean removes what has expired.
func (t *topic) clean(now time.Time) {
	oldest := now.Add(-t.age)
	for range maxRemoved {
		if t.stored.len() == 0 || !t.stored.at(0).At.Before(oldest) {
			break
		}
		t.removeOldest()
	}
	t.state.clean(oldest)
	t.keys.clean(now)
}

func (t *topic) removeOldest() { t.bytes -= int64(len(t.stored.pop().Packet)) }
