package router

import (
	"encoding/binary"
	"time"

	"github.com/penstock-go/penstock/internal/wsconn"
)

// The first byte of a packet says what it is. Nodes of a later version may send
// others, which are ignored.
const (
	packetMessage       = 1 + iota // a message, as subscribers get it
	packetJoin                     // a member
	packetLeave                    // a member
	packetPresenceQuery            // for all members
	packetPresenceState            // the sender's members, all of them
)

// messagePacket lays out a message: when it was made in microseconds since 1970, its queue
// key with the length before it, and its text.
func messagePacket(frame *wsconn.Frame) []byte {
	key, text := frame.Key(), frame.Text()
	p := make([]byte, 0, 1+binary.MaxVarintLen64+binary.MaxVarintLen32+len(key)+len(text))
	p = append(p, packetMessage)
	p = binary.AppendUvarint(p, uint64(frame.At.UnixMicro()))
	p = binary.AppendUvarint(p, uint64(len(key)))
	p = append(p, key...)
	return append(p, text...)
}

// parseMessagePacket returns the message as a frame, and when it was made; or nil if the packet
// is not one.
func parseMessagePacket(body []byte) (frame *wsconn.Frame, at time.Time) {
	micros, size := binary.Uvarint(body)
	if size <= 0 {
		return nil, time.Time{}
	}
	body = body[size:]
	n, size := binary.Uvarint(body)
	if size <= 0 || n > uint64(len(body)-size) {
		return nil, time.Time{}
	}
	key, text := body[size:size+int(n)], body[size+int(n):]
	frame = wsconn.NewFrame()
	_, _ = frame.Write(text)
	frame.Seal()
	frame.Droppable(string(key))
	return frame, time.UnixMicro(int64(micros))
}

// presencePacket lays out what is about members.
func presencePacket(kind byte, members ...Member) []byte {
	p := byteWriter{kind}
	_ = marshal(&p, members) // strings can be encoded
	return p
}

type byteWriter []byte

func (p *byteWriter) Write(b []byte) (int, error) {
	*p = append(*p, b...)
	return len(b), nil
}
