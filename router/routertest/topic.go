//go:build !js

package routertest

import (
	"strconv"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/jsonv2"
	"github.com/penstock-go/penstock/internal/protocol"
	"github.com/penstock-go/penstock/router"
)

// Subscribe subscribes to a topic as a client does, with $ws:subscribe, and waits for the answer.
// It asks for presence, and returns the members, or nil if the topic has no
// TopicOptions.Presence. An error fails the test.
func Subscribe(c *Conn, topic string) []router.Member {
	c.t.Helper()
	frame := c.callProtocol(protocol.Subscribe{Topic: topic, Presence: true})
	return routerMembers(decodeProtocol[protocol.Subscribed](c, frame).Members)
}

// SubscribeError is Subscribe for a subscription that the server must reject, and returns the
// error. Success fails the test.
func SubscribeError(c *Conn, topic string) *errors.Error {
	c.t.Helper()
	return decodeError(c.t, c.callProtocol(protocol.Subscribe{Topic: topic, Presence: true}))
}

// SubscribeHidden is Subscribe for a client that is not present. It returns the members, or the error with which
// the server rejects the subscription.
func SubscribeHidden(c *Conn, topic string) ([]router.Member, *errors.Error) {
	c.t.Helper()
	frame := c.callProtocol(protocol.Subscribe{Topic: topic, Presence: true, Hidden: true})
	if frame.Type == protocol.TypeRPCError {
		return nil, decodeError(c.t, frame)
	}
	return routerMembers(decodeProtocol[protocol.Subscribed](c, frame).Members), nil
}

// Unsubscribe ends a subscription as a client does, with $ws:unsubscribe, and waits for the
// answer. An error fails the test.
func Unsubscribe(c *Conn, topic string) {
	c.t.Helper()
	decodeProtocol[protocol.Unsubscribed](c, c.callProtocol(protocol.Unsubscribe{Topic: topic}))
}

// A PresenceChange is the payload of $ws:presence: the members that have joined a topic and those
// that have left it.
type PresenceChange struct {
	Topic  string          `json:"topic"`
	Joined []router.Member `json:"joined"`
	Left   []router.Member `json:"left"`
}

// ReceivePresence waits for the next message, which must be $ws:presence, and returns its
// payload. Any other message fails the test.
func ReceivePresence(c *Conn) PresenceChange {
	c.t.Helper()
	m := decodeProtocol[protocol.PresenceChanged](c, c.Next())
	return PresenceChange{m.Topic, routerMembers(m.Joined), routerMembers(m.Left)}
}

// routerMembers returns members of the protocol as the router has them.
func routerMembers(members []protocol.Member) []router.Member {
	if members == nil {
		return nil
	}
	converted := make([]router.Member, len(members))
	for i, m := range members {
		converted[i] = router.Member(m)
	}
	return converted
}

// callProtocol sends a call that the protocol defines and waits for its answer.
func (c *Conn) callProtocol(m protocol.Message) Frame {
	c.t.Helper()
	c.mu.Lock()
	c.calls++
	id := "call-" + strconv.Itoa(c.calls)
	c.mu.Unlock()
	text, err := jsonv2.Marshal(map[string]any{
		"type":    m.MessageType(),
		"meta":    map[string]any{"timestamp": time.Now().UnixMilli(), "correlationId": id},
		"payload": m,
	}, jsonv2.AllowInvalidUTF8(true))
	if err != nil {
		c.t.Fatalf("routertest: encode %s: %v", m.MessageType(), err)
	}
	c.SendText(string(text))
	return c.take("the answer to "+m.MessageType(), func(f Frame) bool { return f.Meta.CorrelationID == id })
}

// decodeProtocol decodes the payload of a message that the protocol defines.
func decodeProtocol[M protocol.Message](c *Conn, frame Frame) (m M) {
	c.t.Helper()
	if typ := m.MessageType(); frame.Type != typ {
		c.t.Fatalf("routertest: received %s, want %s", frame.Text, typ)
	}
	if err := jsonv2.Unmarshal(frame.Payload, &m); err != nil {
		c.t.Fatalf("routertest: decode %s: %v", frame.Text, err)
	}
	return m
}
