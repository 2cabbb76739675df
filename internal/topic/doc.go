// Package topic has the topics of a node: who subscribes to them, and what their subscribers receive, in
// order. Package presence decides who is present in a topic: this package passes events to it, and does what
// follows. It knows a connection as a [Subscriber], which is a part of it, and the router as a [Config].
//
// A subscriber of a topic with a history can be a follower: it receives positions, and misses nothing
// that the history still has. What a follower receives is held until the answer to its request has been
// queued, then sent, or dropped if it is too much: see held.go.
//
// # Locks
//
// The lock of a connection belongs to its owner. It guards the subscriptions of the [Subscriber], so that
// topics see the changes of one connection in order. A goroutine acquires locks in this order:
//
//  1. the lock of a connection
//  2. shard.mu: guards the topics of a shard, and how many subscriptions each has; also held while the
//     [broker.Node] subscribes and unsubscribes, so that it sees them in order
//  3. the lock of a sequencer: held while it hands over a publication or a loss, and while a follower is
//     activated, so that what the follower has missed and what is next are in order. A sequencer is
//     closed under shard.mu, without Topic.mu
//  4. Topic.mu: guards the subscribers, and the [presence.Members] with their feed; also held while a message is
//     queued for all subscribers or all watchers, and while members are announced to the [broker.Node]
//  5. the lock of a [wsconn.Conn]
//
// waitingChanges.mu and the lock of a [present.Table] may be acquired under any of these, and nothing of this
// package is called under them. A goroutine never holds two locks of the same level, and waits for nothing under one.
// The functions of [Config] may be called under Topic.mu.
//
// # Goroutines
//
// A timer per topic calls the package, which exists only until changes of its presence are sent to clients that asked
// for them (feed.go). The goroutines of [present.Table] end the presence of those who do not come back (presence.go).
//
// [StateSender.Run] runs on a goroutine of its caller. Those of one connection take turns.
package topic
