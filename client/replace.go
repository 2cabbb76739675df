//go:build !js

package client

import (
	"context"
	"log/slog"
	"time"

	"github.com/coder/websocket"

	"github.com/penstock-go/penstock/internal/protocol"
)

// replaceWait is how long calls on the connections that are left may take before these are closed.
const replaceWait = 5 * time.Second

// replace opens another connection after a delay, over which new messages are sent, and closes the old one
// when its calls have been answered; then it moves the subscriptions. It opens the next one if that fails, and while calls are
// awaited even if the other connection ends or the server asks to leave that, too. It returns nil if the old one has ended
// before.
func (c *Client) replace(old *conn, delay time.Duration, r *retries) *conn {
	ctx, cancel := context.WithCancel(c.ctx) // until calls are no longer awaited
	defer cancel()
	leaving := []*conn{old} // the first one has the subscriptions
	ended := old.ended
	for again := true; again; {
		next, w, err := c.openAfter(delay, ended)
		if err == nil {
			if ended != nil {
				time.AfterFunc(replaceWait, cancel)
				ended = nil
			}
			c.sendOver(ctx, next, w, leaving[len(leaving)-1])
			if delay, err = c.awaitCalls(ctx, leaving, next); err == nil && delay == 0 {
				return c.moveTopics(leaving, next)
			}
		}
		switch {
		case err == nil:
			leaving = append(leaving, next)
			delay += r.move(next, &c.opts)
		case c.ctx.Err() != nil, old.hasEnded() && !c.haveCalls(leaving):
			again = false
		default:
			delay, again = r.next(err, &c.opts)
		}
	}
	c.leave(leaving[1:])
	return nil
}

// openAfter opens a connection after a delay, unless the old one ends before.
func (c *Client) openAfter(delay time.Duration, ended <-chan struct{}) (*conn, *protocol.Welcome, error) {
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ended:
		return nil, nil, ErrOutcomeUnknown
	case <-c.ctx.Done():
		return nil, nil, ErrClosed
	}
	next, w, err := c.connect(false)
	if err != nil {
		c.log(slog.LevelWarn, "the server asks for another connection, which was not opened", slog.String("url", c.server()), slog.Any("error", err))
	}
	return next, w, err
}

// moveTopics closes the connections that are left, and subscribes on the next one.
func (c *Client) moveTopics(leaving []*conn, next *conn) *conn {
	c.leave(leaving)
	c.useForTopics(next)
	if err := c.resubscribe(next); err != nil {
		_ = next.ws.CloseNow() // its end is handled like any other
	} else {
		c.reportMove()
	}
	return next
}

// sendOver sends new messages over the next connection, when the server has admitted the events on the last one: those
// would be overtaken otherwise.
func (c *Client) sendOver(ctx context.Context, next *conn, w *protocol.Welcome, last *conn) {
	c.mu.Lock()
	last.sending = false
	c.mu.Unlock()
	for !c.isConfirmed(last) && !last.hasEnded() && !next.hasEnded() && ctx.Err() == nil {
		select {
		case <-c.outcome:
		case <-ctx.Done():
		}
	}
	c.use(next, w)
	c.startSending(next)
}

// isConfirmed reports whether the server has admitted all events that were sent.
func (c *Client) isConfirmed(cn *conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.pacer.unconfirmed(cn)
}

// awaitCalls waits until the calls on connections that are left have been answered, or ctx is done. It returns the error
// with which the next connection has ended before, or the delay, at least 1, after which the server asks to leave that, too.
func (c *Client) awaitCalls(ctx context.Context, leaving []*conn, next *conn) (time.Duration, error) {
	for c.haveCalls(leaving) {
		select {
		case <-c.outcome:
		case <-next.ended:
			c.lost(next, next.err)
			return 0, next.err
		case delay := <-next.goaway:
			return max(delay, 1), nil
		case <-ctx.Done():
			return 0, nil
		}
	}
	return 0, nil
}

// haveCalls reports whether calls on open connections have no answer.
func (c *Client) haveCalls(conns []*conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, cn := range conns {
		if len(cn.openCalls) > 0 && !cn.hasEnded() {
			return true
		}
	}
	return false
}

// leave closes connections, and settles the calls that they have.
func (c *Client) leave(conns []*conn) {
	for _, cn := range conns {
		c.lost(cn, ErrOutcomeUnknown)
		go cn.close(websocket.StatusGoingAway)
	}
}

func (cn *conn) hasEnded() bool { return isClosed(cn.ended) }

// isClosed reports whether a channel that receives no values is closed.
func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
