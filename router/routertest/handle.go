//go:build !js

package routertest

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/coder/websocket"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/jsonv2"
	"github.com/penstock-go/penstock/internal/protocol"
	"github.com/penstock-go/penstock/internal/wire"
	"github.com/penstock-go/penstock/router"
)

// Handle answers the server's calls ([router.Call]) of the type M, including those that have
// arrived already. Each call of handle runs on its own goroutine, which must return before the test
// ends. An error becomes RPC_ERROR with its code, message, details and delay. A second Handle for
// M replaces the first one.
//
// Calls that no function handles are messages like any other: [Conn.Next] returns them, and
// [Conn.Answer] and [Conn.AnswerError] answer them.
func Handle[M, Reply router.Message](c *Conn, handle func(M) (Reply, error)) {
	var zero M
	answer := func(frame Frame) {
		m, target := newMessage[M]()
		if c.unmarshal(frame, target) != nil {
			c.t.Errorf("routertest: %s cannot be decoded as %T", frame.Text, *m)
			return
		}
		typ, message := websocket.MessageText, []byte(nil)
		if reply, err := handle(*m); err != nil {
			message = []byte(errorEnvelope(err, frame.Meta.CorrelationID))
		} else {
			typ, message = c.encode(reply, outgoingMeta{CorrelationID: frame.Meta.CorrelationID})
		}
		_ = c.ws.Write(context.Background(), typ, message) // the connection may be closed
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.handlers == nil {
		c.handlers = map[string]func(Frame){}
	}
	c.handlers[zero.MessageType()] = answer
	waiting := c.received
	c.received = nil
	for _, frame := range waiting {
		if !c.handleLocked(frame) {
			c.received = append(c.received, frame)
		}
	}
}

// handleLocked starts the handler of a call of the server. It reports false if there is none.
func (c *Conn) handleLocked(frame Frame) bool {
	answer := c.handlers[frame.Type]
	if answer == nil || !strings.HasPrefix(frame.Meta.CorrelationID, protocol.AnswerPrefix) {
		return false
	}
	c.handling.Go(func() { answer(frame) })
	return true
}

// Answer answers a call of the server with a message. An error fails the test.
func (c *Conn) Answer(call Frame, reply router.Message) {
	c.t.Helper()
	c.send(reply, outgoingMeta{CorrelationID: call.Meta.CorrelationID})
}

// AnswerError answers a call of the server with RPC_ERROR, which has the code, the message, the
// details and the delay of err. An error fails the test.
func (c *Conn) AnswerError(call Frame, err error) {
	c.t.Helper()
	c.SendText(errorEnvelope(err, call.Meta.CorrelationID))
}

// errorEnvelope encodes an error as RPC_ERROR. Details that cannot be encoded are left out.
func errorEnvelope(err error, correlationID string) string {
	payload := protocol.ErrorPayload{Code: errors.CodeOf(err)}
	if e, ok := errors.AsType[*errors.Error](err); ok && e != nil {
		payload.Message, payload.Retryable = e.Message, e.Retryable()
		if details, bad := jsonv2.Marshal(e.Details); bad == nil && e.Details != nil {
			payload.Details = jsonv2.Value(details)
		}
		switch {
		case e.RetryAfter == errors.Never:
			payload.RetryAfterMs = jsonv2.Value("null")
		case e.RetryAfter > 0:
			ms := (e.RetryAfter + time.Millisecond - 1) / time.Millisecond
			payload.RetryAfterMs = jsonv2.Value(strconv.FormatInt(int64(ms), 10))
		}
	}
	text := append(wire.AppendHead(nil, &wire.OutgoingHead{Type: protocol.TypeRPCError, CorrelationID: correlationID, At: time.Now()}), `,"payload":`...)
	encoded, _ := jsonv2.Marshal(payload) // strings and encoded details can always be encoded
	return string(text) + string(encoded) + "}"
}
