//go:build !js

package routertest

import (
	"fmt"
	"iter"
	"strconv"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/protocol"
	"github.com/penstock-go/penstock/router"
)

// A Pending is a call or a stream that [Start] has sent. Its answer is received with [ReceiveAnswer],
// [ReceiveAnswerError] or, for a stream without a reply of its own, [Pending.End]. Like those of [Conn], its
// methods must be called from the goroutine that runs the test.
type Pending struct {
	conn    *Conn
	typ, id string
	credits bool   // the stream started with Credit
	answer  *Frame // nil until it has been received
}

// A StartOption changes the message that [Start] sends.
type StartOption func(*outgoingMeta)

// Credit grants a stream its first n items, as meta.credit does. Without it, the stream is not
// limited by credits.
func Credit(n int64) StartOption { return func(m *outgoingMeta) { m.Credit = &n } }

// Timeout asks the server for an answer within d, in whole milliseconds, as meta.timeoutMs does.
func Timeout(d time.Duration) StartOption {
	return func(m *outgoingMeta) { m.TimeoutMs = d.Milliseconds() }
}

// Start sends a message as a call or as a stream, and does not wait for the answer.
func Start(c *Conn, m router.Message, opts ...StartOption) *Pending {
	c.t.Helper()
	c.mu.Lock()
	c.calls++
	id := "call-" + strconv.Itoa(c.calls)
	c.requests[id] = m.MessageType()
	c.mu.Unlock()
	meta := outgoingMeta{CorrelationID: id}
	for _, opt := range opts {
		opt(&meta)
	}
	c.send(m, meta)
	return &Pending{conn: c, typ: m.MessageType(), id: id, credits: meta.Credit != nil}
}

// ID returns the correlation ID. It is unique in the connection.
func (p *Pending) ID() string { return p.id }

// Abort asks the server to cancel the call or stream. Without an earlier answer, that is the error
// CANCELLED.
func (p *Pending) Abort() {
	p.conn.t.Helper()
	p.conn.SendText(fmt.Sprintf(`{"type":%q,"meta":{"correlationId":%q}}`, protocol.TypeAbort, p.id))
}

// Grant permits a stream that was started with [Credit] to send n more items.
func (p *Pending) Grant(n int64) {
	p.conn.t.Helper()
	p.conn.SendText(fmt.Sprintf(`{"type":%q,"meta":{"correlationId":%q,"credit":%d}}`, protocol.TypeCredit, p.id, n))
}

// next waits for the next progress and returns it, or reports false if the answer comes first.
func (p *Pending) next() (Frame, bool) {
	p.conn.t.Helper()
	if p.answer != nil { // all items have arrived
		return p.conn.poll(func(f Frame) bool { return f.Meta.CorrelationID == p.id })
	}
	frame := p.conn.take("an item of "+p.typ, func(f Frame) bool { return f.Meta.CorrelationID == p.id })
	if frame.Type == protocol.TypeProgress {
		return frame, true
	}
	p.answer = &frame
	return Frame{}, false
}

// poll returns the first message that matches, or reports false if none has arrived.
func (c *Conn) poll(matches func(Frame) bool) (Frame, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, frame := range c.received {
		if matches(frame) {
			c.removeLocked(i)
			return frame, true
		}
	}
	return Frame{}, false
}

// answerFrame waits for the answer. Progress that arrives before it remains queued.
func (p *Pending) answerFrame() Frame {
	p.conn.t.Helper()
	if p.answer == nil {
		frame := p.conn.take("the answer to "+p.typ, func(f Frame) bool {
			return f.Meta.CorrelationID == p.id && f.Type != protocol.TypeProgress
		})
		p.answer = &frame
	}
	return *p.answer
}

// End waits for the end of a stream without a reply of its own. Any other answer fails the test.
// Items that arrive before it remain queued.
func (p *Pending) End() {
	p.conn.t.Helper()
	if frame := p.answerFrame(); frame.Type != protocol.TypeStreamEnd {
		p.conn.t.Fatalf("routertest: received %s, want %s", frame.Text, protocol.TypeStreamEnd)
	}
}

// NextItem waits for the next item of a stream, or for the next progress of a call, and decodes it.
// If the answer comes first, the test fails.
func NextItem[Item any](p *Pending) Item {
	p.conn.t.Helper()
	frame, ok := p.next()
	if !ok {
		p.conn.t.Fatalf("routertest: received %s, want an item of %s", p.answer.Text, p.typ)
	}
	return decodePayload[Item](p.conn, frame)
}

// Items returns an iterator over the items of a stream, or over the progress of a call, until its
// answer. If the stream was started with [Credit], each item grants another one when the loop has
// handled it, so the server never sends more items ahead than that number.
func Items[Item any](p *Pending) iter.Seq[Item] {
	return func(yield func(Item) bool) {
		p.conn.t.Helper()
		for {
			frame, ok := p.next()
			if !ok || !yield(decodePayload[Item](p.conn, frame)) {
				return
			}
			if p.credits {
				p.Grant(1)
			}
		}
	}
}

// ReceiveAnswer waits for the answer of a call or stream and decodes it as a Reply. An error fails the
// test. Progress and items that arrive before it remain queued.
func ReceiveAnswer[Reply router.Message](p *Pending) Reply {
	p.conn.t.Helper()
	return decode[Reply](p.conn, p.answerFrame())
}

// ReceiveAnswerError waits for the answer of a call or stream, which must be an error, and returns it.
// Progress and items that arrive before it remain queued.
func ReceiveAnswerError(p *Pending) *errors.Error {
	p.conn.t.Helper()
	return decodeError(p.conn.t, p.answerFrame())
}
