package router

// This file documents the goroutines and the locks of the package. Keep it current in the
// commit that changes them.
//
// # Goroutines
//
// Per connection:
//
//   - open, then serve (conn_lifecycle.go): one goroutine calls OnOpen, then another one reads
//     messages and runs stages 1 to 5. At most one goroutine reads a connection. While there
//     is nothing to read, there is none: wsconn parks the connection, and an event loop later calls
//     serve on its own goroutine. If OnOpen refuses the connection,
//     refuseAfterOpen reads instead until the connection is closed. A request that is refused
//     after the upgrade has no Conn: wsconn.Refusals reads until its wsconn.Conn is closed.
//   - c.messages (internal/executor): in an event loop, stages 6 and 7 of a message that does not
//     have to wait run on the reading goroutine, which lends the right to read meanwhile
//     (wsconn.Conn.Lend): if a handler blocks, the goroutine that takes the loop over reads on.
//     Otherwise, and for routes with OwnGoroutine, they run on a goroutine of the pool. One message
//     at a time holds the turn; a concurrent route gives it up with Yield and keeps its goroutine.
//   - c.reports (report_limit.go): a serial queue that calls OnLimitExceeded and
//     OnBackpressure, on a goroutine of the pool, which exists only while a report waits.
//   - the writer (internal/wsconn): exists only while frames are queued. What an event loop queues for
//     the connection that it serves, it writes itself; what others queue, a goroutine writes for many
//     connections. The writer takes one batch at a
//     time out of the queue; what it has taken does not count for the limits.
//   - producers: any goroutine that calls SendWait or ProgressWait. It holds none of the locks
//     below while it waits. Those that wait take turns in a channel, in order, and encode in their
//     turn (internal/wsconn, producers.go); so do goroutines that wait to queue answers. The
//     iterator of a stream is one: it runs on the goroutine of its handler, and the end of its
//     context wakes it (cancelCall). When a connection is drained, each open stream is answered on
//     a goroutine of its own (endStreams).
//   - callers of clients: any goroutine that calls Call. It waits for the answer without a lock and
//     without a reference in c.active. The reading goroutine hands it the answer.
//     Calls for other nodes, and those of CallUser to connections of this node, have a goroutine each
//     (internal/ask).
//
// Each of the reader, a received message and a queued report holds a reference in c.active.
// The goroutine that releases the last reference ends the connection: it leaves the topics,
// calls OnClose, and releases the slots. Conn.acquire fails after that.
//
// Per connection whose identity expires: the timer of connIdentity, which calls checkExpiry.
// Per connShard: the timer of its calls.Deadlines, which looks for the expired calls of connections
// and starts a goroutine for each. That answers the call (cancelCall) wherever it is: in ingress on
// the reading goroutine, in c.messages, or in its handler. An abort does the same on the reading
// goroutine. The goroutine that marks the call as answered sends the answer (calls.Index.Settle).
// The one that takes a message out of c.messages owns it, so a waiting call is either removed by
// cancelCall or starts.
// Per router: the timer of the present.Table, and a goroutine for each client or member whose time is up,
// and for each client that has to go because too many are away.
// Per connection with a session (internal/session): a timer, and a goroutine that exists only while the
// record is stored. Shutdown waits for these goroutines.
// The goroutines that subscribe topics for $ws:resume and those that send the parts of states are
// described in internal/member. They hold no reference in c.active.
// Per node with Options.UserHistory: the queue of the access.Node, which applies what its sequencer
// hands over, because that holds its lock; and a goroutine for each user who is
// disconnected, which waits for the messages before.
// Per topic with a History: a timer of its sequencer.Sequencer, which runs while publications are
// missing.
// Per router: the goroutine of the sequencer.Reader, which exists only while topics are read from
// the store, and its timers; report.Hooks.Later, a queue for OnPresence, OnMessagesLost and panics that
// are logged later, whose goroutine exists only while a function waits. Per presence query: two timers. Per topic
// whose presence clients asked for: a timer, which exists only while a change is not sent.
//
// Any of these goroutines can end early, because application code may call runtime.Goexit.
// What must happen nevertheless is deferred.
//
// # Locks
//
// A goroutine acquires locks only in this order, and may skip levels:
//
//  1. Member.mu of internal/member: guards the subscriptions and the session of a connection; Member.Do
//     also holds it for SetIdentity and the check of ExpiresAt, so that the topics see the changes of one
//     connection in order, and an identity is not changed after it has expired
//  2. the locks of internal/topic, in the order that its documentation gives: of a shard, of the
//     sequencer of a topic, of a topic
//  3. the lock of the serial queue c.messages, held for wsconn.Conn.Wake
//  4. wsconn.Conn.mu: also held while call.answered is read before progress or an item is queued.
//     call.answered is set before the answer is queued, so neither follows the answer
//
// The following locks may be acquired under any of those above. Under them, only locks of
// internal/executor are acquired, in the order that its documentation gives:
//
//   - the lock of internal/registry
//   - the lock of the queue of access.Node
//   - the locks of internal/calls
//   - Session.mu of internal/session, and under it Node.mu of that package
//   - the lock of a present.Table, also under Session.mu, and under it that of its clock
//   - those of internal/topic that are in no order
//   - the lock of report.Refusals
//   - reports.mu, and the lock of the serial queue c.reports
//   - Router.routesMu, and under it the lock of declared.Messages
//   - sequencer.Reader.mu, sequencer.Catchup.mu, and the locks of internal/ask
//   - the locks of executor.Pool, executor.ByteBudget and executor.FuncQueue
//
// A goroutine never holds two locks of the same level.
//
// # Calls under locks
//
// Under a lock, the package never waits for a client, a handler or a hook. A message of the
// application is encoded before locks are acquired, so a Codec is never called under one. Changes of
// presence are encoded under Topic.mu, and the warning before an identity expires under Member.mu, as
// JSON in every format. The package calls only this application code there, which must not call the
// router, and after whose panics no lock is held:
//
//   - the methods of broker.Node, under the locks of internal/topic, and Nodes under ask.Node.mu; so
//     a broker must not call its broker.Callbacks before they have returned. Node.Close is called
//     without locks, because it waits for functions of the broker.Callbacks
//   - observers, under Member.mu or the locks of internal/topic, when a message is dropped or conflated
//
// Hooks and the Logger may call the router, so code under a lock queues them in Hooks.Later or
// c.reports. The methods of wsconn.Handler run without wsconn.Conn.mu, but possibly under
// Topic.mu of the sender, so they only queue reports and call observers.
