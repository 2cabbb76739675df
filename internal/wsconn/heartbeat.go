package wsconn

import "time"

// A connTimer is the connection as an entry of Engine.timers.
type connTimer Conn

// Place implements [timerqueue.Entry].
func (t *connTimer) Place() *int32 { return &t.timerPlace }

// Fire implements [timerqueue.Entry].
func (t *connTimer) Fire() { (*Conn)(t).tick() }

// setTimerLocked makes tick run after d.
func (c *Conn) setTimerLocked(d time.Duration) {
	if !c.released {
		c.opts.Engine.timers.Set((*connTimer)(c), d)
	}
}

// seen records that data from the peer has arrived.
func (c *Conn) seen(at time.Time) { c.lastSeen.Store(int64(c.sinceStart(at))) }

// tick runs when the timer fires. It pings a silent peer, and ends the connection if
// the peer sends nothing after that, or has not answered our close frame.
func (c *Conn) tick() {
	if !c.checkAlive() {
		c.Abort()
	}
}

func (c *Conn) checkAlive() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.sinceStart(time.Now())
	if c.closing.Load() {
		left := time.Duration(0)
		if c.closed != nil {
			left = c.closed.by - now
		}
		if left > 0 { // the timer fired for a ping, just before Close
			c.setTimerLocked(left)
		}
		return left > 0
	}
	seen := time.Duration(c.lastSeen.Load())
	listens := c.waiting.Load() || c.readState.Load() == parked
	silence, unanswered := now-seen, now-c.pingedAt
	switch {
	case !listens:
		// Handlers are busy, so a pong could not be read. A ping still finds out
		// whether the peer's host knows the connection.
		c.pingLocked(0)
		c.setTimerLocked(c.opts.PingInterval)
	case silence < c.opts.PingInterval:
		c.pingedAt = 0
		c.setTimerLocked(c.opts.PingInterval - silence)
	case c.pingedAt == 0 || c.pingedAt < seen:
		c.pingLocked(now)
		c.setTimerLocked(min(c.opts.PongTimeout, c.opts.PingInterval))
	case unanswered < c.opts.PongTimeout:
		c.setTimerLocked(min(c.opts.PongTimeout-unanswered, c.opts.PingInterval))
	default:
		return false
	}
	return true
}

// pingLocked queues a ping. pingedAt is 0 if no pong is awaited.
func (c *Conn) pingLocked(pingedAt time.Duration) {
	c.pingedAt = pingedAt
	c.enqueueControlLocked(controlFrame(finPing, ""))
}
