// Package protocol has the messages of the protocol: their types, and the structs of their payloads. Servers and
// clients encode and decode the same structs. docs/protocol.json describes them, and docs/protocol.md specifies
// when they are sent. After a change of docs/protocol.json, run
//
//	go test ./internal -update
//
// Receivers accept a message without an optional member, and ignore members that they do not know.
package protocol

import "strings"

// TypeAnswer is the type that ingress sees for answers to calls of the server. It is never sent.
const TypeAnswer = "$ws:answer"

// AnswerPrefix begins the correlation IDs of calls that the server makes.
const AnswerPrefix = "$ws:"

// IsReserved reports whether a message type belongs to the protocol.
func IsReserved(typ string) bool {
	return strings.HasPrefix(typ, "$") || strings.HasPrefix(typ, "__") || typ == TypeError || typ == TypeRPCError
}

// A Message is a struct of this package that is sent as a message.
type Message interface {
	MessageType() string
	protocol()
}

// IsMessage reports whether m is a [Message]: no message of an application may have a reserved type.
func IsMessage(m any) bool {
	_, ok := m.(Message)
	return ok
}
