package router

import (
	"time"

	"github.com/penstock-go/penstock/internal/failure"
	"github.com/penstock-go/penstock/internal/protocol"
	"github.com/penstock-go/penstock/internal/wire"
)

// maxExpiryStep bounds the time between two checks of an identity that expires. Timers follow the
// monotonic clock, and ExpiresAt the wall clock: a longer timer would not notice that the wall
// clock has been set, or that the machine has slept.
const maxExpiryStep = time.Minute

// identityWarning is how long before its expiry a greeted client is warned.
const identityWarning = time.Minute

// armExpiryLocked starts the timer of the current identity, if it expires.
func (c *Conn) armExpiryLocked() {
	id := c.identity.Load()
	if id == nil || id.ExpiresAt.IsZero() || id.timer != nil {
		return
	}
	remaining := id.remaining(time.Now())
	// A client that refreshes an identity as soon as it is warned must not be warned at once.
	id.warning = min(identityWarning, remaining/2)
	id.timer = time.AfterFunc(id.nextCheck(remaining), c.checkExpiry)
}

// nextCheck returns when to check an identity again that is valid for that long.
func (id *connIdentity) nextCheck(remaining time.Duration) time.Duration {
	if remaining > id.warning {
		remaining -= id.warning
	}
	return min(remaining, maxExpiryStep)
}

// checkExpiry closes the connection if its identity has expired, warns a greeted client that it
// will, and sets the timer. It may be called at any time. A change of the identity happens before
// the check or, because the connection is then closing, not at all.
func (c *Conn) checkExpiry() { c.member.Do(c.checkExpiryLocked) }

func (c *Conn) checkExpiryLocked() {
	id := c.identity.Load()
	if id == nil || id.timer == nil || c.member.WS.Closing() {
		return
	}
	remaining := id.remaining(time.Now())
	if remaining <= 0 {
		payload := failure.Payload(errIdentityExpired)
		c.Close(StatusUnauthenticated, wire.CloseReason(&payload))
		return
	}
	if !id.warned && remaining <= id.warning && c.member.HasGreeted() {
		id.warned = true
		_ = c.Send(protocol.IdentityExpiring{ExpiresInMs: remaining.Milliseconds()}) // fails only if a slow client cannot be warned
	}
	id.timer.Reset(id.nextCheck(remaining))
}

// startExpiry starts the timer of a connection's first identity, and stopExpiry stops that of the
// last one.
func (c *Conn) startExpiry() {
	if c.identity.Load() == nil {
		return
	}
	c.member.Do(c.armExpiryLocked)
}

// stopExpiry must follow the removal from the registry, after which the identity does not change.
func (c *Conn) stopExpiry() {
	if c.identity.Load() == nil {
		return
	}
	c.member.Do(func() { c.identity.Load().stopTimerLocked() })
}

// stopTimerLocked runs in Member.Do.
func (id *connIdentity) stopTimerLocked() {
	if id != nil && id.timer != nil {
		id.timer.Stop()
	}
}
