package router

import (
	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/envelope"
	"github.com/penstock-go/penstock/internal/protocol"
)

// This file queues publications for the followers of a topic.

// deliverToFollowersLocked queues a message for the followers of a chunk except one, and returns
// for how many. Connections that are closed are skipped.
func (t *topic) deliverToFollowersLocked(p *envelope.Publication, followers []*follower, except *Conn, at broker.Position) (receivers int) {
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
func (t *topic) deliverToFollower(p *envelope.Publication, f *follower, skip bool, at broker.Position) (received bool) {
	if at.Offset > 0 {
		return t.deliverPositioned(p, f, skip, at)
	}
	return !skip && sendShared(f.conn, t.frameOf(p, f.conn, at))
}

// deliverPositioned queues a message with its position, or only the position if the follower does not
// receive the message.
func (t *topic) deliverPositioned(p *envelope.Publication, f *follower, skip bool, at broker.Position) (received bool) {
	if frame := t.positionedFrameOf(p, f.conn, at.Offset); frame != nil && !skip {
		frame.Retain()
		return f.sendLocked(frame)
	}
	if !f.conn.expectsPositions() {
		return false
	}
	m := protocol.Moved{Epoch: at.Epoch, Offset: at.Offset}
	if !skip {
		m.Lost = &protocol.Lost{From: at.Offset, To: at.Offset}
	}
	f.sendLocked(t.positionFrame(f.conn, m))
	return false
}

// movePosition sends a position to all followers.
func (t *topic) movePosition(m protocol.Moved) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for f := range t.history.followers.all() {
		if f.conn.expectsPositions() {
			f.sendLocked(t.positionFrame(f.conn, m))
		}
	}
}
