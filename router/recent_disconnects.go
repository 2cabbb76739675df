package router

import (
	"context"

	"github.com/penstock-go/penstock/internal/host"
	"github.com/penstock-go/penstock/internal/registry"
)

// This file closes connections whose user was disconnected while they were being opened: after
// Options.Authenticate was called, and before DisconnectUser could find them.

// authentication returns what an identity that is authenticated after the call has as connIdentity.since.
func (r *Router) authentication() uint32 {
	if r.access == nil {
		return r.disconnects.Now()
	}
	return r.access.log.Now()
}

// awaitAuthentication is authentication for handshakes. It waits until this node knows the latest calls.
func (r *Router) awaitAuthentication(ctx context.Context) uint32 {
	if r.access == nil {
		return r.authentication()
	}
	return r.access.log.AwaitNow(ctx)
}

// endOf returns how a user was disconnected after an authentication. ok is false if that has not happened.
func (r *Router) endOf(user registry.User, since uint32) (end CloseError, ok bool) {
	end, found, unknown := r.disconnects.Find(user, since)
	if unknown {
		end = CloseError{StatusTryAgainLater, unknownReason(1)}
	}
	return end, user.UserID != "" && (found || unknown)
}

// accessEndOf is endOf for clients that are no connections of the router.
func (r *Router) accessEndOf(tenantID, userID string, since uint32) (host.AccessEnd, bool) {
	end, ok := r.endOf(registry.User{TenantID: tenantID, UserID: userID}, since)
	return host.AccessEnd{TenantID: tenantID, UserID: userID, Code: validCode(end.Code), Reason: end.Reason}, ok
}

// checkAccess closes a connection whose user was disconnected after it was authenticated, and before
// it was registered.
func (c *Conn) checkAccess() {
	id := c.identity.Load()
	if id == nil {
		return
	}
	if end, ok := c.router.endOf(id.user(), id.since); ok {
		c.Close(end.Code, end.Reason)
	}
}
