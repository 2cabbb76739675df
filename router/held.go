package router

import (
	"sync/atomic"

	"github.com/penstock-go/penstock/internal/wsconn"
)

// This file bounds what is held for a connection until answers about its topics have been queued.

// A connRecovery is what a connection needs because its client recovers what it has missed.
type connRecovery struct {
	session atomic.Pointer[session] // nil if there is none; stored only with Conn.mu held

	// Guarded by Conn.mu: the topics to which the client has subscribed by itself before it had a
	// session. No handler has granted them.
	ownTopics map[string]struct{}

	// What the followers of the connection hold together. They have different locks.
	heldMessages, heldBytes atomic.Int64
}

// recoveryState returns the connection's connRecovery, and creates it if there is none.
func (c *Conn) recoveryState() *connRecovery {
	if r := c.extra().recovery.Load(); r != nil {
		return r
	}
	extra := c.ownExtra()
	extra.recovery.CompareAndSwap(nil, new(connRecovery))
	return extra.recovery.Load()
}

// hold adds frames to what is held, and reports whether all of it is within the limits.
func (r *connRecovery) hold(messages, bytes, maxMessages, maxBytes int) bool {
	allMessages, allBytes := r.heldMessages.Add(int64(messages)), r.heldBytes.Add(int64(bytes))
	return allMessages <= int64(maxMessages) && allBytes <= int64(maxBytes)
}

// holdMissed holds frames that the client has missed. It reports false, and holds none, unless they,
// what other followers hold, and what waits in the send queue together fill at most half of it. So a
// client that returns to many topics can receive what is held for all of them.
func (f *follower) holdMissed(frames []*wsconn.Frame) bool {
	c := f.conn
	limits, queue, bytes := &c.router.opts.Limits, c.ws.QueueStats(), 0
	for _, frame := range frames {
		bytes += len(frame.Text())
	}
	*f.held = heldFrames{frames, bytes}
	if !c.recoveryState().hold(len(frames), bytes, limits.QueueMessages/2-queue.Messages, limits.QueueBytes/2-queue.Bytes) {
		f.release()
		return false
	}
	return true
}

// holdNext holds a frame that follows what the client has missed. It reports false if the followers
// hold more than a send queue.
func (f *follower) holdNext(frame *wsconn.Frame) bool {
	limits, bytes := &f.conn.router.opts.Limits, len(frame.Text())
	f.held.frames, f.held.bytes = append(f.held.frames, frame), f.held.bytes+bytes
	return f.conn.recoveryState().hold(1, bytes, limits.QueueMessages, limits.QueueBytes)
}

// release drops what is held.
func (f *follower) release() {
	for _, frame := range f.takeHeld() {
		frame.Release()
	}
}

// takeHeld returns what is held, for which the caller is responsible from then on.
func (f *follower) takeHeld() []*wsconn.Frame {
	if f.held == nil {
		return nil
	}
	held := *f.held
	if len(held.frames) > 0 {
		f.conn.recoveryState().hold(-len(held.frames), -held.bytes, 0, 0)
	}
	*f.held = heldFrames{}
	return held.frames
}
