package wirecheck

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/penstock-go/penstock/errors"
)

// A call is a message of the client with an ID: a call, a stream, or an event that is acknowledged.
type call struct {
	id, typ string
	sent    time.Time
	timeout time.Duration // 0: an event, or a stream without a deadline
	acked   bool
}

// An answer is what a call was answered with.
type answer struct{ typ, with string }

func (c *Conn) called(e envelope) {
	id := e.Meta.CorrelationID
	if c.calls[id] != nil {
		return // the server refuses the second call without an ID
	}
	delete(c.answered, id)
	c.calls[id] = &call{id: id, typ: e.Type, sent: time.Now(), timeout: time.Duration(e.Meta.TimeoutMs) * time.Millisecond}
}

func (c *Conn) acked(id string) {
	switch call := c.calls[id]; {
	case call == nil:
		c.violation("%s was acknowledged after its answer, or never sent; an acknowledgment precedes the answer", c.name(id))
	case call.acked:
		c.violation("%s was acknowledged twice", c.name(id))
	default:
		call.acked = true
	}
}

func (c *Conn) progressed(id string) {
	if c.calls[id] == nil {
		c.violation("%s has an item or progress, but no call is open with this ID; nothing may follow the answer", c.name(id))
	}
}

func (c *Conn) replied(e envelope) {
	id := e.Meta.CorrelationID
	if call := c.calls[id]; call != nil {
		delete(c.calls, id)
		c.answered[id] = answer{call.typ, e.Type}
		return
	}
	if earlier, ok := c.answered[id]; ok {
		c.violation("%s was answered with %s after %s; a call has exactly one answer", c.name(id), e.Type, earlier.with)
		return
	}
	c.violation("%s arrived with the correlation ID %q, which the client has not used", e.Type, id)
}

// name describes the message of the client with an ID.
func (c *Conn) name(id string) string {
	if call := c.calls[id]; call != nil {
		return fmt.Sprintf("call %s (%s)", call.typ, id)
	}
	if a, ok := c.answered[id]; ok {
		return fmt.Sprintf("call %s (%s)", a.typ, id)
	}
	return fmt.Sprintf("a message with the unknown ID %q", id)
}

func (c *Conn) violation(format string, args ...any) {
	c.observer.Violation(fmt.Sprintf(format, args...))
}

// Overdue returns the calls of an open connection that have no answer although their deadline has passed for longer
// than slack.
func (c *Conn) Overdue(slack time.Duration) (texts []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var overdue []*call
	for _, call := range c.calls {
		if call.timeout > 0 && time.Since(call.sent) > call.timeout+slack {
			overdue = append(overdue, call)
		}
	}
	slices.SortFunc(overdue, func(a, b *call) int { return cmp.Or(a.sent.Compare(b.sent), cmp.Compare(a.id, b.id)) })
	for _, call := range overdue {
		texts = append(texts, fmt.Sprintf("%s has no answer %v after it was sent; a call is answered at its deadline at the latest, which was %v",
			c.name(call.id), time.Since(call.sent).Round(time.Millisecond), call.timeout))
	}
	return texts
}

// isIncomplete reports whether a message may become complete when more bytes arrive.
func isIncomplete(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}
