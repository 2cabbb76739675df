// Package protocol has the messages of the protocol: their types, and the structs of their payloads. Server and
// clients encode and decode the same structs. docs/protocol.md specifies when they are sent.
//
// A field without omitzero or omitempty is always sent. Receivers accept a message without it, and ignore fields
// that they do not know.
package protocol
