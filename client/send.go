//go:build !js

package client

import (
	"time"
)

// forever is how long a writer waits that is woken by an event.
const forever = time.Hour

// next returns the next message to be written on a connection, encoded, or how long the writer must wait
// if it is not woken earlier.
func (c *Client) next(cn *conn) (frame []byte, m *outgoing, wait time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := time.Now()
	if len(cn.control) > 0 {
		m := cn.control[0]
		cn.control = cn.control[1:]
		c.pacer.sentControl(&m, at)
		h := head{typ: m.typ, id: m.id, credit: m.credit}
		return h.encode(m.payload), nil, 0
	}
	if !cn.sending || len(c.queue.messages) == 0 {
		return nil, nil, forever
	}
	m = c.queue.messages[0]
	if wait := c.pacer.wait(m, at); wait > 0 {
		return nil, nil, wait
	}
	c.queue.remove(m)
	m.id = c.ids.next()
	h := head{typ: m.typ, id: m.id, credit: m.credit, ack: c.pacer.enabled}
	if cl := m.call; cl != nil {
		cl.id, cl.conn = m.id, cn
		c.calls[m.id] = cl
		if !m.deadline.IsZero() {
			h.timeoutMs = max(1, time.Until(m.deadline).Milliseconds())
		}
	}
	if m.call == nil {
		c.recent.add(m.id, m.typ)
	}
	c.pacer.sent(m, at)
	return h.encode(m.payload), m, 0
}

// written is called when a message has been handed over to its connection, or could not be.
func (c *Client) written(m *outgoing, err error) {
	if m == nil || m.call != nil {
		return // calls end with the connection
	}
	if err != nil {
		err = outcomeUnknown(err)
	}
	m.settle(err)
}

// fail ends a message that was removed from the queue. An event that was rejected has no caller: it waited to
// be sent again.
func (c *Client) fail(m *outgoing, err error) {
	m.settle(err)
	if m.call == nil && m.id != "" {
		c.report(m.typ, err)
	}
}

// rejected handles the error of a message that has an ID and is no call, or of a call that the pacer
// sends again. It reports false if the caller must handle the error.
func (c *Client) rejected(id string, err error, sentAt int64) (handled bool) {
	c.mu.Lock()
	m, again := c.pacer.rejected(id, err, sentAt, time.Now())
	if again {
		if m.call != nil {
			delete(c.calls, id)
			m.call.conn = nil
		}
		c.queue.putBack(m)
		if c.conn != nil {
			c.conn.wakeWriter()
		}
	}
	c.mu.Unlock()
	if again {
		return true
	}
	if m != nil && m.call == nil {
		c.report(m.typ, err)
		return true
	}
	return false
}

// recentEvents holds the types of the last events, so that a rejection can name the type.
type recentEvents struct {
	types map[string]string // by correlation ID
	ids   [256]string
	next  int
}

func (r *recentEvents) add(id, typ string) {
	if r.types == nil {
		r.types = map[string]string{}
	}
	delete(r.types, r.ids[r.next])
	r.types[id], r.ids[r.next] = typ, id
	r.next = (r.next + 1) % len(r.ids)
}

// typeOf returns the type of an event, or "" if it is unknown.
func (c *Client) typeOf(id string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.recent.types[id]
}

// report passes an error to Options.OnError.
func (c *Client) report(typ string, err error) {
	if c.opts.OnError == nil {
		c.logError(typ, err)
		return
	}
	c.events.Add(func() { c.guard("OnError", func() { c.opts.OnError(typ, err) }) })
}
