// Package session keeps the sessions of the clients of a node. A session outlives connections: its
// client presents a token on another connection, perhaps of another node, and that connection gets what
// handlers have granted it. Each session belongs to one connection at a time.
//
// # Records
//
// What all nodes know of a session is a record in the [broker.ValueStore], which replaces a record only
// for those who know its version. So the store decides in which order connections get a session. It
// numbers them, with a generation: a connection never stores the record of a later generation.
//
// A [Session] is what a node knows of one connection that has the session, has had it, or is claiming
// it. A node forgets it when it does not matter to others any more.
//
// # States
//
// A session is in one of these states. Those with "away" belong to a connection that has been closed,
// and for which its node waits, because members of topics stay for it, or the application wants to know
// how it ends.
//
//	claiming         the store has not answered whether the connection has the session
//	open             the connection has the session
//	detached         away: the client may come back
//	superseded       another connection has the session; until that is in the topics, this one stays
//	superseded-away  the same, away
//	moved            another connection has the session, and is in the topics
//	ended            no connection has the session
//	ended-away       the same, away: it is reported when its time is up
//	abandoned        the connection has another session, or its client has never had this one
//
// [Node.Begin] returns a session that is open. [Session.StoreFirst] waits for the store, but not for long: then
// the record is stored later, as after any other save that fails. These events change something later; in all other states, they have no effect, or cannot
// happen. The last column has the actions of the connection, and "stored" or "deleted" if that happens to
// the record. A test reads this table, and tries every event in every state.
//
//	event       state                               next             effect
//	----------  ----------------------------------  ---------------  ------------------------------
//	adopt       claiming                            open
//	claimed     claiming                            moved            GiveUp
//	claimed     open ended                          superseded       StopServing
//	claimed     detached ended-away                 superseded-away
//	in topics   claiming open superseded ended      moved            GiveUp
//	in topics   detached superseded-away ended-away moved            LeaveTopics
//	lost conn   open                                detached         stored
//	lost conn   superseded                          superseded-away
//	lost conn   ended                               ended            ReportEnd
//	closed      open                                ended            ReportEnd deleted
//	closed      superseded                          superseded-away
//	closed      ended                               ended            ReportEnd
//	discard     open                                ended            deleted
//	discard     detached                            ended            LeaveTopics ReportEnd deleted
//	discard     ended-away                          ended            LeaveTopics ReportEnd
//	replace     claiming superseded moved ended     abandoned
//	replace     open                                abandoned        deleted
//	replace     detached                            abandoned        LeaveTopics deleted
//	replace     superseded-away ended-away          abandoned        LeaveTopics
//	identity    open                                open             stored
//	identity    detached                            detached         stored
//	grant       open                                open             stored
//	grant       detached                            detached         stored
//	revoke      open                                ended            EndAccess deleted
//	revoke      detached                            detached         stored
//	tick        open                                open             stored
//	tick        detached                            detached         stored
//	other node  open                                superseded       StopServing
//	other node  detached                            superseded-away
//	no record   open                                ended
//	no record   detached                            ended-away
//	time is up  detached ended-away                 ended            LeaveTopics ReportEnd
//	time is up  superseded-away                     moved            LeaveTopics
//	too many    detached                            ended            LeaveTopics ReportEnd deleted
//	too many    superseded-away                     moved            LeaveTopics
//	too many    ended-away                          ended            LeaveTopics ReportEnd
//	access      detached ended-away                 ended            LeaveTopics ReportEnd
//	access      superseded-away                     superseded       LeaveTopics
//	stop        superseded-away                     superseded
//	stop        ended-away                          ended
//
// # Resuming a session
//
// [Node.Claim] checks the token and replaces the record; [Claim.Announce] makes the earlier connection
// stop serving; [Claim.Adopt] begins to serve; when the topics are subscribed, [Claim.AnnounceMoved]
// makes the earlier connection leave them. So its member never leaves:
//
//   - On the same node, or on another one, the earlier connection does the same. The packet is for
//     the node of that connection alone, unless its client has not acknowledged the token: then one before it
//     may not know, and all nodes receive the packet. If it is lost, the node learns it when it stores the
//     record: within a third of the time to come back, while the connection is open.
//   - During a save of the earlier connection, one of the two finds another version. A claim begins
//     again; a save gives up, if the record belongs to a later generation.
//   - Of two connections that resume a session at the same time, one gets an error, unless one has been
//     the owner before the other has read the record; then it is superseded.
//   - If the answer of the store is lost, the record says to whom the session belongs. The client may try
//     again with the token that it has presented, until it acknowledges the new one.
//
// # Locks and goroutines
//
// Session.mu guards the state of a session. Node.mu guards which there are; it may be acquired under
// Session.mu, and nothing is called under it. [Conn].Act, the store and Config.Publish are called without
// both. The caller changes topics and grants together, with a lock of its own that it acquires before
// those of this package; [Session.CatchUp] acquires it through Act. Node.later has a lock under which nothing is called;
// that of Node.timers may be acquired under Session.mu.
//
// Per session there is a goroutine while its record is stored (save.go). A node has a timer for the times at which
// sessions are stored again, and one while anything is delayed (later.go). [Node.Close] waits for these goroutines, and for those of [present.Table] that end sessions. The lock of the Table may be acquired under Session.mu.
package session
