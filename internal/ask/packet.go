package ask

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/tracing"
)

// This file encodes what nodes ask each other, and what they answer.

// The kinds of packets. The router has others, with lower values.
const (
	UserAsk   = 32 + iota // on the topic of users: tenant, user, and an ask
	connAsk               // to one node: the ID of a connection, and an ask
	askEnd                // to a node that was asked: the number of the ask, whose answer is not needed any more
	askAnswer             // to the node that has asked: see answer

	questionAsk    // to one node: the number of the question, and the question
	questionAnswer // to the node that has asked: the number, an outcome, and the answer

	ownedAsk    // like questionAsk, for what the node owns
	ownedAnswer // like questionAnswer
)

// A Message is a call to clients, in some formats.
type Message struct {
	Type     string
	Payloads []Payload
	Trace    tracing.TraceContext // for clients that ask for it
}

// A Payload is that of a message in one format.
type Payload struct {
	Subprotocol string // of the codec; "" for JSON
	Bytes       []byte // empty if there is none
}

// appendAsk appends an ask: its number, the milliseconds until its deadline, and, if the
// connections are to be called, the type of the message, and for each format its subprotocol and
// the payload. The members of a trace context have names that no subprotocol has, so nodes that do not
// know them ignore them.
func appendAsk(packet []byte, number uint64, timeout time.Duration, m *Message) []byte {
	packet = binary.AppendUvarint(packet, number)
	packet = binary.AppendUvarint(packet, uint64(max(0, (timeout+time.Millisecond-1)/time.Millisecond)))
	if m == nil {
		return packet
	}
	packet = appendString(packet, m.Type)
	for _, p := range m.Payloads {
		packet = appendString(appendString(packet, p.Subprotocol), p.Bytes)
	}
	if m.Trace.Parent != "" {
		packet = appendString(appendString(packet, traceParent), m.Trace.Parent)
		packet = appendString(appendString(packet, traceState), m.Trace.State)
	}
	return packet
}

// The names of the members of a trace context.
const (
	traceParent = "\x00traceparent"
	traceState  = "\x00tracestate"
)

// appendString appends the length of s and s.
func appendString[S string | []byte](b []byte, s S) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// A receivedAsk is what another node has asked.
type receivedAsk struct {
	from    string // the node
	number  uint64
	timeout time.Duration
	message *Message // nil if the connections are to be listed, and not called
}

// readAsk copies what it needs from the packet.
func (in *packetReader) readAsk(from string) (a receivedAsk) {
	a.from = from
	a.number = in.uvarint()
	a.timeout = time.Duration(min(in.uvarint(), uint64(maxTimeout/time.Millisecond))) * time.Millisecond
	if len(in.rest) == 0 {
		return a
	}
	a.message = &Message{Type: in.text()}
	for len(in.rest) > 0 && !in.malformed {
		switch name, value := in.text(), in.bytes(); name {
		case traceParent:
			a.message.Trace.Parent = string(value)
		case traceState:
			a.message.Trace.State = string(value)
		default:
			a.message.Payloads = append(a.message.Payloads, Payload{name, bytes.Clone(value)})
		}
	}
	return a
}

// maxTimeout keeps what other nodes ask for within the range of a Duration.
const maxTimeout = 365 * 24 * time.Hour

// An answer is that to an ask, or a part of it. The first one begins with the connections, each
// with its ID and, if nothing is called, with its address, subprotocol and time; the outcomes of
// calls follow in any of them, each with the place of its connection, from 1. The place 0 is that
// of an outcome for the whole node.
type answer struct{ bytes []byte }

// beginAnswer returns an answer without outcomes.
func beginAnswer(number uint64) answer {
	return answer{append(binary.AppendUvarint([]byte{askAnswer}, number), 0)}
}

// beginListing returns a first answer. total is the number of connections that there are.
func beginListing(number uint64, conns []Conn, total int, details bool) answer {
	packet := append(binary.AppendUvarint([]byte{askAnswer}, number), 1)
	packet = binary.AppendUvarint(packet, uint64(total))
	packet = binary.AppendUvarint(packet, uint64(len(conns)))
	for _, c := range conns {
		packet = appendString(packet, c.ConnID)
		if details {
			packet = appendString(packet, c.IP.AsSlice())
			packet = appendString(packet, c.Subprotocol)
			packet = binary.AppendVarint(packet, c.OpenedAt.UnixMicro())
		}
	}
	return answer{packet}
}

// The kinds of outcomes.
const (
	outcomeReply = iota // the subprotocol and the message of the client
	outcomeError        // code, message and private part
	outcomeLimit        // kind, observed, limit and delay of a LimitExceeded
)

// add adds the outcome of a call.
func (p *answer) add(place int, o *Outcome) {
	p.bytes = binary.AppendUvarint(p.bytes, uint64(place))
	if o.Err == nil {
		p.bytes = append(p.bytes, outcomeReply)
		p.bytes = appendString(appendString(p.bytes, o.Subprotocol), o.Message)
		return
	}
	if l, ok := errors.AsType[*Limit](o.Err); ok {
		p.bytes = appendString(append(p.bytes, outcomeLimit), l.Kind)
		for _, n := range []int64{l.Observed, l.Limit, int64(l.RetryAfter)} {
			p.bytes = binary.AppendVarint(p.bytes, n)
		}
		return
	}
	e, ok := errors.AsType[*errors.Error](o.Err)
	if !ok {
		e = &errors.Error{Code: errors.Internal, Err: o.Err}
	}
	private := ""
	if e.Err != nil {
		private = e.Err.Error()
	}
	p.bytes = append(p.bytes, outcomeError)
	for _, text := range []string{string(e.Code), e.Message, private} {
		p.bytes = appendString(p.bytes, text)
	}
}

// readConn reads a connection of a listing.
func (in *packetReader) readConn(node string, details bool) (c Conn) {
	c.ConnID, c.NodeID = in.text(), node
	if details {
		c.IP, _ = netip.AddrFromSlice(in.bytes()) // the zero Addr if it is unknown
		c.Subprotocol = in.text()
		c.OpenedAt = time.UnixMicro(in.varint())
	}
	return c
}

// readOutcome reads an outcome. Its message shares memory with the packet.
func (in *packetReader) readOutcome() (place uint64, o Outcome) {
	place = in.uvarint()
	switch in.byte() {
	case outcomeReply:
		o.Subprotocol, o.Message = in.text(), in.bytes()
	case outcomeError:
		e := &errors.Error{Code: errors.Code(in.text()), Message: in.text()}
		if private := in.text(); private != "" {
			e.Err = errors.New(private)
		}
		o.Err = e
	case outcomeLimit:
		o.Err = &Limit{Kind: in.text(), Observed: in.varint(), Limit: in.varint(), RetryAfter: time.Duration(in.varint())}
	default:
		in.malformed = true
	}
	return place, o
}

// A packetReader reads a packet. After a mistake in it, malformed is set, and what it returns has
// no meaning.
type packetReader struct {
	rest      []byte
	malformed bool
}

func (in *packetReader) byte() (b byte) {
	if len(in.rest) == 0 {
		in.malformed = true
		return 0
	}
	b, in.rest = in.rest[0], in.rest[1:]
	return b
}

func (in *packetReader) uvarint() uint64 {
	n, size := binary.Uvarint(in.rest)
	in.skip(size)
	return n
}

func (in *packetReader) varint() int64 {
	n, size := binary.Varint(in.rest)
	in.skip(size)
	return n
}

// skip skips a number of the given size, which is not positive if the number is malformed.
func (in *packetReader) skip(size int) {
	if size <= 0 {
		in.rest, in.malformed = nil, true
		return
	}
	in.rest = in.rest[size:]
}

// bytes reads bytes that follow their length.
func (in *packetReader) bytes() (p []byte) {
	n := in.uvarint()
	if n > uint64(len(in.rest)) {
		in.rest, in.malformed = nil, true
		return nil
	}
	p, in.rest = in.rest[:n], in.rest[n:]
	return p
}

func (in *packetReader) text() string { return string(in.bytes()) }
