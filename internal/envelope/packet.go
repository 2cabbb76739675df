package envelope

import (
	"encoding/binary"
	"time"

	"github.com/penstock-go/penstock/internal/wire"
	"github.com/penstock-go/penstock/internal/wsconn"
	"github.com/penstock-go/penstock/tracing"
)

// The kinds of packets with a message: the first byte. Package router and internal/ask have others.
const (
	packetMessage = 1 // a message in JSON
	packetFormats = 4 // a message in several formats
)

// The names of what a packetFormats has besides messages. No subprotocol has such a name, so nodes
// that do not know them ignore them.
const (
	fieldTraceParent = "\x00traceparent"
	fieldTraceState  = "\x00tracestate"
)

// Packet encodes a publication that is not empty for other nodes: its time in microseconds since
// 1970 and the length of its conflation key as varints, and the key. In a packetMessage, the rest
// is the message as JSON. In a packetFormats, it is followed for each format by the length of its
// subprotocol, the subprotocol, the length of the message, and the message; JSON has the
// subprotocol "". The members of a trace context precede the formats in the same way. The zero one
// is not sent.
func (fs *Formats) Packet(p *Publication, trace tracing.TraceContext) []byte {
	if len(fs.codecs) == 0 && trace.Parent == "" {
		text := p.json.Text()
		return append(beginMessagePacket(packetMessage, p.json, len(text)), text...)
	}
	var packet []byte
	for f := range fs.End() {
		frame := p.Frame(f)
		if frame == nil {
			continue
		}
		if packet == nil {
			packet = beginMessagePacket(packetFormats, frame, len(frame.Text())+1024)
			packet = appendTrace(packet, trace)
		}
		packet = wire.AppendString(packet, fs.Subprotocol(f))
		packet = wire.AppendString(packet, frame.Text())
	}
	return packet
}

// appendTrace appends the members of a trace context to a packetFormats.
func appendTrace(packet []byte, trace tracing.TraceContext) []byte {
	for _, field := range [...][2]string{{fieldTraceParent, trace.Parent}, {fieldTraceState, trace.State}} {
		if field[1] != "" {
			packet = wire.AppendString(wire.AppendString(packet, field[0]), field[1])
		}
	}
	return packet
}

// PacketTrace returns the trace context of a packet with a message, or the zero one.
func PacketTrace(packet []byte) (trace tracing.TraceContext) {
	if len(packet) == 0 || packet[0] != packetFormats {
		return trace
	}
	_, size := binary.Uvarint(packet[1:])
	if size <= 0 {
		return trace
	}
	_, rest, ok := wire.CutBytes(packet[1+size:])
	for ok && len(rest) > 0 {
		var name, value []byte
		if name, rest, ok = wire.CutBytes(rest); !ok {
			return trace
		}
		if value, rest, ok = wire.CutBytes(rest); !ok {
			return trace
		}
		switch string(name) {
		case fieldTraceParent:
			trace.Parent = string(value)
		case fieldTraceState:
			trace.State = string(value)
		default:
			return trace
		}
	}
	return trace
}

// beginMessagePacket returns a packet up to the key, with room for size more bytes.
func beginMessagePacket(kind byte, frame *wsconn.Frame, size int) []byte {
	key := frame.Key()
	packet := make([]byte, 0, 1+binary.MaxVarintLen64+binary.MaxVarintLen32+len(key)+size)
	packet = append(packet, kind)
	packet = binary.AppendUvarint(packet, uint64(frame.At.UnixMicro()))
	return wire.AppendString(packet, key)
}

// ParsePacket returns a published message in those of the formats that the packet contains,
// and when it was published. It reports false if the packet is malformed, or of an unknown kind.
func (fs *Formats) ParsePacket(packet []byte, in FormatSet, now time.Time) (p Publication, published time.Time, ok bool) {
	if len(packet) == 0 || packet[0] != packetMessage && packet[0] != packetFormats {
		return Publication{}, time.Time{}, false
	}
	micros, size := binary.Uvarint(packet[1:])
	if size <= 0 {
		return Publication{}, time.Time{}, false
	}
	key, rest, ok := wire.CutString(packet[1+size:])
	if !ok {
		return Publication{}, time.Time{}, false
	}
	published, p.formats = time.UnixMicro(int64(micros)), len(fs.codecs)+1
	if packet[0] == packetMessage {
		if in.Has(JSON) {
			p.json = receivedFrame(JSON, rest, key, now)
		}
		return p, published, true
	}
	for len(rest) > 0 {
		var name, message []byte
		if name, rest, ok = wire.CutBytes(rest); ok {
			message, rest, ok = wire.CutBytes(rest)
		}
		if !ok {
			p.Free()
			return Publication{}, time.Time{}, false
		}
		if f, known := fs.BySubprotocol(name); known && in.Has(f) && p.Frame(f) == nil {
			p.set(f, receivedFrame(f, message, key, now))
		}
	}
	return p, published, true
}

// receivedFrame returns a frame with a message that another node has encoded.
func receivedFrame(f Format, message []byte, key string, now time.Time) *wsconn.Frame {
	frame := wsconn.NewFrame()
	frame.At = now
	_, _ = frame.Write(message)
	if f == JSON {
		frame.Seal()
	} else {
		frame.SealBinary()
	}
	frame.Droppable(key)
	return frame
}
