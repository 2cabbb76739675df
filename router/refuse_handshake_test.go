package router_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/observe"
	"github.com/penstock-go/penstock/router/routertest"
)

// TestServeHTTP_RefusalReasons checks the Reason of Refused for every check of a
// request.
func TestServeHTTP_RefusalReasons(t *testing.T) {
	failing := func(err error) func(*http.Request) (router.Identity, error) {
		return func(*http.Request) (router.Identity, error) { return router.Identity{}, err }
	}
	user := func(*http.Request) (router.Identity, error) { return router.Identity{UserID: "ann"}, nil }
	dial := func(t *testing.T, r *router.Router) { routertest.Dial(t, r) }
	shutdown := func(t *testing.T, r *router.Router) { require.NoError(t, r.Shutdown(t.Context())) }
	for _, tt := range []struct {
		name   string
		opts   router.Options
		before func(*testing.T, *router.Router)
		origin string
		body   string
		reason string
		code   errors.Code
		limit  router.LimitKind
	}{
		{name: "origin", origin: "https://other.example", reason: "origin", code: errors.PermissionDenied},
		{name: "body", body: "{}", reason: "handshake", code: errors.InvalidArgument},
		{name: "no upgrade", reason: "handshake", code: errors.InvalidArgument},
		{name: "shutdown", before: shutdown, reason: "draining", code: errors.Unavailable},
		{name: "connections", opts: router.Options{Limits: router.Limits{Conns: 1}}, before: dial, reason: "limit", code: errors.ResourceExhausted, limit: router.LimitConnections},
		{name: "connections of a user", opts: router.Options{Authenticate: user, Limits: router.Limits{ConnsPerUser: 1}}, before: dial, reason: "limit", code: errors.ResourceExhausted, limit: router.LimitConnections},
		{name: "authentication", opts: router.Options{Authenticate: failing(errors.Errorf(errors.Unauthenticated, "no token"))}, reason: "authentication", code: errors.Unauthenticated},
		{name: "limit of Authenticate", opts: router.Options{Authenticate: failing(&router.LimitExceeded{Kind: router.LimitRate})}, reason: "limit", code: errors.ResourceExhausted, limit: router.LimitRate},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var refusals []observe.Event
			r := router.New(&tt.opts)
			r.Observe(func(e observe.Event) {
				if e.Kind == observe.Refused {
					refusals = append(refusals, e)
				}
			})
			if tt.before != nil {
				tt.before(t, r)
			}
			req := httptest.NewRequest(http.MethodGet, "/", strings.NewReader(tt.body))
			if tt.origin != "" {
				req.Header.Set("Origin", tt.origin)
			}
			r.ServeHTTP(httptest.NewRecorder(), req)
			assert.Equal(t, []observe.Event{{Kind: observe.Refused, Reason: tt.reason, Code: tt.code, Limit: string(tt.limit)}}, refusals)
		})
	}
}
