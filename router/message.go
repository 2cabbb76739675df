package router

// A Message is a Go value with a name on the wire. MessageType is a method of
// the type itself: it must not look at the receiver, which may be the zero
// value.
//
//	type Say struct {
//		Room string `json:"room"`
//		Text string `json:"text"`
//	}
//
//	func (Say) MessageType() string { return "SAY" }
//
// A message may also have a method Validate() error. It is called after
// decoding and before the handler; what it returns is told to the client.
type Message interface {
	MessageType() string
}
