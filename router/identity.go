package router

import (
	"context"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/registry"
	"github.com/penstock-go/penstock/internal/wsconn"
)

// An Identity is the authenticated tenant and user of a connection. The zero Identity is that
// of an anonymous connection.
type Identity struct {
	TenantID string // "" if there are no tenants
	UserID   string // "" if the connection is anonymous
	Data     any    // for the application; the router does not use it

	// ExpiresAt is when the identity ends: the exp claim of a JWT, for example. The zero Time is
	// never. It is a time of the wall clock; a monotonic clock reading is ignored.
	//
	// The router closes the connection with 4401 at this time. A client that has sent $ws:hello
	// is warned a minute before it, or after half of its time if that is less than two minutes, and can refresh its identity with $ws:auth;
	// see the protocol, section 8. If the clock is set or the machine sleeps, the connection may
	// last up to a minute longer.
	ExpiresAt time.Time
}

// expired reports whether the identity has ended at a time.
func (id Identity) expired(at time.Time) bool {
	return !id.ExpiresAt.IsZero() && id.remaining(at) <= 0
}

// remaining returns how long the identity is valid after a time. It must expire. Round removes a
// monotonic clock reading, which does not follow the wall clock.
func (id Identity) remaining(at time.Time) time.Duration { return id.ExpiresAt.Round(0).Sub(at) }

// user returns the key of the identity's user. Its UserID is empty if the identity is anonymous.
func (id Identity) user() registry.User {
	return registry.User{TenantID: id.TenantID, UserID: id.UserID}
}

// A connIdentity is an identity of a connection. Member.Do guards the fields after Identity.
type connIdentity struct {
	Identity // read-only

	timer   *time.Timer   // calls Conn.checkExpiry; nil if the identity does not expire, or before Conn.armExpiry
	warning time.Duration // before ExpiresAt, when the client is warned
	warned  bool          // the client has received $ws:identity-expiring

	since uint32 // the access.Node.Now before the user was authenticated; read-only
}

// newConnIdentity returns what Conn.identity holds for an identity: nil for the zero one. Data is
// compared with nil only, because it may have a type that is not comparable.
func newConnIdentity(id Identity, since uint32) *connIdentity {
	if id.TenantID == "" && id.UserID == "" && id.Data == nil && id.ExpiresAt.IsZero() {
		return nil
	}
	return &connIdentity{Identity: id, since: since}
}

// value returns the identity. A nil id holds the zero Identity.
func (id *connIdentity) value() Identity {
	if id == nil {
		return Identity{}
	}
	return id.Identity
}

// Identity returns the current identity of the connection: what Options.Authenticate returned,
// or the argument of a later SetIdentity.
func (c *Conn) Identity() Identity { return c.identity.Load().value() }

// SetIdentity changes the identity of an open connection, after a login by message, for example.
// All of the following change together, and concurrent calls take effect one after the other:
//
//   - [Conn.Identity] and [Context.Identity] return it. Ingress functions receive it with the next
//     message, so keys and tiers of limits follow at once. Messages that have passed ingress keep
//     what they were charged with; see [Context.Ingress].
//   - [Router.SendToUser] and [Router.DisconnectUser] reach the connection as that user.
//   - The connection counts for the Limits.ConnsPerUser of that user. SetIdentity returns a
//     [*LimitExceeded] if there are too many.
//   - If the tenant or the user is another one, then in every topic that the connection has
//     joined, the old [Member] leaves and the new one joins, on all nodes. With Options.UserHistory,
//     SetIdentity waits for up to 2 s until the connection receives what is sent to the new user.
//   - The connection closes at the new ExpiresAt, and no more at the old one. SetIdentity returns
//     UNAUTHENTICATED if that has passed.
//
// If SetIdentity returns an error, nothing has changed. After the connection has been closed, also
// because its identity has expired, the error is UNAVAILABLE. Options.OnOpen is not called again,
// and what it has granted is kept: subscriptions and the permit of ratelimit.Connections, for
// example.
func (c *Conn) SetIdentity(id Identity) error {
	return c.changeIdentity(&c.ctx, id, c.router.access.Now(), func(Identity) error { return nil })
}

// changeIdentity is SetIdentity if permit returns nil for the identity that it replaces. since is the
// access.Node.Now before the new one was authenticated. The wait for the messages of another user ends with ctx.
func (c *Conn) changeIdentity(ctx context.Context, id Identity, since uint32, permit func(current Identity) error) error {
	if id.expired(time.Now()) {
		return errIdentityExpired
	}
	var before registry.User
	var err error
	c.member.Do(func() { before, err = c.Identity().user(), c.changeIdentityLocked(id, since, permit) })
	if err == nil && before != id.user() {
		c.router.members.AwaitUserLog(ctx, &c.member, time.Now())
	}
	return err
}

func (c *Conn) changeIdentityLocked(id Identity, since uint32, permit func(current Identity) error) error {
	if c.member.WS.Closing() {
		return wsconn.ErrClosed
	}
	old := c.identity.Load()
	if err := permit(old.value()); err != nil {
		return err
	}
	if err := c.changeUserLocked(newConnIdentity(id, since)); err != nil {
		return err
	}
	old.stopTimerLocked()
	c.armExpiryLocked()
	c.router.members.IdentityChangedLocked((*memberConn)(c), old.value().user() != id.user())
	c.checkAccess()
	return nil
}

// changeUserLocked stores the identity of a connection, and moves its slot and its entry to the user of that
// identity. Once the connection has been removed, it returns an error, so what ReleaseUser releases is the
// slot of the last identity.
func (c *Conn) changeUserLocked(id *connIdentity) error {
	registered, refusal := c.router.conns.ChangeUser(c.member.ID, id.value().user(), func() { c.identity.Store(id) })
	switch {
	case !registered:
		return wsconn.ErrClosed
	case refusal != nil:
		return connsExceeded(refusal)
	default:
		return nil
	}
}

// errIdentityExpired refuses an identity, and closes a connection, whose ExpiresAt has passed.
var errIdentityExpired = &errors.Error{Code: errors.Unauthenticated, Message: "the identity has expired"}
