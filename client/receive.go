//go:build !js

package client

import (
	"log/slog"
	"strings"
	"time"

	"github.com/penstock-go/penstock/internal/protocol"
)

// receive handles a message on the reading goroutine. Handlers of the application run on another
// one, in the order of the messages.
func (c *Client) receive(cn *conn, e *envelope, bytes int) {
	id := e.Meta.CorrelationID
	isError := e.Type == protocol.TypeRPCError || e.Type == protocol.TypeError
	switch {
	case strings.HasPrefix(id, protocol.AnswerPrefix):
		c.receiveServerCall(cn, e)
	case e.Type == protocol.TypeAck:
		c.confirmed(cn, id)
	case id != "" && isError && c.rejected(cn, id, e.error(), e.Meta.Timestamp):
	case id != "":
		c.confirmed(cn, id)
		if !c.answerCall(e) && isError {
			c.report(c.typeOf(id), e.error())
		}
	case isError:
		c.report("", e.error())
	case e.Type == protocol.TypeGoAway:
		c.receiveGoAway(cn, e)
	case e.Type == protocol.TypeIdentityExpiring:
		go c.refreshIdentity(cn, e)
	case strings.HasPrefix(e.Type, "$ws:"):
		c.receiveTopicMessage(cn, e)
	case strings.HasPrefix(e.Type, "__"):
	default:
		c.receiveMessage(cn, e, bytes)
	}
}

// confirmed notes that the server has admitted a message.
func (c *Client) confirmed(cn *conn, id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pacer.confirmed(id, time.Now())
	cn.noteOutcome()
	if c.conn != nil && c.conn != cn {
		c.conn.wakeWriter()
	}
}

// receiveGoAway asks for another connection after the delay of the server.
func (c *Client) receiveGoAway(cn *conn, e *envelope) {
	var m protocol.GoAway
	if err := e.decode(&m); err != nil {
		m.ReconnectAfterMs = 0
	}
	select {
	case cn.goaway <- demanded(m.ReconnectAfterMs, time.Millisecond):
	default:
	}
}

// dispatch queues a call of a function of the application, which handles a message of this length. If
// too much waits, the connection is closed; positions then say what was missed.
func (c *Client) dispatch(cn *conn, bytes int, f func()) {
	c.mu.Lock()
	c.queuedBytes += int64(bytes)
	over := c.queuedBytes > c.opts.MaxQueuedBytes
	c.mu.Unlock()
	c.events.Add(func() {
		defer func() {
			c.mu.Lock()
			c.queuedBytes -= int64(bytes)
			c.mu.Unlock()
			notify(c.handled)
		}()
		f()
	})
	if over {
		c.log(slog.LevelWarn, "handlers are too slow; the client connects again")
		_ = cn.ws.CloseNow()
	}
}

// guard calls a function of the application, and logs its panic.
func (c *Client) guard(name string, f func()) {
	defer func() {
		if v := recover(); v != nil {
			c.log(slog.LevelError, "a function of the application has panicked", slog.String("function", name), slog.Any("panic", v))
		}
	}()
	f()
}

func (c *Client) logError(typ string, err error) {
	c.log(slog.LevelWarn, "a message has failed", slog.String("type", typ), slog.Any("error", err))
}
