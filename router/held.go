package router

import (
	"sync/atomic"

	"github.com/penstock-go/penstock/internal/sequencer"
	"github.com/penstock-go/penstock/internal/wsconn"
)

// This file bounds what is held for a connection until answers about its topics have been queued.

// A resumable is what a connection needs because its client recovers what it has missed.
type resumable struct {
	session atomic.Pointer[session] // nil if there is none; stored only with Conn.mu held

	// Guarded by Conn.mu: the topics to which the client has subscribed by itself before it had a
	// session. No handler has granted them.
	ownTopics map[string]struct{}

	// What the followers of the connection hold together, and what is just being queued for them. They have
	// different locks. Whoever needs room adds to these first, and looks at the send queue then, so that of two
	// at least one knows of the other.
	heldMessages, heldBytes atomic.Int64

	// Topics for which something is held until the answer to $ws:resume is queued. The serial route owns it.
	joined []string

	stateTurn chan struct{} // of capacity 1: full while a part of a state is read and sent, so that the connection holds one
}

// resumableState returns the connection's resumable, and creates it if there is none.
func (c *Conn) resumableState() *resumable {
	if r := c.extra().recovery.Load(); r != nil {
		return r
	}
	extra := c.ownExtra()
	extra.recovery.CompareAndSwap(nil, &resumable{stateTurn: make(chan struct{}, 1)})
	return extra.recovery.Load()
}

// newCatchup returns what reads the publications that the client has missed: as many as holdMissed will hold
// at most. A packet contains a message in all formats.
func (c *Conn) newCatchup() *sequencer.Catchup {
	limits, queue := &c.router.opts.Limits, c.ws.QueueStats()
	heldMessages, heldBytes := c.resumableState().hold(0, 0)
	messages := max(limits.QueueMessages/2-heldMessages-queue.Messages, 0)
	bytes := max(limits.QueueBytes/2-heldBytes-queue.Bytes, 0)
	return sequencer.NewCatchup(c.router.histories, messages, bytes*int(c.router.formats.End())+messages*packetOverhead)
}

// packetOverhead is about how many bytes a packet has in addition to its messages, such as its conflation key.
const packetOverhead = 16

// hold adds frames to what is held, and returns all of that.
func (r *resumable) hold(messages, bytes int) (allMessages, allBytes int) {
	return int(r.heldMessages.Add(int64(messages))), int(r.heldBytes.Add(int64(bytes)))
}

// holdMissed holds frames that the client has missed. It reports false, and holds none, unless they,
// what other followers hold, and what waits in the send queue together fill at most half of it. So a
// client that returns to many topics can receive what is held for all of them.
func (f *follower) holdMissed(frames []*wsconn.Frame) bool {
	c := f.conn
	limits, bytes := &c.router.opts.Limits, 0
	for _, frame := range frames {
		bytes += len(frame.Text())
	}
	*f.held = heldFrames{frames, bytes}
	allMessages, allBytes := c.resumableState().hold(len(frames), bytes)
	queue := c.ws.QueueStats()
	if allMessages+queue.Messages > limits.QueueMessages/2 || allBytes+queue.Bytes > limits.QueueBytes/2 {
		f.dropHeld()
		return false
	}
	return true
}

// holdNext holds a frame that follows what the client has missed. It reports false if the followers
// hold more than a send queue.
func (f *follower) holdNext(frame *wsconn.Frame) bool {
	limits, bytes := &f.conn.router.opts.Limits, len(frame.Text())
	f.held.frames, f.held.bytes = append(f.held.frames, frame), f.held.bytes+bytes
	allMessages, allBytes := f.conn.resumableState().hold(1, bytes)
	return allMessages <= limits.QueueMessages && allBytes <= limits.QueueBytes
}

// dropHeld drops what is held.
func (f *follower) dropHeld() { f.endHold((*wsconn.Frame).Release) }

// sendHeld queues what is held.
func (f *follower) sendHeld() {
	f.endHold(func(frame *wsconn.Frame) { _ = f.conn.send(frame) }) // fails only if the connection is closed
}

// endHold passes what is held to a function, and stops counting it after that: so what is held does not vanish
// from the room that others need before it is queued.
func (f *follower) endHold(pass func(*wsconn.Frame)) {
	if f.held == nil || len(f.held.frames) == 0 {
		return
	}
	held := *f.held
	*f.held = heldFrames{}
	for _, frame := range held.frames {
		pass(frame)
	}
	f.conn.resumableState().hold(-len(held.frames), -held.bytes)
}
