package rawclient

import (
	"strconv"
	"time"
)

// CallOptions are what a message with an ID may ask for. The zero value asks for nothing.
type CallOptions struct {
	Ack     bool
	Stream  bool
	Credit  *int64        // the first credits of a stream; nil: no flow control
	Timeout time.Duration // at least a millisecond; 0: that of the server
}

// Call sends a call or a stream, and returns its ID, or "" without a connection.
func (c *Client) Call(kind string, payload any, o CallOptions) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.cur
	if k == nil {
		return ""
	}
	m, sent := map[string]any{}, &call{ack: o.Ack, stream: o.Stream, credits: -1}
	if o.Ack {
		m["ack"] = true
	}
	if o.Credit != nil {
		m["credit"], sent.credits = *o.Credit, *o.Credit
	}
	timeout := o.Timeout
	if o.Timeout > 0 {
		m["timeoutMs"] = o.Timeout.Milliseconds()
	}
	if limit := k.timeout(kind); limit > 0 && !o.Stream && (timeout == 0 || limit < timeout) {
		timeout = limit
	}
	if timeout > 0 {
		sent.deadline = time.Now().Add(timeout)
	}
	return k.send(kind, payload, m, sent)
}

// timeout returns how long the server has said that a call may take; 0: it has not, or there is no limit.
func (k *conn) timeout(kind string) time.Duration {
	ms, ok := k.welcome.CallTimeoutMsByType[kind]
	if !ok {
		ms = k.welcome.CallTimeoutMs
	}
	return time.Duration(ms) * time.Millisecond
}

// Event sends an event with an ID, and returns that, or "" without a connection.
func (c *Client) Event(kind string, payload any, ack bool) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cur == nil {
		return ""
	}
	m := map[string]any{}
	if ack {
		m["ack"] = true
	}
	return c.cur.send(kind, payload, m, &call{event: true, ack: ack, credits: -1})
}

// Abort aborts a call of the present connection.
func (c *Client) Abort(id string) {
	c.with(func(k *conn) { k.control("$ws:abort", map[string]any{"correlationId": id}) })
}

// Credit grants a stream more items.
func (c *Client) Credit(id string, items int64) {
	c.with(func(k *conn) {
		if o := k.open[id]; o != nil && o.credits >= 0 {
			o.credits += items
		}
		k.control("$ws:credit", map[string]any{"correlationId": id, "credit": items})
	})
}

// control sends a message without an answer. Only its refusal is answered, without an ID.
func (k *conn) control(kind string, m map[string]any) {
	k.anonymous++
	k.sendMeta(kind, nil, m)
}

// SubscribeOptions are what the client asks for with a subscription.
type SubscribeOptions struct{ Presence, Positions, State bool }

// Subscribe subscribes to a topic, now and on later connections, from the position that the client has.
// It returns the ID of the call, or "" without a connection.
func (c *Client) Subscribe(name string, o SubscribeOptions) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.topic(name)
	t.wanted = &o
	if c.cur == nil {
		return ""
	}
	return c.cur.subscribe(t)
}

// Unsubscribe ends a subscription, and returns the ID of the call, or "" without a connection.
func (c *Client) Unsubscribe(name string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.topic(name)
	t.wanted = nil
	if c.cur == nil {
		delete(c.topics, name)
		return ""
	}
	return c.cur.send("$ws:unsubscribe", map[string]string{"topic": name}, nil, &call{credits: -1, topic: t})
}

// Auth refreshes the identity, and returns the ID of the call, or "" without a connection.
func (c *Client) Auth(token string) string {
	return c.Call("$ws:auth", map[string]string{"token": token}, CallOptions{})
}

// Heartbeat sends a heartbeat.
func (c *Client) Heartbeat() {
	c.with(func(k *conn) {
		k.beats++
		k.control("__heartbeat", nil)
	})
}

// Greet greets again.
func (c *Client) Greet() { c.with(func(k *conn) { k.hello(c.cfg.Session) }) }

// Ping sends a ping, whose pong the client checks.
func (c *Client) Ping() { c.with((*conn).pingLocked) }

// Refused sends a text message that the server must answer with exactly one ERROR, because it cannot be
// read or has an unknown type, and no ID.
func (c *Client) Refused(message []byte) {
	c.with(func(k *conn) {
		k.garbage++
		k.writeLocked(k.appendMessage(nil, message))
	})
}

// Bytes writes bytes to the connection as they are. The server may close it.
func (c *Client) Bytes(b []byte) { c.with(func(k *conn) { k.writeLocked(b) }) }

// Pause stops reading for a time, from the next read of the network on.
func (c *Client) Pause(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pauseUntil = time.Now().Add(d)
}

// Drop cuts the connection after the client has read or written that many bytes more, whichever comes
// first. A negative number does not count. A cut after 0 bytes is at once.
func (c *Client) Drop(read, written int) {
	c.with(func(k *conn) {
		k.cutRead, k.cutWrite = read, written
		if read == 0 || written == 0 {
			_ = k.nc.Close()
		}
	})
}

// HalfClose ends the direction to the server, and reports whether the network can.
func (c *Client) HalfClose() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cur == nil {
		return false
	}
	half, ok := c.cur.nc.(interface{ CloseWrite() error })
	return ok && half.CloseWrite() == nil
}

// Quiet reports what has no answer although there is a connection and nothing disturbs it: calls
// beyond their deadline, and messages that had to be refused.
func (c *Client) Quiet() {
	c.with(func(k *conn) {
		for id, o := range k.open {
			if !o.deadline.IsZero() && time.Now().After(o.deadline) {
				k.fail("the call %s (%s) has no answer %v after its deadline", id, o.Type, time.Since(o.deadline))
			}
			if o.ack && !o.Acked && o.event {
				k.fail("the event %s (%s) has neither an acknowledgment nor an error", id, o.Type)
			}
		}
		if k.garbage > 0 {
			k.fail("%d messages that must be refused have no answer", k.garbage)
		}
		if k.beats > 0 {
			k.fail("%s heartbeats have no acknowledgment", strconv.Itoa(k.beats))
		}
	})
}

// with calls do with the present connection, if there is one.
func (c *Client) with(do func(*conn)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cur != nil {
		do(c.cur)
	}
}
