package wirecheck

import (
	"bytes"
	"encoding/json"
	"strings"
	"sync"

	"github.com/penstock-go/penstock/internal/jsonv2"
	"github.com/penstock-go/penstock/internal/protocol"
	"github.com/penstock-go/penstock/internal/wire"
	"github.com/penstock-go/penstock/internal/wsframe"
)

// An Observer receives what a [Conn] finds. Its functions must not call the Conn.
type Observer struct {
	// Violation receives a rule of the protocol that the server has broken, with the call or the topic.
	Violation func(text string)

	// Loss receives what the client was notified of about publications that it does not receive.
	Loss func(topic, text string)
}

// A Conn observes one connection after its handshake. It is safe for concurrent use.
type Conn struct {
	observer Observer

	mu       sync.Mutex
	sent     stream
	received stream
	ended    bool

	calls    map[string]*call  // without an answer, by ID
	answered map[string]answer // by ID

	topics   map[string]*topic // with positions
	requests map[string][]protocol.Subscribe
	resuming string // the ID of $ws:resume, until it is answered
	session  bool   // the client has a session, and is notified of what handlers subscribe
	acts     int    // counts messages of the application to the server
}

// New returns a Conn that has observed nothing yet.
func New(o Observer) *Conn {
	return &Conn{
		observer: o, calls: map[string]*call{}, answered: map[string]answer{},
		topics: map[string]*topic{}, requests: map[string][]protocol.Subscribe{},
	}
}

// Sent observes bytes from the client to the server. It must be called before the server can receive them.
func (c *Conn) Sent(b []byte) { c.observe(&c.sent, b, c.request) }

// Received observes bytes that the client has read.
func (c *Conn) Received(b []byte) { c.observe(&c.received, b, c.message) }

// End ends the observation: calls that are open have their outcome, the loss of the connection.
func (c *Conn) End() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	clear(c.calls)
}

func (c *Conn) observe(s *stream, b []byte, handle func(envelope)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return
	}
	s.pending = append(s.pending, b...)
	for {
		e, ok := s.next()
		if !ok {
			return
		}
		handle(e)
	}
}

// A stream is one direction of a connection.
type stream struct {
	pending []byte // not parsed yet
	closed  bool   // nothing more can be parsed
}

// maxMessage bounds messages, so that bytes which are no frames do not look like a long one.
const maxMessage = 64 << 20

// next returns the next message that has arrived completely.
func (s *stream) next() (e envelope, ok bool) {
	if s.closed {
		s.pending = nil
		return envelope{}, false
	}
	src := bytes.NewReader(s.pending)
	message, op, err := wsframe.NewReader(src, maxMessage, func([]byte) error { return nil }).Append(nil)
	if err != nil {
		s.closed = !isIncomplete(err)
		return envelope{}, false
	}
	s.pending = s.pending[len(s.pending)-src.Len():]
	return parse(message, op)
}

// An envelope is the part of a message that the checks need.
type envelope struct {
	Type string `json:"type"`
	Meta struct {
		CorrelationID string  `json:"correlationId"`
		TimeoutMs     int64   `json:"timeoutMs"`
		Topic         *string `json:"topic"`
		Offset        uint64  `json:"offset"`
	} `json:"meta"`
	Payload json.RawMessage `json:"payload"`
}

// parse returns an empty envelope for what is none: the server refuses it, or the client does.
func parse(message []byte, op wsframe.Opcode) (e envelope, ok bool) {
	var payload []byte
	if op == wsframe.Binary {
		head, rest, err := wire.SplitBinary(message)
		if err != nil {
			return envelope{}, true
		}
		message, payload = head, rest
	}
	if jsonv2.Unmarshal(message, &e) != nil {
		return envelope{}, true
	}
	if op == wsframe.Binary {
		e.Payload = payload
	}
	return e, true
}

func isReserved(typ string) bool {
	return strings.HasPrefix(typ, "$") || strings.HasPrefix(typ, "__") || typ == protocol.TypeError || typ == protocol.TypeRPCError
}

// isOfServer reports whether an ID is that of a call of the server.
func isOfServer(id string) bool { return strings.HasPrefix(id, "$ws:") }

// request handles a message of the client.
func (c *Conn) request(e envelope) {
	if !isReserved(e.Type) {
		c.acts++
	}
	id := e.Meta.CorrelationID
	switch e.Type {
	case "", protocol.TypeAbort, protocol.TypeAck, protocol.TypeCredit:
		return
	case protocol.TypeSubscribe:
		c.requests[id] = []protocol.Subscribe{decode[protocol.Subscribe](e)}
	case protocol.TypeResume:
		c.requests[id] = decode[protocol.Resume](e).Topics
		c.resuming = id
	}
	if id != "" && !isOfServer(id) {
		c.called(e)
	}
}

// message handles a message of the server.
func (c *Conn) message(e envelope) {
	id := e.Meta.CorrelationID
	switch {
	case e.Type == "" || isOfServer(id):
		return
	case e.Type == protocol.TypeAck:
		c.acked(id)
	case e.Type == protocol.TypeProgress:
		c.progressed(id)
	case id != "":
		c.replied(e)
		c.settled(e)
	case isReserved(e.Type):
		c.notified(e)
	default:
		c.published(e)
	}
}

// settled takes the answer to a message of the protocol into account.
func (c *Conn) settled(e envelope) {
	id := e.Meta.CorrelationID
	asked := c.requests[id]
	delete(c.requests, id)
	if id == c.resuming {
		c.resuming = ""
	}
	switch e.Type {
	case protocol.TypeWelcome:
		c.session = c.session || decode[protocol.Welcome](e).Session != nil
	case protocol.TypeSubscribed:
		if len(asked) > 0 {
			c.subscribed(decode[protocol.Subscribed](e), &asked[0])
		}
	case protocol.TypeUnsubscribed:
		delete(c.topics, decode[protocol.Unsubscribed](e).Topic)
	case protocol.TypeResumed:
		c.resumed(decode[protocol.Resumed](e), asked)
	}
}

// notified handles a message of the protocol that answers none.
func (c *Conn) notified(e envelope) {
	if c.resuming != "" {
		return // the answer to $ws:resume says what holds
	}
	switch e.Type {
	case protocol.TypeSubscribed:
		c.subscribed(decode[protocol.Subscribed](e), nil)
	case protocol.TypeUnsubscribed:
		delete(c.topics, decode[protocol.Unsubscribed](e).Topic)
	case protocol.TypeState:
		if t := c.topics[decode[protocol.StateComplete](e).Topic]; t != nil {
			t.phase = nil
		}
	case protocol.TypePosition:
		c.moved(decode[protocol.Moved](e))
	}
}

// decode returns the payload of a message of the protocol, which is always JSON; the zero value if it is malformed.
func decode[M any](e envelope) (m M) {
	if err := jsonv2.Unmarshal(e.Payload, &m); err != nil {
		return *new(M)
	}
	return m
}
