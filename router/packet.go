package router

import (
	"encoding/binary"
	"time"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/wsconn"
)

// The first byte of a packet between nodes is its kind. A node ignores unknown kinds, which
// later versions may send.
const (
	packetMessage        = 1 + iota // a published message
	packetUserMessage               // a message for a user: tenant, user, and a packetMessage
	packetUserDisconnect            // tenant, user, status code as a varint, and the reason
)

// messagePacket encodes a published message: its time in microseconds since 1970 and the
// length of its conflation key as varints, then the key and the text.
func messagePacket(frame *wsconn.Frame) []byte {
	key, text := frame.Key(), frame.Text()
	p := make([]byte, 0, 1+binary.MaxVarintLen64+binary.MaxVarintLen32+len(key)+len(text))
	p = append(p, packetMessage)
	p = binary.AppendUvarint(p, uint64(frame.At.UnixMicro()))
	p = binary.AppendUvarint(p, uint64(len(key)))
	p = append(p, key...)
	return append(p, text...)
}

// parseMessagePacket returns a published message as a frame, and its time. It returns nil if
// the packet is malformed.
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
	frame.At = time.Now()
	_, _ = frame.Write(text)
	frame.Seal()
	frame.Droppable(string(key))
	return frame, time.UnixMicro(int64(micros))
}

// memberData is what other nodes must know about a member besides its connection ID.
type memberData struct {
	TenantID string `json:"tenantId,omitempty"`
	UserID   string `json:"userId,omitempty"`
	Info     string `json:"info,omitempty"`
}

func encodeMember(m Member) string {
	var data byteWriter
	_ = marshal(&data, memberData{m.TenantID, m.UserID, m.Info}) // strings can always be encoded
	return string(data)
}

// parseMember returns false if the data is malformed.
func parseMember(m broker.Member) (Member, bool) {
	var data memberData
	err := unmarshal([]byte(m.Data), &data, false)
	return Member{m.ID, data.TenantID, data.UserID, data.Info}, err == nil
}

// A byteWriter is an io.Writer that appends to a slice.
type byteWriter []byte

func (p *byteWriter) Write(b []byte) (int, error) {
	*p = append(*p, b...)
	return len(b), nil
}
