package router

import (
	"context"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/envelope"
	"github.com/penstock-go/penstock/internal/wsconn"
)

// SendWait sends a message that no [SlowConsumerPolicy] drops or conflates: a part of a large
// answer, for example. While the send queue has been more than half full and not less than a
// quarter full since then, it waits, so a client that reads slowly slows its producer down and
// stays connected. It returns nil when the message is queued.
//
// It returns ctx's error if ctx is done first, an error with the code UNAVAILABLE if the
// connection is closed first, a [*LimitExceeded] if the message is longer than
// Limits.QueueBytes, one with DEADLINE_EXCEEDED if it has waited for ten minutes, and an error if
// the message cannot be encoded. A client that reads nothing for Timeouts.Message ends the connection,
// and with it the wait.
//
// Callers that wait for one connection are served in the order in which they began to wait.
// Publications and [Conn.Send] do not wait, so they can keep the queue full, and SendWait
// waiting. SendWait may be called by handlers and hooks: the queue is emptied on a goroutine of
// its own. An event's handler delays the later messages of its connection meanwhile.
func (c *Conn) SendWait(ctx context.Context, m Message) error {
	if c.router.hints != nil {
		c.router.hints.Sent(m)
	}
	err := c.queueTurn(ctx, func() (*wsconn.Frame, error) { return envelope.EncodeEvent(c.codec(), m) }, nil)
	if errors.Is(err, wsconn.ErrCanceled) {
		return ctx.Err()
	}
	return err
}

// queueTurn queues the frame that encode returns, as SendWait does. It returns [wsconn.ErrCanceled] if ctx is done first
// or canceled, which may be nil, returns true when the frame would be queued.
func (c *Conn) queueTurn(ctx context.Context, encode func() (*wsconn.Frame, error), canceled func() bool) error {
	err := c.member.WS.QueueTurn(encode, ctx.Done(), canceled)
	c.member.WS.Wake()
	if tooLong, ok := err.(*wsconn.TooLong); ok { //nolint:errorlint // never wrapped
		return c.router.queueExceeded(tooLong.Bytes)
	}
	if err == wsconn.ErrCanceled && c.ctx.Err() != nil { //nolint:errorlint // as above; the context of a message ends with its connection
		return wsconn.ErrClosed
	}
	return err
}

// queueExceeded returns the error for a message that does not fit into a send queue.
func (r *Router) queueExceeded(bytes int) error {
	return &LimitExceeded{Kind: LimitQueue, Option: "router.Limits.QueueBytes", Observed: int64(bytes), Limit: int64(r.opts.Limits.QueueBytes), RetryAfter: errors.Never}
}

// QueueStats is a snapshot of a connection's send queue.
type QueueStats struct {
	Messages int // that wait; bounded by Limits.QueueMessages
	Bytes    int // of these messages; bounded by Limits.QueueBytes

	// WritingMessages and WritingBytes have been handed to the socket and wait for the client or
	// the network. They are at most 16 KiB, or one longer message.
	WritingMessages int
	WritingBytes    int

	// OldestAge is the age of the oldest of all these messages, 0 if there are none: since it was
	// sent, or since it arrived from another node.
	OldestAge time.Duration

	// PeakMessages and PeakBytes are the highest numbers that have waited since the connection
	// was opened.
	PeakMessages int
	PeakBytes    int

	// Backpressure is true from when the queue becomes more than half full, as reported to
	// Options.OnBackpressure, until it is less than a quarter full. Meanwhile the connection is
	// not read, and SendWait waits.
	Backpressure bool
}

// QueueStats returns a snapshot of the send queue.
func (c *Conn) QueueStats() QueueStats {
	s := c.member.WS.QueueStats()
	stats := QueueStats{
		Messages: s.Messages, Bytes: s.Bytes,
		WritingMessages: s.WritingMessages, WritingBytes: s.WritingBytes,
		PeakMessages: s.PeakMessages, PeakBytes: s.PeakBytes,
		Backpressure: s.High,
	}
	if !s.Oldest.IsZero() {
		stats.OldestAge = max(time.Since(s.Oldest), 0)
	}
	return stats
}
