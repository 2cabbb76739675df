package topic

import (
	"context"
	"time"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/envelope"
	"github.com/penstock-go/penstock/internal/sequencer"
	"github.com/penstock-go/penstock/internal/wire"
)

// This file connects topics with a History to their sequencers.

// Retains reports whether a topic has a History.
func (ts *Topics) Retains(topic string) bool {
	return ts.start != nil && ts.PatternOf(topic).HasHistory()
}

// CheckHistory returns an error if the topic has no History.
func (ts *Topics) CheckHistory(topic string) error {
	if ts.Retains(topic) {
		return nil
	}
	return errors.Errorf(errors.FailedPrecondition, "topic %q has no history; declare it with TopicOptions.History", topic)
}

// Store stores a publication, and delivers it on this node at once if it is the next one here. message is what
// the packet has been made of, or empty; Store takes it.
func (ts *Topics) Store(ctx context.Context, a broker.Append, message envelope.Publication) (broker.Position, error) {
	t := ts.Find(a.Topic)
	if t == nil || message.IsEmpty() {
		message.Free()
		stored, err := ts.histories.Append(ctx, a)
		if t = ts.Find(a.Topic); t != nil && err == nil {
			t.stored(&a, stored)
		}
		return stored.Position, err
	}
	own := &t.history.own
	number := own.add(a.Packet, message)
	stored, err := ts.histories.Append(ctx, a)
	if err != nil || !t.stored(&a, stored) {
		own.forget(number)
	}
	return stored.Position, err
}

// stored passes on what this node has stored, and reports whether it waits for others that precede it.
func (t *Topic) stored(a *broker.Append, stored broker.Appended) (waits bool) {
	return !stored.Duplicate && t.history.sequencer.Stored(broker.Publication{
		Position: stored.Position, At: time.Now(), Packet: a.Packet, StateKey: a.StateKey, Removed: a.Removed,
	})
}

// startSequencer makes a topic with a history receive its publications. It is called for the first
// subscriber on this node.
func (ts *Topics) startSequencer(t *Topic) {
	if !t.Pattern.HasHistory() {
		return
	}
	t.history = &topicHistory{sequencer: sequencer.New(ts.reader, t.Name, t.Pattern.Retention, sequencer.Sink{
		Deliver: func(p broker.Publication) { ts.deliverStored(t, p) },
		Lost:    func(l sequencer.Loss) { ts.lose(t, l) },
	})}
}

// deliverStored queues a stored message for the subscribers, or reports it as lost if it is
// malformed. The sequencer calls it in the order of positions, under its lock.
func (ts *Topics) deliverStored(t *Topic, p broker.Publication) {
	id, packet := CutExcept(p.Packet)
	var except *Subscriber
	if id != "" {
		except = ts.config.ByID(id)
	}
	if message, ok := t.history.own.take(p.Packet); ok {
		ts.deliverOwn(t, &message, except, p.Position)
	} else if _, ok := ts.deliverPacket(t, packet, except, p.Position); !ok {
		ts.lose(t, sequencer.Loss{From: p.Position.Offset, To: p.Position.Offset, Position: p.Position})
	}
}

// deliverOwn queues a message that this node has encoded, in all formats.
func (ts *Topics) deliverOwn(t *Topic, message *envelope.Publication, except *Subscriber, at broker.Position) {
	defer message.Free()
	now := time.Now()
	published := message.Restamp(now)
	receivers := ts.deliverTo(t, message, except, at)
	ts.config.Delivered(receivers, max(now.Sub(published), 0))
}

// packetExcept is the kind of a packet with a connection ID, and the packet of a message that this
// connection does not receive. Package router has the other kinds.
const packetExcept = 5

// Except returns a packet that contains the packet of a message which a connection does not receive.
func Except(connID string, message []byte) []byte {
	return append(wire.AppendString([]byte{packetExcept}, connID), message...)
}

// CutExcept returns the ID of the connection that does not receive a message, or "", and the packet
// of the message.
func CutExcept(packet []byte) (id string, message []byte) {
	if len(packet) == 0 || packet[0] != packetExcept {
		return "", packet
	}
	id, message, _ = wire.CutString(packet[1:])
	return id, message
}

// Callbacks returns what the broker calls for the topics.
func (ts *Topics) Callbacks() broker.HistoryCallbacks {
	return broker.HistoryCallbacks{Published: ts.published, Following: ts.following}
}

// published handles a publication that the broker passes on.
func (ts *Topics) published(name string, p broker.Publication) {
	if t := ts.Find(name); t != nil && t.history != nil {
		t.history.sequencer.Publish(p)
	}
}

// following is called when the broker passes on every publication from now on.
func (ts *Topics) following(name string) {
	if t := ts.Find(name); t != nil && t.history != nil {
		t.history.sequencer.Following()
	}
}

// Follow delivers the publications of a history to sink instead of subscribers. topic must be unknown.
func (ts *Topics) Follow(name string, r broker.Retention, sink sequencer.Sink) *sequencer.Sequencer {
	shard := ts.shard(name)
	t := &Topic{Name: name, Pattern: undeclared, shard: shard, subscriptions: 1}
	s := &ts.shards[shard]
	s.mu.Lock() // the broker calls following only after history is set
	defer s.mu.Unlock()
	s.topics[name] = t
	t.history = &topicHistory{sequencer: sequencer.New(ts.reader, name, r, sink)}
	return t.history.sequencer
}

// Unfollow undoes Follow.
func (ts *Topics) Unfollow(name string) {
	s := &ts.shards[ts.shard(name)]
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.topics[name]
	delete(s.topics, name)
	t.history.sequencer.Close()
}

// CatchUp waits until the subscribers of a topic with a History have received what is stored.
func (ts *Topics) CatchUp(ctx context.Context, name string) error {
	if t := ts.Find(name); t != nil {
		return t.history.sequencer.CatchUp(ctx)
	}
	return nil
}

// ReadAtMost returns how many publications of a topic may be read for a client that joins it: what it has missed since a
// position, unless that is zero, or the last ones.
func (ts *Topics) ReadAtMost(name string, p *Pattern, since broker.Position, last int) int {
	latest := min(max(last, 0), ts.MaxMissed(p))
	if since.Epoch == "" {
		return latest
	}
	return max(latest, ts.missedAtMost(name, p, since))
}

func (ts *Topics) missedAtMost(name string, p *Pattern, since broker.Position) int {
	limit := ts.MaxMissed(p)
	t := ts.Find(name)
	if t == nil || t.history == nil {
		return limit
	}
	last, known := t.history.sequencer.Position()
	if !known || last.Epoch != since.Epoch {
		return limit
	}
	return int(min(uint64(limit), max(last.Offset, since.Offset)-since.Offset))
}
