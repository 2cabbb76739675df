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
// Two further methods let a type decode and encode its JSON without the JSON library, which works by
// reflection. They are meant for types on which the speed of a server depends, and usually written by
// the command jsoncode (docs/guides/faster-json.md). Replies, items of streams and updates of
// [Context.Progress] may have AppendJSON too.
//
//	func (m *Say) DecodeJSON(p []byte) error
//	func (m Say) AppendJSON(b []byte) ([]byte, error)
//
// DecodeJSON decodes p, one complete and valid JSON value in UTF-8, into the zero value. It must not
// change or retain p. If it returns nil, the value must be what the library decodes from p. For
// everything that it does not handle, such as unknown members, duplicate names, numbers out of range or
// null, it must return any error: the router then resets the value, and the library decodes p or returns
// the error that the client receives. So errors do not depend on DecodeJSON. It needs a pointer
// receiver.
//
// AppendJSON appends the JSON that the library would write, and returns the extended buffer, which it
// must not retain. If it returns an error, NaN for example, the library encodes the value.
//
// Both are called concurrently for different values; a panic becomes INTERNAL, as in other methods of
// messages. Methods with these names and another signature, and those of embedded fields, are not used.
// Payloads in other formats than JSON never use them.
type Message interface {
	MessageType() string
}
