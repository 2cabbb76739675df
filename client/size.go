//go:build !js

package client

import (
	"strings"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/protocol"
)

// sizeLimits are the largest messages that the server of a connection has announced, envelope included. The zero
// value permits all sizes.
type sizeLimits struct {
	bytes  int64
	byType map[string]int64 // of types that differ
}

func (l *sizeLimits) of(typ string) int64 {
	if limit, ok := l.byType[typ]; ok {
		return limit
	}
	return l.bytes
}

// check returns the error with which the server would answer a message, unless it would end the connection.
func (l *sizeLimits) check(typ string, frame []byte) error {
	limit := l.of(typ)
	if limit <= 0 || int64(len(frame)) <= limit {
		return nil
	}
	return &errors.Error{
		Code: errors.ResourceExhausted, Message: "message is too big", RetryAfter: errors.Never,
		Details: errors.LimitDetails{Kind: "payload", Observed: int64(len(frame)), Limit: limit},
	}
}

// refuse ends a message that is not sent, because it is too big.
func (c *Client) refuse(cn *conn, m *outgoing, err error) {
	c.mu.Lock()
	cl := c.calls[m.id]
	if cl != nil {
		delete(c.calls, m.id)
		cl.conn = nil
		cn.settledLocked(m.id)
	}
	isAnswer := strings.HasPrefix(m.id, protocol.AnswerPrefix)
	if isAnswer && m.typ != protocol.TypeRPCError {
		cn.sendControlLocked(protocol.TypeRPCError, m.id, -1, errorPayload(err))
	}
	c.mu.Unlock()
	switch {
	case cl != nil:
		cl.finish(answer{err: err})
	case m.result != nil:
		c.fail(m, err)
	}
}

// fitting returns the first topics that fit into a message of the type $ws:resume beside the token. The client
// subscribes to the others afterwards.
func (l *sizeLimits) fitting(topics []protocol.Subscribe) []protocol.Subscribe {
	const others = 512 // bytes
	limit := l.of(protocol.TypeResume)
	if limit <= 0 {
		return topics
	}
	room := limit - others
	for i := range topics {
		if room -= int64(len(encodeProtocol(topics[i])) + len(",")); room < 0 {
			return topics[:i]
		}
	}
	return topics
}
