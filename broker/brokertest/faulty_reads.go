package brokertest

import (
	"bytes"
	"strconv"
	"time"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
)

// read returns a page.
func (d *faultyData) read(q broker.Query) broker.Page {
	t := d.find(q.Topic)
	top := uint64(len(t.log))
	page := broker.Page{Position: broker.Position{Epoch: d.epoch, Offset: top}, Closed: t.closed}
	if d.previous != "" {
		page.Previous = broker.Position{Epoch: d.previous, Offset: t.ended}
	}
	if q.Limit <= 0 || q.After >= top {
		return page
	}
	from, to := max(int(q.After), t.removed, t.unexpired(ageOf(q.Retention))), len(t.log) //nolint:gosec // below top
	if q.Before > 0 && q.Before <= top {
		to = int(q.Before) - 1 //nolint:gosec // below top
	}
	if to-from > q.Limit {
		if q.Backward {
			from = to - q.Limit
		} else {
			to = from + q.Limit
		}
	}
	for i := from; i < to; i++ {
		page.Publications = append(page.Publications, t.log[i].Publication)
	}
	return page
}

// A faultyBatch is a Batch that is being read, in several moments.
type faultyBatch struct {
	broker.Batch
	pages           []broker.BatchPage
	order           []int // indexes of the topics that are not read yet
	messages, bytes int   // that are left
}

func newFaultyBatch(b broker.Batch) *faultyBatch {
	return &faultyBatch{Batch: b, messages: max(b.MaxMessages, 0), bytes: max(b.MaxBytes, 0)}
}

func (b *faultyBatch) isComplete() bool {
	return len(b.pages) > 0 && len(b.order) == 0 || len(b.Topics) == 0
}

// readSomeLocked reads some of the topics that are left.
func (s *FaultyStore) readSomeLocked(b *faultyBatch) {
	if b.pages == nil {
		b.pages, b.order = make([]broker.BatchPage, len(b.Topics)), s.rng.Perm(len(b.Topics))
	}
	if len(b.order) == 0 {
		return
	}
	now := b.order[:1+s.rng.IntN(len(b.order))]
	b.order = b.order[len(now):]
	for _, i := range now {
		if s.happensLocked("unreadable topic", s.faults.LostAnswers) {
			b.pages[i].Err = &errors.Error{Code: errors.Unavailable, Message: "cannot read a topic", Err: errBroken}
			continue
		}
		s.noteEarlyLocked("read before answer", b.Topics[i].Topic)
		b.read(s.data, i)
	}
}

// read reads the topic with an index.
func (b *faultyBatch) read(d *faultyData, i int) {
	q := b.Topics[i]
	page := d.read(broker.Query{Topic: q.Topic, Retention: q.Retention, After: q.After, Limit: q.Limit})
	n := min(uint64(max(q.Limit, 0)), page.Position.Offset-min(q.After, page.Position.Offset)) //nolint:gosec // not negative
	size := 0
	for _, p := range page.Publications {
		size += len(p.Packet)
	}
	omitted := n > uint64(b.messages) //nolint:gosec // not negative
	if !omitted {
		b.messages -= int(n) //nolint:gosec // at most messages
		omitted = size > b.bytes
	}
	if omitted {
		page.Publications = nil
	} else {
		b.bytes -= size
	}
	b.pages[i] = broker.BatchPage{Page: page, Omitted: omitted}
}

// readState returns a part of a state, whose cursor is the offset of its last publication. Offsets
// descend, so that a key that changes is behind the reader, and the parts end.
func (d *faultyData) readState(q broker.StateQuery) broker.StatePart {
	t := d.find(q.Topic)
	part := broker.StatePart{Position: broker.Position{Epoch: d.epoch, Offset: uint64(len(t.log))}}
	end, most, size := len(t.log), q.MaxBytes, 0
	if cursor, err := strconv.Atoi(q.Cursor); q.Cursor != "" && err == nil {
		end = min(cursor-1, end)
	}
	if most <= 0 {
		most = broker.DefaultStateBytes
	}
	oldest := t.unexpired(ageOf(q.Retention))
	for i := end - 1; i >= oldest; i-- {
		p := t.log[i].Publication
		if latest, ok := t.state[p.StateKey]; !ok || latest != i {
			continue
		}
		if size >= most {
			part.Next = strconv.FormatUint(part.Publications[len(part.Publications)-1].Position.Offset, 10)
			break
		}
		part.Publications = append(part.Publications, p)
		size += len(p.Packet) + len(p.StateKey)
	}
	return part
}

// A faultyValue is a value. The zero faultyValue is none.
type faultyValue struct {
	broker.Value
	expires time.Time
}

// loadValue returns a value, in new memory.
func (d *faultyData) loadValue(key string) broker.Value {
	v := d.values[key]
	if !time.Now().Before(v.expires) {
		return broker.Value{}
	}
	v.Data = bytes.Clone(v.Data)
	return v.Value
}

// changeValue replaces the data of a value by what change returns, in new memory, unless that is
// false.
func (d *faultyData) changeValue(key string, change func([]byte) ([]byte, bool), version uint64, lifetime time.Duration) (uint64, error) {
	current := d.loadValue(key)
	if current.Version != version {
		return 0, errors.Errorf(errors.Aborted, "the value of %q has another version", key)
	}
	next := faultyValue{}
	if lifetime > 0 {
		data, ok := change(current.Data)
		switch {
		case !ok:
			return 0, errors.Errorf(errors.InvalidArgument, "the value of %q is shorter than the patch", key)
		case d.full:
			return 0, errors.Errorf(errors.ResourceExhausted, "the value was not stored, because the store is full")
		}
		d.versions += 1 + d.rng.Uint64N(1000)
		next = faultyValue{broker.Value{Data: data, Version: d.versions}, time.Now().Add(lifetime)}
	}
	d.changes = append(d.changes, faultyChange{isValue: true, key: key, value: d.values[key]})
	d.values[key] = next
	return next.Version, nil
}
