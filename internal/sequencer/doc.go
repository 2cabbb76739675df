// Package sequencer is a router's side of every store of histories: it hands the publications of a
// topic to the subscribers of one node, once and in order, whatever the store and its connection do
// meanwhile. A [Sequencer] finds gaps and losses of one topic, and adds subscribers that have a
// position, or need the current state. The [Reader] of a node reads the store for its Sequencers,
// and a [Catchup] for one client that has been away.
//
// # Locks
//
// In this order: Sequencer.mu; then Reader.mu or Catchup.mu. The functions of a Sink, and those
// that activate a subscriber, run under Sequencer.mu. The store is never read under a lock;
// Unfollow is called under Sequencer.mu.
//
// # Goroutines
//
// A Reader and a Catchup have one each, which exists only while they read. A Sequencer has none: it
// has timers while publications are missing, and while it keeps some for clients that return; the
// Reader has one while there are Sequencers.
package sequencer
