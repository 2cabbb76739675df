package router

import (
	"time"

	"github.com/penstock-go/penstock/internal/netpoll"
	"github.com/penstock-go/penstock/internal/wsconn"
)

// OpenAsks returns what a router has asked other nodes and waits for, what it is answering, the
// calls to clients of those, and the bytes of answers that callers have not taken.
func OpenAsks(r *Router) (asked, served, calls int, bytes int64) { return r.asks.Open() }

// Receive runs all stages of the pipeline for a text message on the calling goroutine, as if the client
// had sent it. At most one goroutine may call it for a connection, whose serve must have blocked.
func Receive(c *Conn, text []byte) {
	msg := wsconn.Message{Buffer: netpoll.NewBuffer(netpoll.ClassFor(len(text))), Size: int64(len(text)), At: time.Now()}
	msg.Bytes = append(msg.Bytes, text...)
	if in := (&reader{Conn: c, inline: true}).receive(msg); in != nil {
		c.messages.RunClaimed(in)
	} else if c.messages.TryStart() {
		c.messages.Run()
	}
}

// SetClockForward makes the identity of a connection expire earlier, as if the wall clock had been
// set forward.
func SetClockForward(c *Conn, d time.Duration) {
	c.member.Do(func() {
		id := c.identity.Load()
		id.ExpiresAt = id.ExpiresAt.Add(-d)
	})
}

// StopExpiryTimer stops the timer of the identity of a connection, and reports whether it was set.
func StopExpiryTimer(c *Conn) (stopped bool) {
	c.member.Do(func() {
		id := c.identity.Load()
		stopped = id != nil && id.timer != nil && id.timer.Stop()
	})
	return stopped
}

// Greet marks a client as one that knows the messages of the protocol.
func Greet(c *Conn) {
	c.member.Greet()
	c.checkExpiry()
}

// SetIdentityAfter is SetIdentity that calls f after it has seen that the connection is open.
func SetIdentityAfter(c *Conn, id Identity, f func()) error {
	return c.changeIdentity(&c.ctx, id, 0, func(Identity) error { f(); return nil })
}

// AbsentConns returns the number of closed connections with which users stay present.
func (r *Router) AbsentConns() int {
	_, others := r.away.Len()
	return others
}

// AwaySessions returns the number of sessions that have been left on this node.
func (r *Router) AwaySessions() int {
	sessions, _ := r.away.Len()
	return sessions
}

// SessionOwners returns the number of connections that have a session, had it, or are claiming it.
func (r *Router) SessionOwners() int { return r.sessions.Len() }
