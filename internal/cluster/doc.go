// Package cluster is the part of a broker that is the same for all engines: it numbers packets per
// publisher, detects losses and duplicates, publishes heartbeats, expires failed nodes, bounds and
// batches what waits to be published, and reports losses when the subscription works again. An
// [Engine] carries the bytes.
//
// # Losses
//
// A node numbers the packets of each channel. Receivers compare the numbers: a gap is a loss, a
// repeated number a duplicate. A node that failed to publish sends a gap message when the path
// works again, so that a loss is detected without a further packet. Before it forgets the numbers
// of an unused channel, it sends the last one. An interruption of a subscription is a loss of an
// unknown number of packets. A pause is none: what a connection still delivers after it, in its
// order, is delivered. A node only replaces a connection that has lost a probe or that is silent
// while another one works.
//
// A topic's losses are collected and reported together, lossDelay after the first was detected and
// after the subscription works again. By then a heartbeat of each peer has arrived. Each packet
// carries the number of the heartbeat before its predecessor was published, so that a gap which is
// revealed later, but was published before the report, is not reported again.
//
// # Goroutines
//
//   - One per node, Node.run, publishes heartbeats and probes, expires peers and reports
//     losses. It ends with Close.
//   - One per path while messages wait for it, of the outbox's pathqueue, publishes them. Close does not
//     wait for one whose batch is not answered.
//   - Those of the engine call received, confirmed and interrupted.
//
// The functions of the handlers are called by the first and the last.
//
// # Locks
//
// A goroutine acquires locks only in this order, and may skip levels:
//
//  1. subscription.mu: held while functions of the broker.Callbacks are called for the topic
//  2. that of Node.gate, for reading: held while a function of a handler is called; Close acquires
//     it for writing, without other locks
//  3. locks of the caller's handler
//  4. subscriptions.mu: held for Link.SetSubscribed, so that the engine sees the order of calls
//  5. outbox.mu, peers.mu, probes.mu, and the locks of the engine: none of them is held while
//     another one is acquired, except that the lock of the outbox's pathqueue is acquired under
//     outbox.mu, and Publisher.Path is called under both
//
// Node.Subscribe, Unsubscribe and Publish start at level 4, and Nodes at level 5, so the caller may
// hold locks that its handler acquires.
package cluster
