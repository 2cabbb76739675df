package router

// A Message is a Go value with a name in the protocol. MessageType must return the same name
// for every value, including the zero value. Messages are registered and sent by value.
//
//	type Say struct {
//		Room string `json:"room"`
//		Text string `json:"text"`
//	}
//
//	func (Say) MessageType() string { return "SAY" }
//
// A message may also have a method Validate() error. It is called after decoding and before
// the middleware; the client receives the error with the code INVALID_ARGUMENT, unless it has
// a code.
//
// Payloads are JSON by the rules of encoding/json/v2. A plan that is made at registration decodes and encodes most
// types several times as fast as that library; docs/guides/faster-json.md says which.
type Message interface {
	MessageType() string
}
