// Package sequencer is a router's side of every store of histories: it hands the publications of a
// topic to the subscribers of one node, once and in order, whatever the store and its connection do
// meanwhile. A [Sequencer] finds gaps and losses of one topic, and adds subscribers that have a
// position, or need the current state. The [Reader] of a node reads the store for its Sequencers,
// a [Catchup] for one client that has been away, and a [Cursor] for a part of the node that begins in the past.
//
// # Cursors
//
// A [Cursor] is in one of these states. In the first four, its owner runs [Log.Run].
//
//	behind    the store may have more
//	reading   the store is being read
//	outdated  the same, but the answer does not matter
//	waiting   the store could not be reached
//	live      everything was handed over
//	lost      what follows is not stored any more
//	refused   the store refuses to be read
//
// The answer of the store is a part of what there is, all of it, one that does not follow the position, a temporary failure,
// or a refusal. These events change something, and have no effect, or cannot happen, in all other states. A test
// reads this table, and tries every event in every state.
//
//	event      state                     next      effect
//	---------  ------------------------  --------  ---------
//	run        behind waiting            reading   read
//	part       reading                   behind    hand over
//	all        reading                   live      hand over
//	gap        reading                   lost      report
//	part       outdated                  behind
//	all        outdated                  behind
//	gap        outdated                  behind
//	failure    reading outdated          waiting   wait
//	refusal    reading outdated          refused   report
//	published  live                      live      hand over
//	arrives    live                      behind
//	loss       live                      behind
//	loss       reading                   outdated
//	begin      waiting live lost refused behind
//	begin      reading                   outdated
//
// # Locks
//
// In this order: Sequencer.mu; then Reader.mu or Catchup.mu. The functions of a Sink, and those
// that activate a subscriber, run under Sequencer.mu, which also guards the Cursor of a Tail. The store is
// never read under a lock; Unfollow is called under Sequencer.mu.
//
// # Goroutines
//
// A Reader and a Catchup have one each, which exists only while they read. A Sequencer has none: it
// has timers while publications are missing, and while it keeps some for clients that return; the
// Reader has one while there are Sequencers. A Tail and Log.Run use that of their caller.
package sequencer
