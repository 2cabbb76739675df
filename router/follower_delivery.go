package router

import (
	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/wire"
	"github.com/penstock-go/penstock/internal/wsconn"
)

// This file queues publications for the followers of a topic.

// deliverToFollowers queues a message for the followers of a chunk except one, and returns for how
// many. Connections that are closed are skipped. t.mu must be held.
func (t *topic) deliverToFollowers(p *publication, followers []*follower, except *Conn, at broker.Position) (receivers int) {
	var open [chunkEntries]bool
	for i, f := range followers {
		open[i] = !f.conn.ws.Closing()
	}
	for i, f := range followers {
		if open[i] && t.deliverToFollower(p, f, f.conn == except, at) {
			receivers++
		}
	}
	return receivers
}

// deliverToFollower queues a message, which has no position if it is not stored.
func (t *topic) deliverToFollower(p *publication, f *follower, skip bool, at broker.Position) (received bool) {
	if at.Offset > 0 {
		return t.deliverPositioned(p, f, skip, at)
	}
	return !skip && p.send(f.conn)
}

// deliverPositioned queues a message with its position, or only the position if the follower does not
// receive the message.
func (t *topic) deliverPositioned(p *publication, f *follower, skip bool, at broker.Position) (received bool) {
	if frame := p.positioned(f.conn.format, t.name, at.Offset); frame != nil && !skip {
		frame.Retain()
		return f.send(frame)
	}
	m := positionMessage{Epoch: at.Epoch, Offset: at.Offset}
	if !skip {
		m.Lost = &lostOffsets{at.Offset, at.Offset}
	}
	f.send(t.positionFrame(f.conn, m))
	return false
}

// movePosition sends a position to all followers.
func (t *topic) movePosition(m positionMessage) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for f := range t.history.followers.all() {
		f.send(t.positionFrame(f.conn, m))
	}
}

// positioned returns the frame for a format with a topic and an offset in its meta, encoded once. It
// returns nil if the publication lacks the format.
func (p *publication) positioned(f format, topic string, offset uint64) *wsconn.Frame {
	plain := p.frame(f)
	if plain == nil {
		return nil
	}
	if p.withPosition == nil {
		p.withPosition = make([]*wsconn.Frame, len(p.codecs)+1)
	}
	if frame := p.withPosition[f]; frame != nil {
		return frame
	}
	add := wire.AppendPositioned
	if f != formatJSON {
		add = wire.AppendPositionedBinary
	}
	frame, ok := wsconn.NewFrame(), false
	frame.At = plain.At
	frame.Append(func(b []byte) []byte {
		b, ok = add(b, plain.Text(), topic, offset)
		return b
	})
	if !ok {
		frame.Release()
		return nil
	}
	if f == formatJSON {
		frame.Seal()
	} else {
		frame.SealBinary()
	}
	p.withPosition[f] = frame
	return frame
}
