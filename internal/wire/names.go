package wire

import "strings"

// Message types of the protocol.
const (
	TypeError        = "ERROR"
	TypeRPCError     = "RPC_ERROR"
	TypeProgress     = "$ws:rpc-progress"
	TypeHeartbeat    = "__heartbeat"
	TypeHeartbeatAck = "__heartbeat_ack"
)

// Reserved reports whether a message type belongs to the protocol.
func Reserved(typ string) bool {
	return strings.HasPrefix(typ, "$") || strings.HasPrefix(typ, "__") || typ == TypeError || typ == TypeRPCError
}
