package router_test

import (
	"context"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// userToken authenticates "ann" as the user ann of the tenant acme, "" as an anonymous client, and
// "ann 30s" as ann for 30 seconds. "guest" is anonymous, too, and "mallory" is rejected.
func userToken(req *http.Request) (router.Identity, error) {
	user, valid, expires := strings.Cut(router.Token(req), " ")
	id := router.Identity{TenantID: "acme", UserID: user}
	switch user {
	case "", "guest":
		id = router.Identity{}
	case "mallory":
		return id, &errors.Error{Code: errors.Unauthenticated, Message: "invalid token", Err: errors.New("bad signature")}
	}
	if expires {
		d, err := time.ParseDuration(valid)
		if err != nil {
			return router.Identity{}, err
		}
		id.ExpiresAt = time.Now().Add(d)
	}
	return id, nil
}

// Login changes the user of the connection.
type Login struct {
	User string `json:"user"`
}

func (Login) MessageType() string { return "LOGIN" }

// WhoAmI is answered with the current identity and that of ingress.
type WhoAmI struct{}

func (WhoAmI) MessageType() string { return "WHO_AM_I" }

type YouAre struct {
	User    string `json:"user"`
	Ingress string `json:"ingress"`
}

func (YouAre) MessageType() string { return "YOU_ARE" }

// newLoginRouter returns a router with userToken, LOGIN and WHO_AM_I.
func newLoginRouter(opts router.Options) *router.Router {
	opts.Authenticate = userToken
	r := router.New(discardLogs(opts))
	router.RPC(r, func(ctx *router.Context, m Login) (YouAre, error) {
		return YouAre{User: m.User}, ctx.Conn().SetIdentity(router.Identity{TenantID: "acme", UserID: m.User})
	})
	router.RPC(r, func(ctx *router.Context, _ WhoAmI) (YouAre, error) {
		return YouAre{ctx.Identity().UserID, ctx.Ingress().Identity.UserID}, nil
	})
	return r
}

func TestSetIdentity_AfterCloseIsUnavailable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newLoginRouter(router.Options{})
		conn := routertest.Dial(t, r, routertest.Token("ann"))
		synctest.Wait()
		c := collect(r)[0]
		change := func() errors.Code { return errors.CodeOf(c.SetIdentity(router.Identity{UserID: "bob"})) }
		conn.Freeze()
		c.Close(router.StatusNormal, "")
		assert.Equal(t, errors.Unavailable, change(), "the connection is closing")
		time.Sleep(time.Minute)
		require.Error(t, c.Context().Err())
		assert.Equal(t, errors.Unavailable, change(), "the connection is closed")
		assert.Equal(t, "ann", c.Identity().UserID)
	})
}

// TestSetIdentity_IsKeptByMessagesPastIngress changes the identity while a call runs and while
// another one waits behind an event.
func TestSetIdentity_IsKeptByMessagesPastIngress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newLoginRouter(router.Options{})
		router.On(r, func(*router.Context, Say) error { time.Sleep(time.Second); return nil })
		conn := routertest.Dial(t, r, routertest.Token("ann"))
		conn.Send(Say{"go", "wait"})
		conn.Send(WhoAmI{})
		synctest.Wait()
		require.NoError(t, collect(r)[0].SetIdentity(router.Identity{UserID: "bob"}))
		conn.Send(WhoAmI{})
		answers := []YouAre{routertest.Receive[YouAre](conn), routertest.Receive[YouAre](conn)} // calls run concurrently
		assert.ElementsMatch(t, []YouAre{{User: "bob", Ingress: "ann"}, {User: "bob", Ingress: "bob"}}, answers)
	})
}

// TestSetIdentity_ConcurrentWithClose changes the identities of connections that are closed by
// their clients and the server meanwhile. With one connection per user, a slot that is not released
// rejects the next connection, and one that is released twice accepts a second connection.
func TestSetIdentity_ConcurrentWithClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		users := []string{"ann", "bob", "eve"}
		r := newLoginRouter(router.Options{Limits: router.Limits{ConnsPerUser: 1}})
		for range 300 {
			conn := routertest.Dial(t, r)
			synctest.Wait()
			c := collect(r)[0]
			for range 2 {
				go func() {
					for range 20 {
						_ = c.SetIdentity(router.Identity{TenantID: "acme", UserID: users[rand.N(len(users))], ExpiresAt: time.Now().Add(time.Hour)})
					}
				}()
			}
			go func() { _ = c.Subscribe("go", router.Present("")) }()
			if rand.N(2) == 0 {
				go conn.Abort()
			} else {
				go c.Close(router.StatusNormal, "")
			}
			synctest.Wait()
			require.Error(t, c.Context().Err())
			require.False(t, router.StopExpiryTimer(c), "the timer of the last identity is stopped")
			require.Empty(t, r.Presence("go"))
		}
		for _, user := range users {
			n, err := r.SendToUser("acme", user, Say{"go", "hi"})
			require.NoError(t, err)
			assert.Zero(t, n)
			routertest.Call[YouAre](routertest.Dial(t, r, routertest.Token(user)), WhoAmI{})
			assert.Equal(t, http.StatusTooManyRequests, routertest.Refused(t, r, routertest.Token(user)).StatusCode)
		}
	})
}

// TestSetIdentity_WhileConnectionEnds removes the connection from the registry after SetIdentity has
// seen that it is open.
func TestSetIdentity_WhileConnectionEnds(t *testing.T) {
	r := newLoginRouter(router.Options{Limits: router.Limits{ConnsPerUser: 1}})
	conn := routertest.Dial(t, r, routertest.Token("ann"))
	routertest.Call[YouAre](conn, WhoAmI{})
	c := collect(r)[0]
	err := router.SetIdentityAfter(c, router.Identity{TenantID: "acme", UserID: "bob"}, func() {
		conn.Abort()
		for len(collect(r)) > 0 {
			time.Sleep(time.Millisecond)
		}
	})
	assert.Equal(t, errors.Unavailable, errors.CodeOf(err))
	assert.Equal(t, "ann", c.Identity().UserID)
	routertest.Dial(t, r, routertest.Token("bob"))
}

// TestSetIdentity_InOnOpen logs a connection in before its first message.
func TestSetIdentity_InOnOpen(t *testing.T) {
	r := newLoginRouter(router.Options{OnOpen: func(_ context.Context, c *router.Conn) error {
		return c.SetIdentity(router.Identity{TenantID: "acme", UserID: "bob"})
	}})
	conn := routertest.Dial(t, r, routertest.Token("ann 1h"))
	assert.Equal(t, YouAre{"bob", "bob"}, routertest.Call[YouAre](conn, WhoAmI{}))
	assert.False(t, router.StopExpiryTimer(collect(r)[0]))
}
