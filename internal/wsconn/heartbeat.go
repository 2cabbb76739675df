package wsconn

import (
	"context"
	"time"
)

// seen records a sign of life.
func (c *Conn) seen(at time.Time) { c.lastSeen.Store(int64(at.Sub(c.start))) }

// pongReceived runs inside the library's Read and must not call back into it.
func (c *Conn) pongReceived(context.Context, []byte) { c.seen(time.Now()) }

// pingReceived runs inside the library's Read, too. The library must not answer: its pong would
// overtake those that are queued.
func (c *Conn) pingReceived(_ context.Context, payload []byte) bool {
	c.queuePong(payload)
	return false
}

func (c *Conn) queuePong(payload []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closing.Load() { // nothing may follow a close frame
		c.sendControl(controlFrame(finPong, string(payload)))
	}
}

// tick runs when the timer fires: it asks a silent peer for a sign of life and
// ends the connection if there is none, or if the peer did not answer our close
// frame.
func (c *Conn) tick() {
	if !c.alive() {
		c.Abort()
	}
}

func (c *Conn) alive() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing.Load() {
		left := c.closeBy - time.Since(c.start)
		if left > 0 { // it has fired for a ping, just before Close
			c.timer.Reset(left)
		}
		return left > 0
	}
	now, seen := time.Since(c.start), time.Duration(c.lastSeen.Load())
	switch {
	case !c.reading.Load() && c.turn.Load() != turnFree:
		// We do not listen, because handlers are busy. A ping still finds out
		// whether the peer's host knows the connection.
		c.pingedAt = 0
		c.sendControl(pingFrame())
		c.timer.Reset(c.opts.PingInterval)
	case now-seen < c.opts.PingInterval:
		c.pingedAt = 0
		c.timer.Reset(c.opts.PingInterval - (now - seen))
	case c.pingedAt == 0 || c.pingedAt < seen:
		c.pingedAt = now
		c.sendControl(pingFrame())
		c.timer.Reset(c.opts.PongTimeout)
	default:
		return false
	}
	return true
}
