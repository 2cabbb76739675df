package router

import (
	"time"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/envelope"
	"github.com/penstock-go/penstock/internal/protocol"
	"github.com/penstock-go/penstock/internal/topicname"
	"github.com/penstock-go/penstock/internal/wire"
	"github.com/penstock-go/penstock/internal/wsconn"
)

// This file queues publications for the subscribers of a topic.

// formatsOn returns the formats that the subscribers of a topic on this node use.
func (ts *topics) formatsOn(name string) envelope.FormatSet { return ts.formatsOf(ts.find(name)) }

// formatsOf returns the formats that the subscribers of a topic on this node use, which may be nil.
// A connection that subscribes with another format afterwards receives only later messages. Without
// codecs, it does not look at them.
func (ts *topics) formatsOf(t *topic) envelope.FormatSet {
	switch {
	case ts.formats.All() == envelope.OnlyJSON:
		return envelope.OnlyJSON
	case t == nil:
		return 0
	}
	all := ts.formats.All()
	var used envelope.FormatSet
	t.mu.Lock()
	defer t.mu.Unlock()
	for c := range t.subscribersLocked() {
		if used.Add(c.format); used == all {
			break
		}
	}
	return used
}

// sendChunk queues the frames for the subscribers of a topic in a chunk, except one, which may be nil, and
// returns for how many. Connections that are closed are skipped.
func (t *topic) sendChunk(p *envelope.Publication, conns []*subscriber, except *subscriber, at broker.Position) (receivers int) {
	var frames [chunkEntries]*wsconn.Frame
	for i, c := range conns {
		if c != except && !c.ws.Closing() {
			frames[i] = t.frameOf(p, c, at)
		}
	}
	for i, c := range conns {
		if sendShared(c, frames[i]) {
			receivers++
		}
	}
	return receivers
}

// sendShared queues a frame that the caller keeps. It reports false if the frame is nil, or if the
// connection does not take it.
func sendShared(c *subscriber, frame *wsconn.Frame) bool {
	if frame == nil {
		return false
	}
	frame.Retain()
	return c.queue(frame)
}

// frameOf returns the frame for a subscriber of a topic that does not receive positions, or nil if
// there is none. It names the topic if the client has greeted: others may not expect that. On a
// user log it has the offset, so that a client which is about to resume its session knows what
// comes again.
func (t *topic) frameOf(p *envelope.Publication, c *subscriber, at broker.Position) *wsconn.Frame {
	named, offset := c.hasGreeted(), uint64(0)
	if topicname.IsUserLog(t.name) {
		named, offset = t.pattern.namesOffsets, at.Offset
	}
	if !named {
		return p.Frame(c.format)
	}
	return p.Named(c.format, topicname.ForClient(t.name), offset)
}

// positionedFrame returns the frame for a follower, with the offset if its client expects positions. It returns
// nil if the publication lacks the format.
func (t *topic) positionedFrame(p *envelope.Publication, c *subscriber, offset uint64) *wsconn.Frame {
	if !c.expectsPositions() {
		return p.Frame(c.format)
	}
	return p.Positioned(c.format, topicname.ForClient(t.name), offset)
}

// deliverToFollowersLocked queues a message for the followers of a chunk except one, and returns
// for how many. Connections that are closed are skipped.
func (ts *topics) deliverToFollowersLocked(t *topic, p *envelope.Publication, followers []*follower, except *subscriber, at broker.Position) (receivers int) {
	var open [chunkEntries]bool
	for i, f := range followers {
		open[i] = !f.conn.ws.Closing()
	}
	for i, f := range followers {
		if open[i] && ts.deliverToFollower(t, p, f, f.conn == except, at) {
			receivers++
		}
	}
	return receivers
}

// deliverToFollower queues a message, which has no position if it is not stored.
func (ts *topics) deliverToFollower(t *topic, p *envelope.Publication, f *follower, skip bool, at broker.Position) (received bool) {
	if at.Offset > 0 {
		return ts.deliverPositioned(t, p, f, skip, at)
	}
	return !skip && sendShared(f.conn, t.frameOf(p, f.conn, at))
}

// deliverPositioned queues a message with its position, or only the position if the follower does not
// receive the message.
func (ts *topics) deliverPositioned(t *topic, p *envelope.Publication, f *follower, skip bool, at broker.Position) (received bool) {
	if frame := t.positionedFrame(p, f.conn, at.Offset); frame != nil && !skip {
		frame.Retain()
		return ts.sendLocked(f, frame)
	}
	if !f.conn.expectsPositions() {
		return false
	}
	m := protocol.Moved{Epoch: at.Epoch, Offset: at.Offset}
	if !skip {
		m.Lost = &protocol.Lost{From: at.Offset, To: at.Offset}
	}
	ts.sendLocked(f, ts.positionFrame(t, f.conn, m))
	return false
}

// movePosition sends a position to all followers.
func (ts *topics) movePosition(t *topic, m protocol.Moved) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for f := range t.history.followers.all() {
		if f.conn.expectsPositions() {
			ts.sendLocked(f, ts.positionFrame(t, f.conn, m))
		}
	}
}

// encode encodes a message of the protocol, which cannot fail: it contains only strings and numbers, and is JSON
// in every format.
func (ts *topics) encode(f envelope.Format, m protocol.Message) *wsconn.Frame {
	frame, _ := envelope.Encode(ts.formats.Codec(f), m, wire.OutgoingHead{At: time.Now()})
	return frame
}
