package access

import (
	"encoding/binary"
	"math"

	"github.com/penstock-go/penstock/internal/session"
	"github.com/penstock-go/penstock/internal/topicname"
	"github.com/penstock-go/penstock/internal/wire"
)

// This file encodes what nodes tell each other about the connections of a user. Its packets have no version: a node
// ignores those that it does not know, which later versions may send.

// The first byte of a packet between nodes is its kind. 1 and 4 are messages, of which
// internal/envelope has the encoding; topics have 5, and internal/ask those from 32.
const (
	PacketMessage        = 2 // a message for a user: tenant, user, and a message
	PacketDisconnect     = 3 // tenant, user, status code as a varint, and the reason
	PacketRevocation     = 6 // tenant, user, the previous and the new sequence as varints, and the topic or pattern
	PacketSessionClaimed = 7 // of internal/session, which has the encoding of what follows
	PacketSessionMoved   = 8 // as above
	PacketStored         = 9 // a packet that is also in the access log: for nodes that do not follow it
)

// A Packet is about one user. Only the fields of its kind are set.
type Packet struct {
	Kind byte
	User session.User

	Message []byte // of a message: its encoding, which is part of the parsed bytes

	Code   int // of a disconnect, at most maxCode
	Reason string

	Change session.Change // of a revocation
	Topics topicname.Matcher
}

// maxCode is the largest status code of a close frame.
const maxCode = 4999

// NewMessage returns a packet with an encoded message.
func NewMessage(user session.User, message []byte) []byte {
	return append(about(PacketMessage, user), message...)
}

// NewDisconnect returns a packet that closes the connections of a user.
func NewDisconnect(user session.User, code int, reason string) []byte {
	return append(binary.AppendUvarint(about(PacketDisconnect, user), uint64(code)), reason...)
}

// NewRevocation returns a packet that ends the access to a topic, or to all that match a pattern.
func NewRevocation(user session.User, change session.Change, topic string) []byte {
	p := binary.AppendUvarint(about(PacketRevocation, user), change.Previous)
	return append(binary.AppendUvarint(p, change.Seq), topic...)
}

// about returns the beginning of a packet.
func about(kind byte, user session.User) []byte {
	return wire.AppendString(wire.AppendString([]byte{kind}, user.TenantID), user.UserID)
}

// ParsePacket reads a message, a disconnect or a revocation.
func ParsePacket(b []byte) (p Packet, ok bool) {
	if len(b) == 0 {
		return p, false
	}
	p.Kind = b[0]
	rest, ok := p.cutUser(b[1:])
	if !ok {
		return p, false
	}
	switch p.Kind {
	case PacketMessage:
		p.Message = rest
		return p, true
	case PacketDisconnect:
		code, rest, ok := cutNumber(rest, maxCode)
		p.Code, p.Reason = int(code), string(rest)
		return p, ok
	case PacketRevocation:
		ok := p.parseRevocation(rest)
		return p, ok
	}
	return p, false
}

func (p *Packet) cutUser(b []byte) (rest []byte, ok bool) {
	if p.User.TenantID, rest, ok = wire.CutString(b); ok {
		p.User.UserID, rest, ok = wire.CutString(rest)
	}
	return rest, ok && p.User.UserID != ""
}

func (p *Packet) parseRevocation(b []byte) (ok bool) {
	if p.Change.Previous, b, ok = cutNumber(b, math.MaxUint64); !ok {
		return false
	}
	if p.Change.Seq, b, ok = cutNumber(b, math.MaxUint64); !ok || topicname.Check(string(b)) != nil {
		return false
	}
	p.Topics = topicname.NewMatcher(string(b))
	return true
}

// cutNumber reads a varint of at most a limit.
func cutNumber(b []byte, limit uint64) (n uint64, rest []byte, ok bool) {
	n, size := binary.Uvarint(b)
	if size <= 0 || n > limit {
		return 0, nil, false
	}
	return n, b[size:], true
}
