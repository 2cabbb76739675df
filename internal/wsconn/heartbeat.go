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

// measureRTT records when the latest ping was answered. A pong with a payload answers none of our pings (RFC 6455,
// section 5.5.3). The connection listens when it is pinged, so the first chunk after that is read when it arrives.
// A later one may have waited for a handler.
func (c *Conn) measureRTT(payload []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	rtt := time.Duration(c.lastSeen.Load()) - c.pingedAt
	queue := c.queueLocked()
	unsent := queue != nil && queue.newest(finPing) >= 0
	if c.pingedAt == 0 || rtt < 0 || unsent || len(payload) > 0 || c.chunks.Load() != c.pingedAfter+1 {
		return
	}
	c.rttMicros.Store(uint32(max(rtt.Microseconds(), 1)))
	c.pingedAt = 0
}

// RTT returns the latest round trip of a ping that measureRTT has recorded, in whole microseconds, or 0.
func (c *Conn) RTT() time.Duration { return time.Duration(c.rttMicros.Load()) * time.Microsecond }

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
		if c.closed == nil || c.closed.by <= now {
			return false
		}
		c.setTimerLocked(c.closed.by - now) // the timer fired for a ping, just before Close
		return true
	}
	chunks := c.chunks.Load() // before lastSeen: one that arrives meanwhile is the first after the ping
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
	case c.pingedAt == 0 || c.pingedAt <= seen:
		c.pingedAfter = chunks
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
