// Package wire holds the wire format: the scanner and the encoder of message envelopes
// {"type", "meta", "payload"}, the payload of errors, and the names that the protocol
// reserves. The format is specified in docs/protocol.md.
//
// [ParseHead] reads the type and the correlation ID and stops as soon as both are known,
// so the cost of rejecting a message depends on its head and not on its length. [Parse]
// validates the whole envelope, as strictly as encoding/json and with additional rules,
// and finds the payload; [Head.Parse] validates only what ParseHead has not.
// [ParseBinaryHead] and [ParseBinary] do the same for binary envelopes. None of them
// allocates, unless a name contains escape sequences. The returned slices alias the input.
package wire
