package topic

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

// FormatsOn returns the formats that the subscribers of a topic on this node use.
func (ts *Topics) FormatsOn(name string) envelope.FormatSet { return ts.formatsOf(ts.Find(name)) }

// formatsOf returns the formats that the subscribers of a topic on this node use, which may be nil.
// A connection that subscribes with another format afterwards receives only later messages. Without
// codecs, it does not look at them.
func (ts *Topics) formatsOf(t *Topic) envelope.FormatSet {
	switch {
	case ts.config.Formats.All() == envelope.OnlyJSON:
		return envelope.OnlyJSON
	case t == nil:
		return 0
	}
	all := ts.config.Formats.All()
	var used envelope.FormatSet
	t.mu.Lock()
	defer t.mu.Unlock()
	for c := range t.subscribersLocked() {
		if used.Add(c.Format); used == all {
			break
		}
	}
	return used
}

// sendChunk queues the frames for the subscribers of a topic in a chunk, except one, which may be
// nil, and returns for how many. Connections that are closed are skipped.
func (t *Topic) sendChunk(p *envelope.Publication, conns []*Subscriber, except *Subscriber, at broker.Position) (receivers int) {
	var frames [chunkEntries]*wsconn.Frame
	for i, c := range conns {
		if c != except && !c.WS.Closing() {
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
func sendShared(c *Subscriber, frame *wsconn.Frame) bool {
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
func (t *Topic) frameOf(p *envelope.Publication, c *Subscriber, at broker.Position) *wsconn.Frame {
	named, offset := c.HasGreeted(), uint64(0)
	if topicname.IsUserLog(t.Name) {
		named, offset = t.Pattern.namesOffsets, at.Offset
	}
	if !named {
		return p.Frame(c.Format)
	}
	return p.Named(c.Format, topicname.ForClient(t.Name), offset)
}

// positionedFrame returns the frame for a follower, with the offset if its client expects
// positions. It returns nil if the publication lacks the format.
func (t *Topic) positionedFrame(p *envelope.Publication, c *Subscriber, offset uint64) *wsconn.Frame {
	if !c.expectsPositions() {
		return p.Frame(c.Format)
	}
	return p.Positioned(c.Format, topicname.ForClient(t.Name), offset)
}

// deliverToFollowersLocked queues a message for the followers of a chunk except one, and returns
// for how many. Connections that are closed are skipped.
func (ts *Topics) deliverToFollowersLocked(t *Topic, p *envelope.Publication, followers []*follower, except *Subscriber, at broker.Position) (receivers int) {
	var open [chunkEntries]bool
	for i, f := range followers {
		open[i] = !f.conn.WS.Closing()
	}
	for i, f := range followers {
		if open[i] && ts.deliverToFollower(t, p, f, f.conn == except, at) {
			receivers++
		}
	}
	return receivers
}

// deliverToFollower queues a message, which has no position if it is not stored.
func (ts *Topics) deliverToFollower(t *Topic, p *envelope.Publication, f *follower, skip bool, at broker.Position) (received bool) {
	if at.Offset > 0 {
		return ts.deliverPositioned(t, p, f, skip, at)
	}
	return !skip && sendShared(f.conn, t.frameOf(p, f.conn, at))
}

// deliverPositioned queues a message with its position, or only the position if the follower does not
// receive the message.
func (ts *Topics) deliverPositioned(t *Topic, p *envelope.Publication, f *follower, skip bool, at broker.Position) (received bool) {
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
func (ts *Topics) movePosition(t *Topic, m protocol.Moved) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for f := range t.history.followers.all() {
		if f.conn.expectsPositions() {
			ts.sendLocked(f, ts.positionFrame(t, f.conn, m))
		}
	}
}

// encode encodes a message of the protocol, which cannot fail: it contains only strings and
// numbers, and is JSON in every format.
func (ts *Topics) encode(f envelope.Format, m protocol.Message) *wsconn.Frame {
	frame, _ := envelope.Encode(ts.config.Formats.Codec(f), m, wire.OutgoingHead{At: time.Now()})
	return frame
}
