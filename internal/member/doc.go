// Package member owns what a connection is a member of: its subscriptions, what handlers have granted, its presence,
// the log of its user, and its session, which it resumes. A [Node] has the methods that need the topics or the sessions
// of the node, a [Member] the others.
//
// # States
//
// A connection is in one of these states. In all of them but the last, its handlers may still run and change its
// topics.
//
//	plain       it has no session
//	session     it has a session
//	lost        its transport has ended so that the client may come back for the session
//	closed      it was closed for good, and its session has ended
//	superseded  another connection has the session
//	left        its last handler has returned
//
// The table says what becomes of a topic: one to which the connection is subscribed before unsubscribe, revoke and
// return, which is the end of its last handler, and one to which it is not before subscribe. A connection whose
// transport has ended may be subscribed, and receives nothing. "present" is whether the client is a member of the topic
// on other nodes, unless it is hidden, and "resumes" whether it has the topic when it then resumes the session on another
// node. A test reads this table.
//
//	event        state       result      present  resumes
//	-----------  ----------  ----------  -------  -------
//	subscribe    plain       subscribed  yes      no
//	subscribe    session     subscribed  yes      yes
//	subscribe    lost        subscribed  yes      yes
//	subscribe    closed      subscribed  yes      no
//	subscribe    superseded  ABORTED     no       no
//	subscribe    left        UNAVAILABLE no       no
//	unsubscribe  plain       -           no       no
//	unsubscribe  session     -           no       no
//	unsubscribe  lost        -           no       no
//	unsubscribe  closed      -           no       no
//	revoke       plain       -           no       no
//	revoke       session     -           no       no
//	revoke       lost        subscribed  no       no
//	revoke       closed      subscribed  no       no
//	return       plain       subscribed  yes      no
//	return       session     subscribed  yes      yes
//	return       lost        -           yes      yes
//	return       closed      -           no       no
//
// # Locks
//
// Member.mu is the only lock, and the first of the order: it is held while the locks of internal/session,
// internal/topic and internal/wsconn are acquired, so that the topics see the changes of one connection in order. No
// method of [Conn] acquires it. [Node.AwaitUserLog] waits without it, after [Member.Do] has returned.
//
// # Goroutines
//
// [Node.Resume] subscribes to topics on a goroutine for each, for which it waits; another one reads what the client has
// missed of them (sequencer.Catchup). A subscription whose state has more than one part has a goroutine that reads and
// queues the parts (sendState). It takes turns with those of the connection's other topics, and with producers, in
// channels, and holds no lock while it waits. It ends with the context of the connection.
package member
