// Package presence has the members of one topic, on all nodes, as a state machine without lock, goroutine, network and clock:
// the caller passes events to [Members], and does what the [Effects] say.
//
//	a connection of this node joins, leaves or closes ─┐             ┌─► announce to the other nodes
//	another node announces or withdraws a member      ─┼─► Members ──┼─► keep present whose client may come back
//	the time of a member is up                        ─┘      │      └─► report to the application
//	                                                          ▼
//	clients watch, and a time after each first change ──► the feed: messages for the watchers
//
// A member has connections on this node and on others. What happens when one of them ends:
//
//	connection          ends                          member
//	------------------  ----------------------------  ------------------------------------------------------
//	any but the last    in any way                    stays; this node announces it while it has one itself
//	last, of this node  for good                      leaves
//	last, of this node  another node may have it      is held for [TakeOverHold], unless a node announces it
//	last, of this node  closed, the client may return stays with the closed connection until that leaves
//	last, of a node     with Stays, which may return  is held
//	last, of a node     otherwise                     leaves
//
// A member that is held has no connection. It goes on as the same member if a node announces it again.
package presence
