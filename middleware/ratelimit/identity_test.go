package ratelimit_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/middleware/ratelimit"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// newUpgradeNode returns a router with a limit, that answers RENDER. A token is a user and a plan,
// such as "ann pro".
func newUpgradeNode(admit router.IngressFunc, onOpen func(context.Context, *router.Conn) error) *router.Router {
	r := router.New(&router.Options{
		Authenticate: func(req *http.Request) (router.Identity, error) {
			user, plan, _ := strings.Cut(router.Token(req), " ")
			return router.Identity{UserID: user, Data: plan}, nil
		},
		OnOpen: onOpen,
	})
	router.RPC(r, func(*router.Context, Render) (Rendered, error) { return Rendered{}, nil }).UseIngress(admit)
	return r
}

// admitted returns how many of n calls are admitted.
func admitted(conn *routertest.Conn, n int) (yes int) {
	for range n {
		conn.Send(Render{})
		if conn.Next().Type == (Rendered{}).MessageType() {
			yes++
		}
	}
	return yes
}

func TestKeyPerUser_FollowsChangedIdentity(t *testing.T) {
	r := newUpgradeNode(ratelimit.New(memory.NewLimiter(limit.PerHour(3)), &ratelimit.Options{Key: ratelimit.KeyPerUser}), nil)
	conn := routertest.Dial(t, r)
	assert.Equal(t, 3, admitted(conn, 4), "the bucket of the connection")
	routertest.Refresh(conn, "ann")
	assert.Equal(t, 2, admitted(conn, 2), "the bucket of ann")
	for c := range r.Conns() {
		require.NoError(t, c.SetIdentity(router.Identity{UserID: "bob"}))
	}
	assert.Equal(t, 3, admitted(conn, 4), "the bucket of bob")
	assert.Equal(t, 1, admitted(routertest.Dial(t, r, routertest.Token("ann")), 4), "what is left of ann's")
}

// TestConnections_KeepPermitOfTheKeyAtOpen changes the identity of a connection: its permit belongs
// to the key at open until it is closed.
func TestConnections_KeepPermitOfTheKeyAtOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		free := func(context.Context, router.IngressContext) error { return nil }
		r := newUpgradeNode(free, ratelimit.Connections(memory.NewSemaphore(1), nil))
		conn := routertest.Dial(t, r, routertest.Token("ann"))
		synctest.Wait()
		for c := range r.Conns() {
			require.NoError(t, c.SetIdentity(router.Identity{UserID: "bob"}))
		}
		assert.Equal(t, tooManyConnections, routertest.Dial(t, r, routertest.Token("ann")).Closed())
		bob := routertest.Dial(t, r, routertest.Token("bob"))
		routertest.Call[Rendered](bob, Render{})
		conn.Close()
		synctest.Wait()
		routertest.Call[Rendered](routertest.Dial(t, r, routertest.Token("ann")), Render{})
		assert.Equal(t, errors.PermissionDenied, routertest.RefreshError(bob, "ann").Code)
	})
}
