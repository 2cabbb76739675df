package router

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/penstock-go/penstock/internal/registry"
)

// UserConns are the connections of a user on all nodes; see [Router.UserConns].
type UserConns struct {
	Conns []UserConn // at most 1,000, the oldest first
	Total int        // connections on the nodes that have answered: more than len(Conns) if that is not all

	// Silent are the nodes that have not answered within 5 seconds, and those that have left or
	// failed before they answered. How many connections they have is not known.
	Silent []string
}

// A UserConn is an open connection of a user.
type UserConn struct {
	ConnID      string     // as Conn.ID; for CallConn
	NodeID      string     // as Router.NodeID of its node; "" without a broker
	IP          netip.Addr // as Conn.IP
	Subprotocol string     // as Conn.Subprotocol
	OpenedAt    time.Time  // when its node accepted it, according to that node's clock
}

// UserConns returns the open connections of a user on all nodes. Clients that have lost their
// connection, and may resume their session, have none. UserConns returns nothing for the empty
// userID, which anonymous connections have.
//
// If it returns an error, what it returns besides may be incomplete: the code is UNAVAILABLE if
// there are Silent nodes, or if this node does not know all others at the moment, as within two
// seconds after it has started; a [*LimitExceeded] if 64 times Limits.Concurrency are in progress; or the
// error is [context.Cause] of ctx. A connection that moves from one node to another meanwhile may
// be missing, or be listed with its old one.
func (r *Router) UserConns(ctx context.Context, tenantID, userID string) (found UserConns, err error) {
	if userID == "" {
		return found, nil
	}
	if ctx.Err() != nil {
		return found, context.Cause(ctx)
	}
	own := askedClients(r.conns.OfUser(registry.User{TenantID: tenantID, UserID: userID}), nil)
	listing, err := r.asks.ListUser(ctx, tenantID, userID, own)
	found.Total, found.Silent = listing.Total, listing.Silent
	for _, c := range listing.Conns {
		found.Conns = append(found.Conns, UserConn(c))
	}
	slices.SortFunc(found.Conns, func(a, b UserConn) int {
		return cmp.Or(a.OpenedAt.Compare(b.OpenedAt), cmp.Compare(a.ConnID, b.ConnID))
	})
	return found, fromAskError(err)
}
