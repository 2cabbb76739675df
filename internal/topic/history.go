package topic

import (
	"context"
	"time"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/sequencer"
	"github.com/penstock-go/penstock/internal/wire"
)

// This file connects topics with a History to their sequencers.

// Retains reports whether a topic has a History.
func (ts *Topics) Retains(topic string) bool {
	return ts.hasHistory && ts.PatternOf(topic).HasHistory()
}

// Store stores a publication, and delivers it on this node at once if it is the next one here.
func (ts *Topics) Store(ctx context.Context, a broker.Append) (broker.Position, error) {
	stored, err := ts.histories.Append(ctx, a)
	if err != nil {
		return broker.Position{}, err
	}
	if t := ts.Find(a.Topic); t != nil && !stored.Duplicate {
		t.history.sequencer.Stored(broker.Publication{
			Position: stored.Position, At: time.Now(), Packet: a.Packet, StateKey: a.StateKey, Removed: a.Removed,
		})
	}
	return stored.Position, nil
}

// startSequencer makes a topic with a history receive its publications. It is called for the first
// subscriber on this node.
func (ts *Topics) startSequencer(t *Topic) {
	if !t.Pattern.HasHistory() {
		return
	}
	t.history = &topicHistory{sequencer: sequencer.New(ts.reader, t.Name, t.Pattern.Retention, ts.sink(t))}
}

// deliverStored queues a stored message for the subscribers, or reports it as lost if it is
// malformed. The sequencer calls it in the order of positions, under its lock.
func (ts *Topics) deliverStored(t *Topic, p broker.Publication) {
	id, packet := CutExcept(p.Packet)
	var except *Subscriber
	if id != "" {
		except = ts.config.ByID(id)
	}
	if _, ok := ts.deliverPacket(t, packet, except, p.Position); !ok {
		ts.lose(t, sequencer.Loss{From: p.Position.Offset, To: p.Position.Offset, Position: p.Position})
	}
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

// Published handles a publication that the broker passes on.
func (ts *Topics) Published(name string, p broker.Publication) {
	if t := ts.Find(name); t != nil && t.history != nil {
		t.history.sequencer.Publish(p)
	}
}

// Following is called when the broker passes on every publication from now on.
func (ts *Topics) Following(name string) {
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

// MissedAtMost returns how many publications of a topic a client that joins it may have to receive.
func (ts *Topics) MissedAtMost(name string, p *Pattern, since broker.Position) int {
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
