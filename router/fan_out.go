package router

import (
	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/envelope"
	"github.com/penstock-go/penstock/internal/wsconn"
)

// This file queues publications on connections.

// encodeAll encodes a message in the given formats. If some of them cannot encode it, it returns the
// publication in the other formats, and the error.
func (r *Router) encodeAll(m Message, in envelope.FormatSet) (envelope.Publication, error) {
	if r.opts.Development {
		r.hintSent(m)
	}
	return r.formats.Encode(m, in)
}

// sendAll sends a publication to many connections. Connections that are closed are skipped.
func sendAll(p *envelope.Publication, conns []*Conn) {
	for _, c := range conns {
		sendShared(c, p.Frame(c.format))
	}
}

// sendShared queues a frame that the caller keeps. It reports false if the frame is nil, or if the
// connection does not take it.
func sendShared(c *Conn, frame *wsconn.Frame) bool {
	if frame == nil {
		return false
	}
	frame.Retain()
	return c.send(frame) == nil
}

// sendChunk queues the frames for the subscribers of a topic in a chunk, except one, which may be nil, and
// returns for how many. Connections that are closed are skipped.
func (t *topic) sendChunk(p *envelope.Publication, conns []*Conn, except *Conn, at broker.Position) (receivers int) {
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

// frameOf returns the frame for a subscriber of a topic that does not receive positions, or nil if
// there is none. It names the topic if the client has greeted: others may not expect that. On a
// user log it has the offset, so that a client which is about to resume its session knows what
// comes again.
func (t *topic) frameOf(p *envelope.Publication, c *Conn, at broker.Position) *wsconn.Frame {
	named, offset := c.hasGreeted(), uint64(0)
	if isUserLog(t.name) {
		named, offset = c.router.resumes(), at.Offset
	}
	if !named {
		return p.Frame(c.format)
	}
	return p.Named(c.format, clientTopic(t.name), offset)
}

// positionedFrameOf returns the frame for a follower, with the position if its client expects that. It
// returns nil if the publication lacks its format.
func (t *topic) positionedFrameOf(p *envelope.Publication, c *Conn, offset uint64) *wsconn.Frame {
	if !c.expectsPositions() {
		return p.Frame(c.format)
	}
	return p.Positioned(c.format, clientTopic(t.name), offset)
}

// formatsOf returns the formats that connections use. Without codecs, it does not look at them.
func (r *Router) formatsOf(conns []*Conn) envelope.FormatSet {
	if r.formats.All() == envelope.OnlyJSON {
		return envelope.OnlyJSON
	}
	var used envelope.FormatSet
	for _, c := range conns {
		used.Add(c.format)
	}
	return used
}

// formatsToPublish returns the formats in which a message to a topic is encoded.
func (ts *topics) formatsToPublish(name string, allNodes bool) envelope.FormatSet {
	r := ts.router
	if r.formats.All() == envelope.OnlyJSON {
		return envelope.OnlyJSON
	}
	return r.formats.ToPublish(ts.formatsOf(ts.find(name)), allNodes && r.opts.Broker != nil)
}

// formatsOf returns the formats that the subscribers of a topic on this node use, which may be nil.
// A connection that subscribes with another format afterwards receives only later messages. Without
// codecs, it does not look at them.
func (ts *topics) formatsOf(t *topic) envelope.FormatSet {
	all := ts.router.formats.All()
	switch {
	case all == envelope.OnlyJSON:
		return envelope.OnlyJSON
	case t == nil:
		return 0
	}
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
