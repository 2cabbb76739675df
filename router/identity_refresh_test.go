package router_test

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/clientip"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// TestRefresh_FailureLeavesIdentityUnchanged sends tokens that must not be accepted.
func TestRefresh_FailureLeavesIdentityUnchanged(t *testing.T) {
	for name, tt := range map[string]struct {
		token string
		want  errors.Code
	}{
		"of another user":       {"bob 1h", errors.PermissionDenied},
		"of an anonymous user":  {"guest 1h", errors.PermissionDenied},
		"of a rejected user":    {"mallory", errors.Unauthenticated},
		"expired":               {"ann -1s", errors.Unauthenticated},
		"empty":                 {"", errors.InvalidArgument},
		"error without a code":  {"ann soon", errors.Internal},
		"panic":                 {"ann panic", errors.Internal},
		"limit":                 {"ann limit", errors.ResourceExhausted},
		"nil limit":             {"ann nil", errors.Internal},
		"Authenticate is stuck": {"ann stuck", errors.DeadlineExceeded},
	} {
		runSynctest(t, name, func(t *testing.T) {
			start := time.Now()
			var reported recorder[string]
			opts := router.Options{
				Timeouts: router.Timeouts{Call: 5 * time.Second},
				Limits:   router.Limits{ConnsPerUser: 1},
				OnError:  func(e router.ErrorReport) { reported.add(e.Type) },
			}
			opts.Authenticate = func(req *http.Request) (router.Identity, error) {
				switch _, does, _ := strings.Cut(router.Token(req), " "); does {
				case "panic":
					panic("in Authenticate")
				case "limit":
					return router.Identity{}, &router.LimitExceeded{Kind: router.LimitRate, RetryAfter: time.Second}
				case "nil":
					return router.Identity{}, (*router.LimitExceeded)(nil)
				case "stuck":
					<-req.Context().Done()
					return router.Identity{TenantID: "acme", UserID: "ann"}, nil // too late
				}
				return userToken(req)
			}
			r := router.New(discardLogs(opts))
			router.RPC(r, func(ctx *router.Context, _ WhoAmI) (YouAre, error) {
				return YouAre{ctx.Identity().UserID, ctx.Ingress().Identity.UserID}, nil
			})
			conn := routertest.Dial(t, r, routertest.Token("ann 1m"))
			assert.Equal(t, tt.want, routertest.RefreshError(conn, tt.token).Code)
			assert.Equal(t, YouAre{"ann", "ann"}, routertest.Call[YouAre](conn, WhoAmI{}))
			for user, want := range map[string]int{"ann": 1, "bob": 0} {
				n, err := r.SendToUser("acme", user, Say{"go", "hi"})
				require.NoError(t, err)
				assert.Equal(t, want, n)
			}
			conn.Next()
			if tt.want == errors.Internal {
				assert.Equal(t, []string{"$ws:auth"}, reported.all())
			} else {
				assert.Empty(t, reported.all())
			}
			time.Sleep(time.Minute - time.Second - time.Since(start))
			assert.Equal(t, identityExpired, conn.Closed())
			assert.Equal(t, time.Minute, time.Since(start))
		})
	}
}

func TestRefresh_WithoutAuthenticateIsUnimplemented(t *testing.T) {
	conn := routertest.Dial(t, router.New(nil))
	assert.Equal(t, errors.Unimplemented, routertest.RefreshError(conn, "ann").Code)
}

// TestRefresh_RequestHasAddressAndToken checks all that Authenticate receives.
func TestRefresh_RequestHasAddressAndToken(t *testing.T) {
	type key struct{}
	var requests recorder[*http.Request]
	var proxies clientip.TrustedProxies
	r := router.New(&router.Options{Authenticate: func(req *http.Request) (router.Identity, error) {
		requests.add(req)
		return router.Identity{UserID: "ann"}, req.ParseForm()
	}})
	r.Use(func(next router.Handler) router.Handler {
		return func(ctx *router.Context) error { ctx.SetValue(key{}, "middleware"); return next(ctx) }
	})
	const token = "a b&c=d/ü+"
	conn := routertest.Dial(t, r, routertest.RemoteAddr("[2001:db8::7]:4711"))
	routertest.Refresh(conn, token)
	req := requests.all()[1]
	assert.Equal(t, token, router.Token(req))
	assert.Equal(t, "2001:db8::7", proxies.ClientIP(req).String())
	assert.Equal(t, http.MethodGet, req.Method)
	assert.Equal(t, "/", req.URL.Path)
	assert.Empty(t, req.Header)
	assert.Nil(t, req.Context().Value(key{}), "middleware does not run")
	_, hasDeadline := req.Context().Deadline()
	assert.True(t, hasDeadline)
	assert.ErrorIs(t, req.Context().Err(), context.Canceled, "the call has been answered")
}

func TestRefresh_IsChargedAndSkipsMiddleware(t *testing.T) {
	var charged recorder[string]
	var free atomic.Bool
	r := newLoginRouter(router.Options{})
	r.UseIngress(func(_ context.Context, in router.IngressContext) error {
		charged.add(in.Type + " " + in.Identity.UserID)
		if free.Load() {
			return nil
		}
		return &router.LimitExceeded{Kind: router.LimitRate, Observed: 1, Limit: 1, RetryAfter: time.Second}
	})
	r.Use(func(router.Handler) router.Handler {
		return func(*router.Context) error { return errors.Errorf(errors.Unauthenticated, "log in first") }
	})
	conn := routertest.Dial(t, r)
	assert.Equal(t, errors.ResourceExhausted, routertest.RefreshError(conn, "ann").Code)
	free.Store(true)
	routertest.Refresh(conn, "ann")
	assert.Equal(t, errors.Unauthenticated, routertest.CallError(conn, WhoAmI{}).Code)
	assert.Equal(t, []string{"$ws:auth ", "$ws:auth ", "WHO_AM_I ann"}, charged.all())
}

// TestRefresh_RunsOneAtATime sends several refreshes at once, and a message that must see the last.
func TestRefresh_RunsOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running atomic.Int32
		opts := router.Options{Authenticate: func(req *http.Request) (router.Identity, error) {
			assert.EqualValues(t, 1, running.Add(1))
			defer running.Add(-1)
			time.Sleep(time.Second)
			return router.Identity{Data: router.Token(req)}, nil
		}}
		r := router.New(&opts)
		router.RPC(r, func(ctx *router.Context, _ WhoAmI) (YouAre, error) {
			return YouAre{User: ctx.Identity().Data.(string)}, nil
		})
		conn := routertest.Dial(t, r)
		for _, token := range []string{"1", "2", "3"} {
			conn.SendText(`{"type":"$ws:auth","payload":{"token":"` + token + `"}}`)
		}
		conn.Send(WhoAmI{})
		for range 3 {
			assert.Equal(t, "$ws:authenticated", conn.Next().Type)
		}
		assert.Equal(t, YouAre{User: "3"}, routertest.Receive[YouAre](conn))
	})
}

// TestRefresh_DuringExpiryDoesNotTakeEffect lets the identity expire while Authenticate runs.
func TestRefresh_DuringExpiryDoesNotTakeEffect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var late recorder[error]
		connected := false
		r := router.New(discardLogs(router.Options{Authenticate: func(req *http.Request) (router.Identity, error) {
			if connected {
				time.Sleep(2 * time.Second)
				late.add(req.Context().Err())
			}
			connected = true
			return userToken(req)
		}}))
		conn := routertest.Dial(t, r, routertest.Token("ann 1s"))
		synctest.Wait()
		c := collect(r)[0]
		expiresAt := c.Identity().ExpiresAt
		conn.SendText(`{"type":"$ws:auth","payload":{"token":"ann 1h"}}`)
		assert.Equal(t, identityExpired, conn.Closed())
		time.Sleep(time.Minute)
		assert.Equal(t, []error{context.Canceled}, late.all())
		assert.Equal(t, expiresAt, c.Identity().ExpiresAt, "unchanged")
		assert.False(t, router.StopExpiryTimer(c))
		assert.Zero(t, conn.Pending())
	})
}
