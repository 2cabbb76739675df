package load

import (
	"context"
	"math/rand/v2"
	"time"
)

// keep sends the messages of a connection and, with Reconnect, of those that replace it. It returns
// the last one of them, at the end of the load or when ctx is done.
func (r *run) keep(ctx, sending context.Context, c *conn) *conn {
	n := 0
	for {
		if r.Type != "" {
			n = c.sendFrom(sending, n)
		}
		if r.Reconnect {
			select {
			case <-c.closed:
			case <-ctx.Done():
			}
		}
		next := r.reopen(ctx, c)
		if next == nil {
			break
		}
		c = next
		n = c.countNotSent(n, time.Now())
	}
	if <-ctx.Done(); r.Type != "" {
		c.countNotSent(n, time.Now())
	}
	return c
}

// countNotSent counts the messages from number n on that were due before a time. It returns the number
// of the first one that was not.
func (c *conn) countNotSent(n int, until time.Time) int {
	if c.Type == "" {
		return n
	}
	for ; ; n++ {
		_, due := c.due(n)
		if due.After(until) || !due.Before(c.end) {
			return n
		}
		c.count(due, func(r *Report, s *step) { r.NotSent++; s.due++ })
	}
}

// The backoff is that of docs/protocol.md, section 5.
const (
	minBackoff = 100 * time.Millisecond
	firstDelay = 500 * time.Millisecond // the bound of the random part
	maxDelay   = 20 * time.Second
)

// reopen opens a connection in place of one that was lost. It returns nil if the connection was not
// lost, or must not be opened again, or ctx is done.
func (r *run) reopen(ctx context.Context, lost *conn) *conn {
	if !r.Reconnect || ctx.Err() != nil {
		return nil
	}
	lost.countUnanswered()
	for bound := firstDelay; ; bound = min(2*bound, maxDelay) {
		if !sleepUntil(ctx, time.Now().Add(minBackoff+rand.N(bound))) {
			return nil
		}
		c, err := r.openOne(ctx, lost.slot)
		r.mu.Lock()
		if err == nil {
			r.report.Reopened++
			r.outages.add(time.Since(lost.lost))
		} else if ctx.Err() == nil {
			r.report.Refused[refusal(err)]++
		}
		r.mu.Unlock()
		if err == nil {
			return c
		}
	}
}
