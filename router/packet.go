package router

import (
	"encoding/binary"
	"time"

	"github.com/penstock-go/penstock/internal/wire"
	"github.com/penstock-go/penstock/internal/wsconn"
)

// The first byte of a packet between nodes is its kind. A node ignores unknown kinds, which
// later versions may send.
const (
	packetMessage        = 1 + iota // a published message
	packetUserMessage               // a message for a user: tenant, user, and a packetMessage
	packetUserDisconnect            // tenant, user, status code as a varint, and the reason
	packetFormats                   // a published message in several formats
	packetExcept                    // a connection ID, and a packetMessage or packetFormats that this connection does not receive
	packetUserRevoke                // tenant, user, the previous and the new sequence as varints, and the topic or pattern
	packetSessionClaimed            // the ID of a session, and as a varint the generation of the connection that has it
	packetSessionMoved              // the same, and the topics in which the session does not go on
	packetStored                    // a packet that is also in the access log: for nodes that do not follow it
)

// messagePacket encodes a published message: its time in microseconds since 1970 and the
// length of its conflation key as varints, and the key. In a packetMessage, the rest is the message
// as JSON. In a packetFormats, it is followed for each format by the length of its subprotocol, the
// subprotocol, the length of the message, and the message; JSON has the subprotocol "".
func (r *Router) messagePacket(p *publication) []byte {
	if len(r.opts.Codecs) == 0 {
		text := p.json.Text()
		return append(beginMessagePacket(packetMessage, p.json, len(text)), text...)
	}
	var packet []byte
	for f := range format(len(r.opts.Codecs) + 1) {
		frame := p.frame(f)
		if frame == nil {
			continue
		}
		if packet == nil {
			packet = beginMessagePacket(packetFormats, frame, 1024)
		}
		packet = wire.AppendString(packet, r.subprotocolOf(f))
		packet = wire.AppendString(packet, frame.Text())
	}
	return packet
}

// beginMessagePacket returns a packet up to the key, with room for size more bytes.
func beginMessagePacket(kind byte, frame *wsconn.Frame, size int) []byte {
	key := frame.Key()
	packet := make([]byte, 0, 1+binary.MaxVarintLen64+binary.MaxVarintLen32+len(key)+size)
	packet = append(packet, kind)
	packet = binary.AppendUvarint(packet, uint64(frame.At.UnixMicro()))
	return wire.AppendString(packet, key)
}

// subprotocolOf returns the name of a format in packets.
func (r *Router) subprotocolOf(f format) string {
	if f == formatJSON {
		return ""
	}
	return r.opts.Codecs[f-1].Subprotocol()
}

// parseMessagePacket returns a published message in those of the formats that the packet contains,
// and when it was published. It reports false if the packet is malformed, or of an unknown kind.
func (r *Router) parseMessagePacket(packet []byte, formats formatSet, now time.Time) (p publication, published time.Time, ok bool) {
	if len(packet) == 0 || packet[0] != packetMessage && packet[0] != packetFormats {
		return publication{}, time.Time{}, false
	}
	micros, size := binary.Uvarint(packet[1:])
	if size <= 0 {
		return publication{}, time.Time{}, false
	}
	key, rest, ok := wire.CutString(packet[1+size:])
	if !ok {
		return publication{}, time.Time{}, false
	}
	published = time.UnixMicro(int64(micros))
	if packet[0] == packetMessage {
		if formats.has(formatJSON) {
			p.json = receivedFrame(formatJSON, rest, key, now)
		}
		return p, published, true
	}
	for len(rest) > 0 {
		var name, message []byte
		if name, rest, ok = wire.CutBytes(rest); ok {
			message, rest, ok = wire.CutBytes(rest)
		}
		if !ok {
			p.free()
			return publication{}, time.Time{}, false
		}
		if f, known := r.formatOf(name); known && formats.has(f) && p.frame(f) == nil {
			p.set(f, receivedFrame(f, message, key, now), len(r.opts.Codecs))
		}
	}
	return p, published, true
}

// formatOf returns the format with a name in packets.
func (r *Router) formatOf(name []byte) (format, bool) {
	for f := range format(len(r.opts.Codecs) + 1) {
		if r.subprotocolOf(f) == string(name) {
			return f, true
		}
	}
	return 0, false
}

// receivedFrame returns a frame with a message that another node has encoded.
func receivedFrame(f format, message []byte, key string, now time.Time) *wsconn.Frame {
	frame := wsconn.NewFrame()
	frame.At = now
	_, _ = frame.Write(message)
	if f == formatJSON {
		frame.Seal()
	} else {
		frame.SealBinary()
	}
	frame.Droppable(key)
	return frame
}

// A byteWriter is an io.Writer that appends to a slice.
type byteWriter []byte

func (p *byteWriter) Write(b []byte) (int, error) {
	*p = append(*p, b...)
	return len(b), nil
}
