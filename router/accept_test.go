package router_test

import (
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
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

func TestAuthenticate_ErrorRejectsHandshakeWithStatus(t *testing.T) {
	for _, tt := range []struct {
		err        error
		status     int
		retryAfter string
		body       string
	}{
		{errors.Errorf(errors.Unauthenticated, "credentials are missing"), 401, "", `{"code":"UNAUTHENTICATED","message":"credentials are missing","retryable":false}`},
		{errors.Errorf(errors.PermissionDenied, "access is denied"), 403, "", `{"code":"PERMISSION_DENIED","message":"access is denied","retryable":false}`},
		{&errors.Error{Code: errors.ResourceExhausted, RetryAfter: 1500 * time.Millisecond}, 429, "2", `{"code":"RESOURCE_EXHAUSTED","retryable":true,"retryAfterMs":1500}`},
		{
			&router.LimitExceeded{Kind: router.LimitRate, Observed: 1, Limit: 5, RetryAfter: 2001 * time.Millisecond}, 429, "3",
			`{"code":"RESOURCE_EXHAUSTED","message":"rate limit exceeded","details":{"kind":"rate","observed":1,"limit":5},"retryable":true,"retryAfterMs":2001}`,
		},
		{
			&router.LimitExceeded{Kind: router.LimitRate, Observed: 1, Limit: 5, Reason: "blocked", RetryAfter: time.Second}, 429, "1",
			`{"code":"RESOURCE_EXHAUSTED","message":"rate limit exceeded","details":{"kind":"rate","observed":1,"limit":5,"reason":"blocked"},"retryable":true,"retryAfterMs":1000}`,
		},
		{&errors.Error{Code: errors.Unavailable, Message: "no database"}, 503, "1", `{"code":"UNAVAILABLE","message":"no database","retryable":true}`},
		{errors.New("secret"), 500, "", `{"code":"INTERNAL","message":"internal error","retryable":false}`},
	} {
		t.Run(http.StatusText(tt.status), func(t *testing.T) {
			r := router.New(discardLogs(router.Options{Authenticate: func(*http.Request) (router.Identity, error) {
				return router.Identity{}, tt.err
			}}))
			resp := routertest.Refused(t, r)
			body, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			assert.Equal(t, tt.status, resp.StatusCode)
			assert.Equal(t, tt.retryAfter, resp.Header.Get("Retry-After"))
			assert.JSONEq(t, tt.body, string(body))
		})
	}
}

func TestOrigins_AllowedAndRejected(t *testing.T) {
	for _, tt := range []struct {
		name    string
		origins []string
		host    string
		tls     bool // a trusted proxy reports TLS
		origin  string
		ok      bool
	}{
		{"no origin", nil, "example.com", false, "", true},
		{"same host", nil, "example.com", false, "http://example.com", true},
		{"same host, other spelling", nil, "Example.com", false, "http://EXAMPLE.com", true},
		{"same host and port", nil, "localhost:8080", false, "http://localhost:8080", true},
		{"other port", nil, "localhost:8080", false, "http://localhost:3000", false},
		{"other host", nil, "example.com", false, "http://example.org", false},
		{"host as prefix", nil, "example.com", false, "http://example.com.evil.org", false},
		{"https page, TLS", nil, "example.com", true, "https://example.com", true},
		{"http page, TLS", nil, "example.com", true, "http://example.com", false},
		{"https page, plain", nil, "example.com", false, "https://example.com", true},
		{"unsupported scheme", nil, "example.com", false, "file://example.com", false},
		{"with a path", nil, "example.com", false, "http://example.com/path", false},
		{"with a trailing slash", nil, "example.com", false, "http://example.com/", true},
		{"with a user", nil, "example.com", false, "http://user@example.com", false},
		{"null", nil, "example.com", false, "null", false},
		{"listed", []string{"https://app.example.org"}, "example.com", false, "https://app.example.org", true},
		{"listed with another scheme", []string{"https://app.example.org"}, "example.com", false, "http://app.example.org", false},
		{"listed with another port", []string{"https://app.example.org"}, "example.com", false, "https://app.example.org:8443", false},
		{"listed with the default port", []string{"https://app.example.org:443"}, "example.com", false, "https://app.example.org", true},
		{"the default port of another scheme", []string{"http://app.example.org:443"}, "example.com", false, "http://app.example.org", false},
		{"same host, with its default port", nil, "example.com:443", true, "https://example.com", true},
		{"subdomain", []string{"https://*.example.org"}, "example.com", false, "https://a.b.example.org", true},
		{"parent of the listed subdomains", []string{"https://*.example.org"}, "example.com", false, "https://example.org", false},
		{"suffix that is not a subdomain", []string{"https://*.example.org"}, "example.com", false, "https://evilexample.org", false},
		{"subdomain with another scheme", []string{"https://*.example.org"}, "example.com", false, "http://a.example.org", false},
		{"any origin", []string{"*"}, "example.com", true, "http://example.org", true},
		{"twice", nil, "example.com", false, "http://example.com|http://example.com", false},
		{"twice, any origin", []string{"*"}, "example.com", false, "http://example.com|http://example.org", false},
		{"twice, the first one empty", []string{"*"}, "example.com", false, "|http://example.org", false},
		{"twice, the second one empty", nil, "example.com", false, "http://example.com|", false},
		{"non-ASCII letter that folds to ASCII", nil, "k.example.com", false, "http://\u212a.example.com", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := router.New(&router.Options{
				Origins:        tt.origins,
				TrustedProxies: clientip.TrustedProxies{Networks: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}},
			})
			opts := []routertest.Option{func(req *http.Request) {
				req.Host = tt.host
				req.Header["Origin"] = strings.Split(tt.origin, "|")
				if tt.tls {
					req.Header.Set("X-Forwarded-Proto", "http, https") // set by two proxies
				}
			}}
			if tt.ok {
				routertest.Dial(t, r, opts...)
				return
			}
			assert.Equal(t, http.StatusForbidden, routertest.Refused(t, r, opts...).StatusCode)
		})
	}
}

func TestToken_ReadsQueryHeaderOrSubprotocol(t *testing.T) {
	for _, tt := range []struct{ name, query, authorization, protocols, want string }{
		{"none", "", "", "", ""},
		{"query", "?access_token=a%3Ab", "", "", "a:b"},
		{"header", "", "bearer a:b", "", "a:b"},
		{"another scheme", "", "Basic Og==", "bearer.abc", "abc"},
		{"no token", "", "Bearer", "", ""},
		{"subprotocol", "", "", "chat, bearer.abc", "abc"},
		{"subprotocol with percent-encoding", "", "", "bearer.a%2Fb+c%3D", "a/b+c="},
		{"subprotocol with a percent sign", "", "", "bearer.100%", "100%"},
		{"header before subprotocol", "", "Bearer h", "bearer.abc", "h"},
		{"query before both", "?access_token=q", "Bearer h", "bearer.abc", "q"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			req := httptest.NewRequest(http.MethodGet, "/ws"+tt.query, nil)
			req.Header.Set("Authorization", tt.authorization)
			req.Header.Set("Sec-WebSocket-Protocol", tt.protocols)
			assert.Equal(t, tt.want, router.Token(req))
		})
	}
}

func TestLimits_ConnectionsAreBounded(t *testing.T) {
	user := byUser
	ann, bob := routertest.Token("ann"), routertest.Token("bob")
	from := routertest.RemoteAddr
	for _, tt := range []struct {
		name   string
		limits router.Limits
		first  []routertest.Option
		second []routertest.Option // exceeds the limit
		other  []routertest.Option // is within the limit; nil if nothing is
	}{
		{"in total", router.Limits{Conns: 1}, nil, nil, nil},
		{
			"per address",
			router.Limits{ConnsPerIP: 1},
			[]routertest.Option{from("192.0.2.1:1")},
			[]routertest.Option{from("[::ffff:192.0.2.1]:2")},
			[]routertest.Option{from("192.0.2.2:1")},
		},
		{
			"per IPv6 network",
			router.Limits{ConnsPerIP: 1},
			[]routertest.Option{from("[2001:db8::1]:1")},
			[]routertest.Option{from("[2001:db8::2]:1")},
			[]routertest.Option{from("[2001:db8:0:1::1]:1")},
		},
		{
			"per address behind a proxy",
			router.Limits{ConnsPerIP: 1},
			[]routertest.Option{from("10.0.0.1:1"), routertest.Header("X-Forwarded-For", "192.0.2.1")},
			[]routertest.Option{from("10.0.0.2:1"), routertest.Header("X-Forwarded-For", "192.0.2.2, 192.0.2.1")}, // the first one is forged
			[]routertest.Option{from("10.0.0.1:1"), routertest.Header("X-Forwarded-For", "192.0.2.2")},
		},
		{"per user", router.Limits{ConnsPerUser: 1}, []routertest.Option{ann}, []routertest.Option{ann}, []routertest.Option{bob}},
	} {
		runSynctest(t, tt.name, func(t *testing.T) {
			var reported recorder[router.LimitExceeded]
			r := router.New(&router.Options{
				Authenticate: user, Limits: tt.limits, OnLimitExceeded: reported.add,
				TrustedProxies: clientip.TrustedProxies{Networks: proxyNetworks},
			})
			first := routertest.Dial(t, r, tt.first...)
			resp := routertest.Refused(t, r, tt.second...)
			assert.Equal(t, http.StatusTooManyRequests, resp.StatusCode)
			assert.Equal(t, "5", resp.Header.Get("Retry-After"))
			var body struct{ Details struct{ Kind string } }
			require.NoError(t, json.NewDecoder(resp.Body).Decode(&body))
			assert.Equal(t, "connections", body.Details.Kind)
			require.Len(t, reported.all(), 1)
			assert.Equal(t, router.LimitConnections, reported.all()[0].Kind)
			assert.Nil(t, reported.all()[0].Conn)
			if tt.other != nil {
				routertest.Dial(t, r, tt.other...)
			}
			first.Close()
			synctest.Wait()
			routertest.Dial(t, r, tt.second...)
		})
	}
}

func TestServeHTTP_RejectedRequestReleasesConnectionCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := router.New(&router.Options{
			Authenticate: func(req *http.Request) (router.Identity, error) {
				if router.Token(req) == "" {
					return router.Identity{}, errors.Errorf(errors.Unauthenticated, "credentials are missing")
				}
				return router.Identity{UserID: "ann"}, nil
			},
			Limits: router.Limits{Conns: 1, ConnsPerIP: 1, ConnsPerUser: 1},
		})
		for range 3 {
			routertest.Refused(t, r)
			resp := routertest.Refused(t, r, routertest.Token("x"), routertest.Header("Sec-WebSocket-Version", "8"))
			assert.Equal(t, http.StatusBadRequest, resp.StatusCode)
		}
		routertest.Dial(t, r, routertest.Token("x"))
	})
}

var proxyNetworks = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}

func TestOrigins_SchemeIsReadFromProxyHeader(t *testing.T) {
	for _, tt := range []struct {
		name   string
		header clientip.ForwardedHeader
		remote string
		fields http.Header
		ok     bool // a page that was loaded over plain HTTP is accepted
	}{
		{"nothing is forwarded", clientip.HeaderForwarded, "10.0.0.1:1", nil, true},
		{"TLS", clientip.HeaderForwarded, "10.0.0.1:1", http.Header{"Forwarded": {"for=192.0.2.1;proto=https"}}, false},
		{"TLS, quoted", clientip.HeaderForwarded, "10.0.0.1:1", http.Header{"Forwarded": {`proto="HTTPS", proto=http`}}, false},
		{"no TLS", clientip.HeaderForwarded, "10.0.0.1:1", http.Header{"Forwarded": {"proto=http"}}, true},
		{"X-Forwarded-Proto instead of Forwarded", clientip.HeaderForwarded, "10.0.0.1:1", http.Header{"X-Forwarded-Proto": {"https"}}, true},
		{"an untrusted peer", clientip.HeaderForwarded, "192.0.2.1:1", http.Header{"Forwarded": {"proto=https"}}, true},
		{"TLS, as X-Forwarded-Proto", clientip.HeaderXForwardedFor, "10.0.0.1:1", http.Header{"X-Forwarded-Proto": {"http", "https, http"}}, false},
		{"no TLS, as X-Forwarded-Proto", clientip.HeaderXForwardedFor, "10.0.0.1:1", http.Header{"X-Forwarded-Proto": {"http"}}, true},
		{"Forwarded instead of X-Forwarded-Proto", clientip.HeaderXForwardedFor, "10.0.0.1:1", http.Header{"Forwarded": {"proto=https"}}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := router.New(discardLogs(router.Options{TrustedProxies: clientip.TrustedProxies{Networks: proxyNetworks, Header: tt.header}}))
			opts := []routertest.Option{routertest.RemoteAddr(tt.remote), func(req *http.Request) {
				maps.Copy(req.Header, tt.fields)
				req.Header.Set("Origin", "http://"+req.Host)
			}}
			if tt.ok {
				routertest.Dial(t, r, opts...)
				return
			}
			assert.Equal(t, http.StatusForbidden, routertest.Refused(t, r, opts...).StatusCode)
		})
	}
}

func TestTrustedProxies_InvalidOptionsPanic(t *testing.T) {
	for name, tt := range map[string]struct {
		proxies clientip.TrustedProxies
		want    string
	}{
		"invalid network": {
			clientip.TrustedProxies{Networks: []netip.Prefix{proxyNetworks[0], {}}},
			"router: TrustedProxies.Networks[1] is not valid; use netip.MustParsePrefix, as in 10.0.0.0/8",
		},
		"mapped network": {
			clientip.TrustedProxies{Networks: []netip.Prefix{netip.MustParsePrefix("::ffff:10.0.0.0/104")}},
			"router: TrustedProxies.Networks[0] is ::ffff:10.0.0.0/104, which contains no address, because addresses are unmapped; write the IPv4 network",
		},
		"unknown header": {
			clientip.TrustedProxies{Header: 2},
			"router: TrustedProxies.Header is 2; it must be HeaderXForwardedFor or HeaderForwarded",
		},
	} {
		t.Run(name, func(t *testing.T) {
			assert.PanicsWithValue(t, tt.want, func() { router.New(&router.Options{TrustedProxies: tt.proxies}) })
		})
	}
}
