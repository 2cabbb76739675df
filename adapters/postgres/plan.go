package postgres

import (
	"log/slog"
	"math/bits"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
)

// A plan is what a transaction stores. It decides positions from what the transaction has read
// under the lock of the shard, and touches no server.
type plan struct {
	store *store
	shard int
	facts *facts

	topics map[string]*plannedTopic // by name
	order  []*plannedTopic          // that change
	keys   map[plannedKey]*knownKey

	results []plannedResult
	packer  packer
}

type plannedKey struct{ topic, key string } // the key is a hash

// A knownKey is the position of an idempotency key.
type knownKey struct {
	position broker.Position
	isNew    bool // of this transaction
}

// A plannedResult is that of a call, which it has when the transaction has committed.
type plannedResult struct {
	call   *appendCall
	result broker.Appended
	err    error
}

// A plannedTopic is a topic as it will be stored.
type plannedTopic struct {
	name   string
	exists bool

	position, previous broker.Position
	lineage            int
	total              int64 // bytes of all packets
	floor              int64
	pruned, cleaned    int64
	slots              int
	oldSlots           int // that the stored rows have
	retention          broker.Retention
	fence              uint64
	closed             bool

	isChanged bool
	isCleaned bool // rows beyond Retention.Bytes are deleted
	rows      []plannedRow
	states    map[string]int // index in rows of the last publication of a key
}

// A plannedRow is a publication.
type plannedRow struct {
	broker.Publication
	total int64
}

// queueTopics queues the statements whose results newPlan and load read.
func (s *store) queueTopics(b *pgx.Batch, appends []*broker.Append) {
	var hashes, keyTopics, keys [][]byte
	known := map[string]bool{}
	for _, a := range appends {
		if !known[a.Topic] {
			known[a.Topic] = true
			hashes = append(hashes, hashOf(a.Topic))
		}
		if a.IdempotencyKey != "" {
			keyTopics, keys = append(keyTopics, hashOf(a.Topic)), append(keys, hashOf(a.IdempotencyKey))
		}
	}
	b.Queue(s.sql(`SELECT name, epoch, lineage, top, coalesce(previous_epoch, ''), coalesce(previous_top, 0), total, floor, pruned, cleaned,
		slots, messages, age_ms, bytes, fence, closed FROM penstock.topic WHERE hash = ANY ($1::bytea[])`), hashes)
	b.Queue(s.sql("SELECT hash FROM penstock.forgotten WHERE hash = ANY ($1::bytea[])"), hashes)
	b.Queue(s.sql(`SELECT t.name, i.hash, i.epoch, i.off FROM unnest($1::bytea[], $2::bytea[]) AS q (topic, key)
		JOIN penstock.topic t ON t.hash = q.topic JOIN penstock.idempotency i ON i.topic_id = t.id AND i.hash = q.key
		WHERE i.expires_at > clock_timestamp()`), keyTopics, keys)
}

func newPlan(s *store, shard int, f *facts, results pgx.BatchResults, appends []*broker.Append) (*plan, error) {
	p := &plan{store: s, shard: shard, facts: f, topics: map[string]*plannedTopic{}, keys: map[plannedKey]*knownKey{}}
	return p, p.load(results, appends)
}

// load reads the results of queueTopics.
func (p *plan) load(results pgx.BatchResults, appends []*broker.Append) error {
	if err := p.loadTopics(results); err != nil {
		return err
	}
	forgotten := map[string]bool{}
	rows, err := results.Query()
	if err != nil {
		return err
	}
	var hash []byte
	if _, err := pgx.ForEachRow(rows, []any{&hash}, func() error { forgotten[string(hash)] = true; return nil }); err != nil {
		return err
	}
	for _, a := range appends {
		if p.topics[a.Topic] == nil {
			t := &plannedTopic{name: a.Topic, lineage: p.facts.lineage.no, states: map[string]int{}}
			t.position, t.previous = p.facts.first(p.shard, forgotten[string(hashOf(a.Topic))])
			p.topics[a.Topic] = t
		}
	}
	if rows, err = results.Query(); err != nil {
		return err
	}
	var name, key []byte
	var epoch string
	var offset uint64
	_, err = pgx.ForEachRow(rows, []any{&name, &key, &epoch, &offset}, func() error {
		p.keys[plannedKey{string(name), string(key)}] = &knownKey{position: broker.Position{Epoch: epoch, Offset: offset}}
		return nil
	})
	return err
}

// loadTopics reads topics. One of an older lineage begins an epoch.
func (p *plan) loadTopics(results pgx.BatchResults) error {
	rows, err := results.Query()
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		t := &plannedTopic{exists: true, states: map[string]int{}}
		var name []byte
		var age int64   // ms
		var fence int64 // its bits
		if err := rows.Scan(&name, &t.position.Epoch, &t.lineage, &t.position.Offset, &t.previous.Epoch, &t.previous.Offset,
			&t.total, &t.floor, &t.pruned, &t.cleaned, &t.slots, &t.retention.Messages, &age, &t.retention.Bytes, &fence, &t.closed); err != nil {
			return err
		}
		t.fence = uint64(fence) //nolint:gosec // the bits
		t.name, t.oldSlots, t.retention.Age = string(name), t.slots, time.Duration(age)*time.Millisecond
		if t.lineage < p.facts.lineage.no {
			t.previous, t.lineage = t.position, p.facts.lineage.no
			t.position.Epoch = p.facts.lineage.epoch
		}
		p.topics[t.name] = t
	}
	return rows.Err()
}

// add assigns a position. The call is nil for a publication of the outbox.
func (p *plan) add(a *outboxRow, call *appendCall) {
	t := p.topics[a.Topic]
	result := plannedResult{call: call}
	key := plannedKey{a.Topic, string(hashOf(a.IdempotencyKey))}
	if known := p.keys[key]; a.IdempotencyKey != "" && known != nil {
		result.result = broker.Appended{Position: known.position, Duplicate: true}
	} else if err := t.refuses(&a.Append); err != nil {
		result.err = err
		if call == nil {
			slog.Default().Warn("postgres: a publication of the outbox is dropped", "schema", p.store.schema, "topic", a.Topic, "error", err)
		}
	} else {
		t.append(a, p.facts.now)
		result.result.Position = t.position
		if a.IdempotencyKey != "" {
			p.keys[key] = &knownKey{t.position, true}
		}
		p.packer.add(p.store.pgChannel(historySuffix), record{historyPrefix + a.Topic, appendPublication(nil, &t.rows[len(t.rows)-1].Publication)})
		if !t.isChanged {
			t.isChanged = true
			p.order = append(p.order, t)
		}
	}
	if call != nil {
		call.SetLineage(p.facts.lineageName())
		p.results = append(p.results, result)
	}
}

// refuses returns why a topic refuses a publication, or nil.
func (t *plannedTopic) refuses(a *broker.Append) error {
	switch {
	case t.closed:
		return errors.Errorf(errors.FailedPrecondition, "the publication was not stored: the topic %q is closed", a.Topic)
	case a.Fence < t.fence:
		return errors.Errorf(errors.Aborted, "the publication was not stored: the topic %q has the fence %d, and the publication %d", a.Topic, t.fence, a.Fence)
	case a.Epoch != "" && a.Epoch != t.position.Epoch:
		return errors.Errorf(errors.Aborted, "the publication was not stored: the topic %q has another epoch than %q", a.Topic, a.Epoch)
	}
	return nil
}

// refuse gives a call an error.
func (p *plan) refuse(call *appendCall, err error) {
	p.results = append(p.results, plannedResult{call: call, err: err})
}

// finish sets the results of the calls.
func (p *plan) finish() {
	for _, r := range p.results {
		r.call.Result, r.call.Err = r.result, r.err
	}
}

func (p *plan) notifications() []notification {
	p.packer.flush()
	return p.packer.notifications
}

const (
	minSlots = 4
	maxSlots = 1 << 30

	// shrinkSlots is how much larger than necessary a ring is before it becomes smaller.
	shrinkSlots = 4
)

// defaultMessages are kept of a topic whose first publication has no Retention.
const defaultMessages = 100

// append adds a publication and applies its retention.
func (t *plannedTopic) append(a *outboxRow, now time.Time) {
	switch {
	case !a.noRetention:
		t.retention = a.Retention
	case t.retention.Messages == 0:
		t.retention.Messages = defaultMessages
	}
	r := &t.retention
	r.Messages, r.Bytes = min(max(r.Messages, 1), maxSlots), max(r.Bytes, 0)
	t.fence, t.closed = a.Fence, a.Last
	t.position.Offset++
	t.total += int64(len(a.Packet))
	packet := a.Packet
	if packet == nil {
		packet = []byte{}
	}
	t.rows = append(t.rows, plannedRow{broker.Publication{
		Position: t.position, At: now, Packet: packet, StateKey: a.StateKey, Removed: a.Removed && a.StateKey != "",
	}, t.total})
	if a.StateKey != "" {
		t.states[a.StateKey] = len(t.rows) - 1
	}
	t.floor = max(t.floor, int64(t.position.Offset)-int64(r.Messages)) //nolint:gosec // offsets are below 1<<53
	if r.Bytes > 0 {
		t.pruned = max(t.pruned, t.total-r.Bytes)
		if t.pruned-t.cleaned > r.Bytes {
			t.cleaned, t.isCleaned = t.pruned, true
		}
	}
	if needed := slotsFor(r.Messages); needed > t.slots || needed <= t.slots/shrinkSlots {
		t.slots = needed
	}
}

// slotsFor returns the smallest power of two that is not smaller than the number of publications.
func slotsFor(messages int) int {
	return max(minSlots, 1<<bits.Len(uint(messages-1)))
}

// kept returns the rows that the retention keeps.
func (t *plannedTopic) kept() []plannedRow {
	i := 0
	for i < len(t.rows) && (int64(t.rows[i].Position.Offset) <= t.floor || t.rows[i].total-int64(len(t.rows[i].Packet)) < t.pruned) { //nolint:gosec // see append
		i++
	}
	return t.rows[i:]
}
