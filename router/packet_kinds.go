package router

// The first byte of a packet between nodes is its kind. A node ignores unknown kinds, which later versions
// may send. 1 and 4 are messages, of which internal/envelope has the encoding; topics have 5, and internal/ask those from 32.
const (
	packetUserMessage    = 2 // a message for a user: tenant, user, and a message
	packetUserDisconnect = 3 // tenant, user, status code as a varint, and the reason
	packetUserRevoke     = 6 // tenant, user, the previous and the new sequence as varints, and the topic or pattern
	packetSessionClaimed = 7 // the ID of a session, and as a varint the generation of the connection that has it
	packetSessionMoved   = 8 // the same, and the topics in which the session does not go on
	packetStored         = 9 // a packet that is also in the access log: for nodes that do not follow it
)
