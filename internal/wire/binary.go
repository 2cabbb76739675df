package wire

import (
	"encoding/binary"
	"time"
)

// A binary envelope consists of the length of the head as 2 bytes in network byte order, the head,
// and the payload. The head is a JSON object with the members of an envelope, except payload. The
// payload is in any format, and extends to the end of the message.

// headLengthBytes is the length of the length of the head.
const headLengthBytes = 2

// Errors of binary envelopes.
const (
	ErrHeadLength    Error = "the length of the head is more than follows in the message"
	ErrPayloadInHead Error = "the head of a binary message must not contain a payload"
)

// ParseBinaryHead is [ParseHead] for a binary envelope. It reads only the head, at most 65,535
// bytes, and always finds meta.
func ParseBinaryHead(data []byte) (Head, error) {
	text, _, err := SplitBinary(data)
	if err != nil {
		return Head{}, err
	}
	head, err := ParseHead(text)
	head.FindMeta(text)
	return head, err
}

// ParseBinaryHeadPrefix is [ParseHeadPrefix] for the first part of a binary envelope.
func ParseBinaryHeadPrefix(prefix []byte) (Head, error) {
	switch _, _, err := SplitBinary(prefix); {
	case err == nil: // the head is complete
		return ParseBinaryHead(prefix)
	case len(prefix) <= headLengthBytes:
		return Head{}, err
	}
	return ParseHeadPrefix(prefix[headLengthBytes:])
}

// ParseBinary is [Parse] for a binary envelope. The Payload is everything behind the head; it is nil
// if there is nothing.
func ParseBinary(data []byte) (Envelope, error) {
	head, payload, err := SplitBinary(data)
	if err != nil {
		return Envelope{}, err
	}
	envelope, err := Parse(head)
	if err != nil {
		return Envelope{}, err
	}
	if envelope.Payload != nil {
		return Envelope{}, ErrPayloadInHead
	}
	if len(payload) > 0 {
		envelope.Payload = payload
	}
	return envelope, nil
}

// SplitBinary returns the head and the payload of a binary envelope, which share its memory.
func SplitBinary(data []byte) (head, payload []byte, err error) {
	if len(data) == 0 {
		return nil, nil, ErrEmpty
	}
	if len(data) < headLengthBytes {
		return nil, nil, ErrHeadLength
	}
	n := int(binary.BigEndian.Uint16(data))
	rest := data[headLengthBytes:]
	if n > len(rest) {
		return nil, nil, ErrHeadLength
	}
	return rest[:n], rest[n:], nil
}

// AppendBinaryHead appends a binary envelope up to its payload, like [AppendHead]. The type and the
// correlation ID must not be longer than MaxNameBytes, so that the length of the head fits.
func AppendBinaryHead(b []byte, head *OutgoingHead) []byte {
	return appendWithLength(b, func(b []byte) []byte {
		return append(AppendHead(b, head), '}')
	})
}

// AppendBinaryHeartbeatAck is [AppendHeartbeatAck] for a binary envelope.
func AppendBinaryHeartbeatAck(b []byte, at time.Time) []byte {
	return appendWithLength(b, func(b []byte) []byte { return AppendHeartbeatAck(b, at) })
}

// appendWithLength appends a head and, before it, its length.
func appendWithLength(b []byte, head func(b []byte) []byte) []byte {
	start := len(b)
	b = head(append(b, 0, 0))
	binary.BigEndian.PutUint16(b[start:], uint16(len(b)-start-headLengthBytes))
	return b
}
