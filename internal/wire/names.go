package wire

import "strings"

// Message types of the protocol.
const (
	TypeError        = "ERROR"
	TypeRPCError     = "RPC_ERROR"
	TypeProgress     = "$ws:rpc-progress"
	TypeHeartbeat    = "__heartbeat"
	TypeHeartbeatAck = "__heartbeat_ack"

	TypeAbort     = "$ws:abort"      // from clients: cancels a call
	TypeCredit    = "$ws:credit"     // from clients: grants a stream items
	TypeAck       = "$ws:ack"        // acknowledges a message with meta.ack; from clients: acknowledges TypeResumed
	TypeAnswer    = "$ws:answer"     // what ingress sees for answers to calls of the server; never sent
	TypeStreamEnd = "$ws:stream-end" // ends a stream without a reply of its own
	TypeGoAway    = "$ws:goaway"     // from the server: reconnect soon
	TypeHello     = "$ws:hello"      // from clients: the greeting
	TypeWelcome   = "$ws:welcome"    // answers TypeHello
	TypeResume    = "$ws:resume"     // from clients: continues a session
	TypeResumed   = "$ws:resumed"    // answers TypeResume
)

// AnswerPrefix begins the correlation IDs of calls that the server makes.
const AnswerPrefix = "$ws:"

// Reserved reports whether a message type belongs to the protocol.
func Reserved(typ string) bool {
	return strings.HasPrefix(typ, "$") || strings.HasPrefix(typ, "__") || typ == TypeError || typ == TypeRPCError
}
