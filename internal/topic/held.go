package topic

import (
	"sync/atomic"

	"github.com/penstock-go/penstock/internal/sequencer"
	"github.com/penstock-go/penstock/internal/wsconn"
)

// This file bounds what is held for a connection until answers about its topics have been queued.

// A Holding is what the followers of a connection hold together, and what is just being queued for
// them. They have different locks. A caller that needs room adds to it first, and looks at the send queue
// then, so that of two at least one knows of the other.
type Holding struct {
	messages, bytes atomic.Int64

	turn chan struct{} // of capacity 1: full while a part of a state is read and sent, so that the connection holds one
}

// Init must be called before the Holding is used.
func (h *Holding) Init() { h.turn = make(chan struct{}, 1) }

// NewCatchup returns what reads the publications that a client has missed: as many as holdMissed
// will hold at most. A packet contains a message in all formats.
func (ts *Topics) NewCatchup(c *Subscriber, h *Holding) *sequencer.Catchup {
	queue := c.WS.QueueStats()
	heldMessages, heldBytes := h.add(0, 0)
	messages := max(ts.config.QueueMessages/2-heldMessages-queue.Messages, 0)
	bytes := max(ts.config.QueueBytes/2-heldBytes-queue.Bytes, 0)
	return sequencer.NewCatchup(ts.histories, messages, bytes*int(ts.config.Formats.End())+messages*packetOverhead)
}

// packetOverhead is about how many bytes a packet has in addition to its messages, such as its
// conflation key.
const packetOverhead = 16

// add adds frames to what is held, and returns all of that.
func (h *Holding) add(messages, bytes int) (allMessages, allBytes int) {
	return int(h.messages.Add(int64(messages))), int(h.bytes.Add(int64(bytes)))
}

// holdMissed holds frames that the client has missed. It reports false, and holds none, unless they,
// what other followers hold, and what waits in the send queue together fill at most half of it. So a
// client that returns to many topics can receive what is held for all of them.
func (ts *Topics) holdMissed(f *follower, frames []*wsconn.Frame) bool {
	bytes := 0
	for _, frame := range frames {
		bytes += len(frame.Text())
	}
	*f.held = heldFrames{frames, bytes}
	allMessages, allBytes := f.holding.add(len(frames), bytes)
	queue := f.conn.WS.QueueStats()
	if allMessages+queue.Messages > ts.config.QueueMessages/2 || allBytes+queue.Bytes > ts.config.QueueBytes/2 {
		f.dropHeld()
		return false
	}
	return true
}

// holdNext holds a frame that follows what the client has missed. It reports false if the followers
// hold more than a send queue.
func (ts *Topics) holdNext(f *follower, frame *wsconn.Frame) bool {
	bytes := len(frame.Text())
	f.held.frames, f.held.bytes = append(f.held.frames, frame), f.held.bytes+bytes
	allMessages, allBytes := f.holding.add(1, bytes)
	return allMessages <= ts.config.QueueMessages && allBytes <= ts.config.QueueBytes
}

// dropHeld drops what is held.
func (f *follower) dropHeld() { f.endHold((*wsconn.Frame).Release) }

// sendHeld queues what is held.
func (f *follower) sendHeld() {
	f.endHold(func(frame *wsconn.Frame) { f.conn.queue(frame) }) // fails only if the connection is closed
}

// endHold passes what is held to a function, and stops counting it after that: so what is held does
// not vanish from the room that others need before it is queued.
func (f *follower) endHold(pass func(*wsconn.Frame)) {
	if f.held == nil || len(f.held.frames) == 0 {
		return
	}
	held := *f.held
	*f.held = heldFrames{}
	for _, frame := range held.frames {
		pass(frame)
	}
	f.holding.add(-len(held.frames), -held.bytes)
}
