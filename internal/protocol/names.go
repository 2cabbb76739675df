// Code generated from docs/protocol.json. DO NOT EDIT.

package protocol

// Version is the highest version of the protocol that this package knows.
const Version = 1

// Message types of the protocol.
const (
	// from the server: the answer to a refused message that has no correlationId, or whose ID belongs
	// to another call
	TypeError = "ERROR"
	// from both: the error that answers a call
	TypeRPCError = "RPC_ERROR"
	// from clients: shows that the connection is alive
	TypeHeartbeat = "__heartbeat"
	// from the server: acknowledges a heartbeat; meta has only ts, the server's clock in milliseconds
	// since 1970
	TypeHeartbeatAck = "__heartbeat_ack"
	// from clients: the greeting
	TypeHello = "$ws:hello"
	// from the server: answers the greeting
	TypeWelcome = "$ws:welcome"
	// from clients: refreshes the identity
	TypeAuth = "$ws:auth"
	// from the server: the identity has been refreshed
	TypeAuthenticated = "$ws:authenticated"
	// from the server: warns that the identity expires
	TypeIdentityExpiring = "$ws:identity-expiring"
	// from the server: asks the client to connect again, and to close this connection afterwards
	TypeGoAway = "$ws:goaway"
	// from the server: an item of a stream, or progress of a call. payload and data have the same
	// value
	TypeProgress = "$ws:rpc-progress"
	// from the server: ends a stream that has no reply of its own
	TypeStreamEnd = "$ws:stream-end"
	// from both: cancels a call; from the server, to clients that have greeted: it no longer waits
	// for the answer to its call
	TypeAbort = "$ws:abort"
	// from clients: grants a stream meta.credit more items
	TypeCredit = "$ws:credit"
	// from both: acknowledges a message with meta.ack; from clients, confirms the new token of a
	// session (section 12)
	TypeAck = "$ws:ack"
	// from clients: subscribes to a topic
	TypeSubscribe = "$ws:subscribe"
	// from the server: the client is subscribed; without correlationId, the server has subscribed it
	// (section 12)
	TypeSubscribed = "$ws:subscribed"
	// from clients: ends a subscription
	TypeUnsubscribe = "$ws:unsubscribe"
	// from the server: the subscription has ended; without correlationId, the server has ended it
	// (sections 10 and 12)
	TypeUnsubscribed = "$ws:unsubscribed"
	// from the server: the position on a topic moves without a publication
	TypePosition = "$ws:position"
	// from the server: the client has the whole state of a topic
	TypeState = "$ws:state"
	// from the server: members of a topic have joined or left
	TypePresence = "$ws:presence"
	// from clients: continues a session on this connection
	TypeResume = "$ws:resume"
	// from the server: the connection has the session
	TypeResumed = "$ws:resumed"
)
