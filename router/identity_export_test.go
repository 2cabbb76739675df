package router

import "time"

// SetClockForward makes the identity of a connection expire earlier, as if the wall clock had been
// set forward.
func SetClockForward(c *Conn, d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	id := c.identity.Load()
	id.ExpiresAt = id.ExpiresAt.Add(-d)
}

// StopExpiryTimer stops the timer of the identity of a connection, and reports whether it was set.
func StopExpiryTimer(c *Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	id := c.identity.Load()
	return id != nil && id.timer != nil && id.timer.Stop()
}

// Greet marks a client as one that knows the messages of the protocol.
func Greet(c *Conn) {
	c.sub.Greet()
	c.checkExpiry()
}

// IdentityTimer returns the timer of the identity of a connection.
func IdentityTimer(c *Conn) *time.Timer {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.identity.Load().timer
}

// SetIdentityAfter is SetIdentity that calls f after it has seen that the connection is open.
func SetIdentityAfter(c *Conn, id Identity, f func()) error {
	return c.changeIdentity(id, 0, func(Identity) error { f(); return nil })
}
