// Package present has everyone who is away on a node in one [Table]: clients that may come back, and members that no node
// announces. It takes events and the time, and says with an [Action] what must be done. It also remembers recent disconnects.
//
//	waiting   a client that may come back for its session; its node knows the session
//	evicted   the same, but the session is about to end, because too many clients were away
//	recorded  a client that may come back for its session, of which only the store knows more
//	grace     a client without a session, which stays present for the time of PresenceGrace
//	held      a member that no node announces, which may come back, or which another node is about to announce
//
// These events change something: "-" is not in the table, "=" the same state. "time" is that of the session or of the last
// topic; with "unused", a session has no topics; "moved" is that another connection has the session, and is in the topics.
// A test reads this table, and tries every event in every state.
//
//	event       state                                 next      action
//	----------  ------------------------------------  --------  ------
//	wait        -                                     waiting
//	hold        -                                     held
//	stay        -                                     grace
//	time        waiting evicted                       =         Expire
//	time        recorded                              -
//	time        grace held                            -         Leave
//	access      waiting evicted                       =         End
//	access      grace held                            -         Leave
//	revoke      waiting evicted                       =         Leave
//	revoke      grace held                            -         Leave
//	too many    waiting                               evicted   Evict
//	too many    recorded                              -         Evict
//	too many    grace                                 -         Leave
//	taken over  grace                                 -         Leave
//	unused      waiting                               recorded
//	unused      evicted                               -
//	moved       recorded                              -
//	forget      waiting evicted recorded grace held   -
//	close       waiting evicted recorded grace held   -
//
// # Locks and goroutines
//
// The lock of a Table may be acquired under any lock of the callers. Under it, only the lock of its one timer is acquired,
// and the functions are called that EndAccess, Revoke and DisconnectOf take. Act is called without it: by EndAccess and
// Revoke on the goroutine of their caller, and otherwise on a goroutine for each absence, because Act may wait for a store,
// and a store or a broker may end the goroutine.
package present
