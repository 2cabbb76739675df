//go:build !js

package client

import (
	"time"

	"github.com/penstock-go/penstock/errors"
)

// forever is how long a writer waits that is woken by an event.
const forever = time.Hour

// next returns the next message to be written on a connection, encoded, or how long the writer must wait
// if it is not woken earlier. Messages that are too big for the server end.
func (c *Client) next(cn *conn) (frame []byte, m *outgoing, wait time.Duration) {
	for {
		var err error
		if frame, m, wait, err = c.take(cn); err == nil {
			return frame, m, wait
		}
		c.refuse(cn, m, err)
	}
}

// take takes the next message out of the queue. With an error, it must not be sent.
func (c *Client) take(cn *conn) (frame []byte, m *outgoing, wait time.Duration, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := time.Now()
	if len(cn.control) > 0 {
		m := cn.control[0]
		cn.control = cn.control[1:]
		h := head{typ: m.typ, id: m.id, credit: m.credit}
		frame := cn.frame(&h, m.payload)
		if err := cn.sizes.check(m.typ, frame); err != nil {
			return nil, &m, 0, err
		}
		c.pacer.sentControl(&m, at)
		return frame, nil, 0, nil
	}
	if m, wait = c.chooseLocked(cn, at); m == nil {
		return nil, nil, wait, nil
	}
	c.queue.remove(m)
	m.id = c.ids.next()
	h := head{typ: m.typ, id: m.id, credit: m.credit, trace: m.trace}
	if cl := m.call; cl != nil {
		cl.id, cl.conn = m.id, cn
		c.calls[m.id] = cl
		cn.openCalls[m.id] = struct{}{}
		if !m.deadline.IsZero() {
			h.timeoutMs = max(1, time.Until(m.deadline).Milliseconds())
		}
	}
	h.ack = cn.acks && (m.call == nil || c.pacer.enabled)
	frame = cn.frame(&h, m.payload)
	if err := cn.sizes.check(m.typ, frame); err != nil {
		return nil, m, 0, err
	}
	if m.call == nil {
		c.recent.add(m.id, m.typ)
	}
	if cn.acks {
		c.pacer.sent(m, cn, at)
	}
	return frame, m, 0, nil
}

// chooseLocked returns the first message that may be sent, or how long none may. Messages that wait for a
// limit hold back only those that it limits, too.
func (c *Client) chooseLocked(cn *conn, at time.Time) (first *outgoing, wait time.Duration) {
	wait = forever
	if !cn.sending {
		return nil, wait
	}
	c.pacer.search++
	callsWait := cn.crowded || cn.concurrency > 0 && len(cn.openCalls) >= cn.concurrency
	for _, m := range c.queue.messages {
		if m.call != nil && callsWait {
			continue
		}
		w := c.pacer.wait(m, at)
		if w <= 0 {
			return m, 0
		}
		wait = min(wait, w)
		callsWait = callsWait || m.crowded
	}
	return nil, wait
}

// written is called when a message has been handed over to its connection, or could not be.
func (c *Client) written(m *outgoing, err error) {
	if m == nil || m.call != nil {
		return // calls end with the connection
	}
	if err != nil {
		c.mu.Lock()
		c.pacer.refused(m.id, time.Now())
		c.mu.Unlock()
		c.fail(m, outcomeUnknown(err))
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	m.settle(nil)
}

// fail ends a message with an error, for its caller or, if that does not wait any more, for Options.OnError.
func (c *Client) fail(m *outgoing, err error) {
	if m.call != nil {
		m.call.finish(answer{err: err})
		return
	}
	c.mu.Lock()
	passed := m.settle(err)
	c.mu.Unlock()
	if !passed {
		c.report(m.typ, err)
	}
}

// rejected handles the error of an event, or of a call that is sent again. It reports false if the
// caller must handle the error.
func (c *Client) rejected(cn *conn, id string, err error, sentAt int64) (handled bool) {
	at := time.Now()
	c.mu.Lock()
	m, cl := c.pacer.refused(id, at), c.calls[id]
	if m == nil && cl != nil {
		m = cl.queue
	}
	again := m != nil && c.sendAgainLocked(cn, m, err, sentAt, at)
	c.mu.Unlock()
	switch {
	case again:
		return true
	case m == nil || m.call != nil:
		return false
	}
	c.fail(m, err)
	return true
}

// sendAgainLocked returns a rejected message to its place in the queue, if it may be admitted later.
func (c *Client) sendAgainLocked(cn *conn, m *outgoing, err error, sentAt int64, at time.Time) bool {
	e, ok := errors.AsType[*errors.Error](err)
	if !ok || e.Code != errors.ResourceExhausted || !e.Retryable() || m.call != nil && m.call.abandoned {
		return false
	}
	again := c.pacer.repeat(m, e, sentAt, at)
	if detail(e, "kind") == "in_flight" && m.call != nil {
		again = c.pacer.enabled || int(number(detail(e, "limit"))) == cn.concurrency
	}
	if !again {
		return false
	}
	m.rejection = err
	if m.call != nil {
		delete(c.calls, m.id)
		cn.settledLocked(m.id)
		m.call.conn = nil
	}
	if detail(e, "kind") == "in_flight" {
		cn.crowdLocked(m, e, at)
	} else if m.call == nil {
		time.AfterFunc(m.deadline.Sub(at), func() { c.expire(m) })
	}
	c.queue.putBack(m)
	cn.wakeWriter()
	if c.conn != nil {
		c.conn.wakeWriter()
	}
	return true
}

// withdrawLocked removes a message from the queue, so that those it holds back may be sent. It reports false
// if the message does not wait.
func (c *Client) withdrawLocked(m *outgoing) bool {
	waits := c.queue.remove(m)
	if c.conn != nil {
		c.conn.wakeWriter()
	}
	return waits
}

// expire ends an event that waits to be sent again, when its time is over.
func (c *Client) expire(m *outgoing) {
	c.mu.Lock()
	waits := c.withdrawLocked(m)
	c.mu.Unlock()
	if waits {
		c.fail(m, &errors.Error{Code: errWaitedTooLong.Code, Message: errWaitedTooLong.Message, Err: errors.Join(errWaitedTooLong, m.rejection)})
	}
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
