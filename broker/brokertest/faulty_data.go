package brokertest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"time"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
)

// A faultyData is what the store of a FaultyStore contains: histories, states and values, and how
// the last changes are undone. All topics are in the epoch of the current term of the store.
type faultyData struct {
	rng             *rand.Rand
	terms           int
	epoch, previous string // the current one, and the one before it; "" if that is not known
	topics          map[string]*faultyTopic
	values          map[string]faultyValue
	versions        uint64 // the last one of a value
	full            bool

	changes   []faultyChange // of the current term and those before it, as far as they were not undone
	confirmed int            // this many of them survive a failover

	truth map[string]*faultyTruth // by topic
}

// A faultyTopic is the history of a topic. A publication with offset n is at index n-1 of log, even
// if the retention has removed it.
type faultyTopic struct {
	log     []faultyRecord
	removed int            // how many of the oldest ones the retention has removed
	keys    map[string]int // index of the last record by idempotency key
	state   map[string]int // index of the last record by state key, without removed keys
	fence   uint64
	closed  bool
	age     time.Duration // of the last Append
	ended   uint64        // the offset at which the previous epoch ended
}

type faultyRecord struct {
	broker.Publication
	idempotencyKey string
	fence          uint64
	last           bool
	truth          int // its index in faultyTruth.stored
}

// A faultyTruth is everything that was ever stored in a topic.
type faultyTruth struct {
	stored  []broker.Publication
	dropped map[int]struct{} // indexes
}

// A faultyChange is an Append, or a change of a value.
type faultyChange struct {
	topic   string
	removed int // faultyTopic.removed before the Append

	isValue bool
	key     string
	value   faultyValue // before the change
}

func newFaultyData(rng *rand.Rand) *faultyData {
	d := &faultyData{rng: rng, versions: rng.Uint64N(1 << 40), truth: map[string]*faultyTruth{}}
	d.restartEmpty()
	return d
}

// beginTerm begins an epoch that was never used.
func (d *faultyData) beginTerm() {
	d.terms++
	d.previous = d.epoch
	d.epoch = fmt.Sprintf("%dx%08x", d.terms, d.rng.Uint32())
}

// restartEmpty drops everything.
func (d *faultyData) restartEmpty() {
	for name, t := range d.topics {
		for _, r := range t.log {
			d.drop(name, r)
		}
	}
	d.beginTerm()
	d.previous = ""
	d.topics, d.values = map[string]*faultyTopic{}, map[string]faultyValue{}
	d.changes, d.confirmed = nil, 0
}

// failOver undoes the last changes, except those that are confirmed, and begins a term. It returns
// how many were undone.
func (d *faultyData) failOver(lose int) int {
	lose = min(max(lose, 0), len(d.changes)-d.confirmed)
	touched := map[string]struct{}{}
	for _, c := range slices.Backward(d.changes[len(d.changes)-lose:]) {
		if c.isValue {
			d.values[c.key] = c.value
			continue
		}
		t := d.topics[c.topic]
		d.drop(c.topic, t.log[len(t.log)-1])
		t.log, t.removed = t.log[:len(t.log)-1], c.removed
		touched[c.topic] = struct{}{}
	}
	d.changes = d.changes[:len(d.changes)-lose]
	d.confirmed = len(d.changes) // the new server has them, and so do its replicas
	for name := range touched {
		d.topics[name].rebuild()
	}
	d.beginTerm()
	for _, t := range d.topics {
		t.ended = uint64(len(t.log))
	}
	return lose
}

func (d *faultyData) drop(topic string, r faultyRecord) {
	d.truth[topic].dropped[r.truth] = struct{}{}
}

// rebuild sets what follows from the log.
func (t *faultyTopic) rebuild() {
	t.keys, t.state, t.fence, t.closed = map[string]int{}, map[string]int{}, 0, false
	for i := range t.log {
		t.index(i)
	}
}

// index adds what follows from a record.
func (t *faultyTopic) index(i int) {
	r := &t.log[i]
	if r.idempotencyKey != "" {
		t.keys[r.idempotencyKey] = i
	}
	switch {
	case r.StateKey == "":
	case r.Removed:
		delete(t.state, r.StateKey)
	default:
		t.state[r.StateKey] = i
	}
	t.fence, t.closed = max(t.fence, r.fence), r.last
}

// find returns a topic, or an empty one that is not stored.
func (d *faultyData) find(name string) *faultyTopic {
	if t := d.topics[name]; t != nil {
		return t
	}
	return &faultyTopic{keys: map[string]int{}, state: map[string]int{}}
}

// append stores a publication, unless it returns an error or a duplicate.
func (d *faultyData) append(a *broker.Append) (broker.Appended, error) {
	t, now := d.find(a.Topic), time.Now()
	if i, ok := t.keys[a.IdempotencyKey]; ok && a.IdempotencyKey != "" && now.Sub(t.log[i].At) <= broker.IdempotencyTime {
		return broker.Appended{Position: t.log[i].Position, Duplicate: true}, nil
	}
	switch {
	case t.closed:
		return broker.Appended{}, errors.Errorf(errors.FailedPrecondition, "the publication was not stored: the topic is closed")
	case a.Fence < t.fence:
		return broker.Appended{}, errors.Errorf(errors.Aborted, "the publication was not stored: its fence is %d, and that of the topic %d", a.Fence, t.fence)
	case a.Epoch != "" && a.Epoch != d.epoch:
		return broker.Appended{}, errors.Errorf(errors.Aborted, "the publication was not stored: it requires the epoch %q, and the topic is in %q", a.Epoch, d.epoch)
	case d.full:
		return broker.Appended{}, errors.Errorf(errors.ResourceExhausted, "the publication was not stored, because the store is full")
	}
	d.topics[a.Topic] = t
	d.changes = append(d.changes, faultyChange{topic: a.Topic, removed: t.removed})
	p := broker.Publication{
		Position: broker.Position{Epoch: d.epoch, Offset: uint64(len(t.log) + 1)},
		At:       now, Packet: a.Packet, StateKey: a.StateKey, Removed: a.Removed,
	}
	t.log = append(t.log, faultyRecord{p, a.IdempotencyKey, a.Fence, a.Last, d.record(a.Topic, p)})
	t.index(len(t.log) - 1)
	t.retain(a.Retention, d.rng)
	return broker.Appended{Position: p.Position}, nil
}

func (d *faultyData) record(topic string, p broker.Publication) (index int) {
	truth := d.truth[topic]
	if truth == nil {
		truth = &faultyTruth{dropped: map[int]struct{}{}}
		d.truth[topic] = truth
	}
	truth.stored = append(truth.stored, p)
	return len(truth.stored) - 1
}

// moreThanRetained is how many publications a history may keep in addition to Retention.Messages.
const moreThanRetained = 4

// retain removes what exceeds the retention, sometimes later than it could.
func (t *faultyTopic) retain(r broker.Retention, rng *rand.Rand) {
	t.age = ageOf(r)
	most := max(r.Messages, 1)
	if kept := len(t.log) - t.removed; kept > most+moreThanRetained || kept > most && rng.IntN(4) > 0 {
		t.removed = len(t.log) - most
	}
	if r.Bytes <= 0 {
		return
	}
	size := int64(0)
	for i := len(t.log) - 1; i >= t.removed; i-- {
		if size += int64(len(t.log[i].Packet)); size > r.Bytes {
			t.removed = i + 1
		}
	}
}

func ageOf(r broker.Retention) time.Duration {
	if r.Age <= 0 {
		return broker.DefaultAge
	}
	return r.Age
}

// unexpired returns the index of the oldest record that has not expired.
func (t *faultyTopic) unexpired(age time.Duration) int {
	oldest := time.Now().Add(-age)
	return sort.Search(len(t.log), func(i int) bool { return !t.log[i].At.Before(oldest) })
}
