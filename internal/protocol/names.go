package protocol

import "strings"

// Message types of the protocol.
const (
	TypeError        = "ERROR"
	TypeRPCError     = "RPC_ERROR"
	TypeHeartbeat    = "__heartbeat"
	TypeHeartbeatAck = "__heartbeat_ack"

	TypeHello            = "$ws:hello"             // from clients: the greeting
	TypeWelcome          = "$ws:welcome"           // answers TypeHello
	TypeAuth             = "$ws:auth"              // from clients: another identity for the connection
	TypeAuthenticated    = "$ws:authenticated"     // answers TypeAuth
	TypeIdentityExpiring = "$ws:identity-expiring" // from the server: the identity expires soon
	TypeGoAway           = "$ws:goaway"            // from the server: reconnect soon

	TypeProgress  = "$ws:rpc-progress" // part of the answer to a call
	TypeStreamEnd = "$ws:stream-end"   // ends a stream without a reply of its own
	TypeAbort     = "$ws:abort"        // from clients: cancels a call
	TypeCredit    = "$ws:credit"       // from clients: grants a stream items
	TypeAck       = "$ws:ack"          // acknowledges a message with meta.ack; from clients: acknowledges TypeResumed
	TypeAnswer    = "$ws:answer"       // what ingress sees for answers to calls of the server; never sent

	TypeSubscribe    = "$ws:subscribe"    // from clients
	TypeSubscribed   = "$ws:subscribed"   // answers TypeSubscribe; from the server: a handler has subscribed the client
	TypeUnsubscribe  = "$ws:unsubscribe"  // from clients
	TypeUnsubscribed = "$ws:unsubscribed" // answers TypeUnsubscribe; from the server: a subscription has ended
	TypePosition     = "$ws:position"     // from the server: the client continues at another position
	TypeState        = "$ws:state"        // from the server: the client has the whole state
	TypePresence     = "$ws:presence"     // from the server: members have joined or left
	TypeResume       = "$ws:resume"       // from clients: continues a session
	TypeResumed      = "$ws:resumed"      // answers TypeResume
)

// AnswerPrefix begins the correlation IDs of calls that the server makes.
const AnswerPrefix = "$ws:"

// IsReserved reports whether a message type belongs to the protocol.
func IsReserved(typ string) bool {
	return strings.HasPrefix(typ, "$") || strings.HasPrefix(typ, "__") || typ == TypeError || typ == TypeRPCError
}
