package postgres

import (
	"encoding/binary"
	"time"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/cluster"
	"github.com/penstock-go/penstock/internal/executor"
)

// follows call the HistoryHandler of a node. The link calls them one at a time, and knows the
// topics.
type follows struct {
	handler broker.HistoryCallbacks
	gate    executor.Gate // calls the handler
}

func (f *follows) init(handler broker.HistoryCallbacks) { f.handler = handler.Complete() }

// Follow requests the publications of a topic.
func (s *historyNode) Follow(topic string) {
	if !s.closed.Load() {
		s.link.SetSubscribed(cluster.Channel{Name: historyPrefix + topic}, true)
	}
}

// Unfollow undoes Follow.
func (s *historyNode) Unfollow(topic string) {
	s.link.SetSubscribed(cluster.Channel{Name: historyPrefix + topic}, false)
}

// confirmed reports that publications of a topic are received from now on.
func (f *follows) confirmed(topic string) {
	f.gate.Do(func() { f.handler.Following(topic) })
}

// received reports a publication.
func (f *follows) received(topic string, payload []byte) {
	if p, ok := parsePublication(payload); ok {
		f.gate.Do(func() { f.handler.Published(topic, p) })
	}
}

// appendPublication appends a publication for a notification.
func appendPublication(b []byte, p *broker.Publication) []byte {
	b = appendRecord(b, record{p.Position.Epoch, []byte(p.StateKey)})
	b = binary.AppendUvarint(b, p.Position.Offset)
	b = binary.AppendVarint(b, p.At.UnixMicro())
	removed := byte(0)
	if p.Removed {
		removed = 1
	}
	return append(append(b, removed), p.Packet...)
}

// parsePublication returns a publication, which shares memory with b. It reports false if b is
// none.
func parsePublication(b []byte) (p broker.Publication, ok bool) {
	r, b, ok := cutRecord(b)
	if !ok {
		return p, false
	}
	offset, n := binary.Uvarint(b)
	if n <= 0 {
		return p, false
	}
	micros, m := binary.Varint(b[n:])
	if m <= 0 || len(b) == n+m {
		return p, false
	}
	b = b[n+m:]
	return broker.Publication{
		Position: broker.Position{Epoch: r.channel, Offset: offset}, At: time.UnixMicro(micros),
		Packet: b[1:], StateKey: string(r.payload), Removed: b[0] == 1,
	}, true
}
