package ratelimit_test

import (
	"context"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/middleware/ratelimit"
	"github.com/penstock-go/penstock/router"
)

func attempt(h http.Handler, addr string, header http.Header) *http.Response {
	req := httptest.NewRequest(http.MethodGet, "/ws", nil)
	req.RemoteAddr = addr
	maps.Copy(req.Header, header)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, req)
	return w.Result()
}

var ok = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "in") })

func TestHandshake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := ratelimit.Handshake(memory.NewLimiter(ratelimit.PerMinute(40).Burst(2)), nil)(ok)
		first := attempt(h, "192.0.2.1:1", nil)
		assert.Equal(t, 200, first.StatusCode)
		assert.Equal(t, `"handshake";q=2`, first.Header.Get("RateLimit-Policy"))
		assert.Equal(t, `"handshake";r=1;t=2`, first.Header.Get("RateLimit"))
		assert.Equal(t, 200, attempt(h, "192.0.2.1:2", nil).StatusCode)
		refused := attempt(h, "192.0.2.1:3", nil)
		assert.Equal(t, 429, refused.StatusCode)
		assert.Equal(t, "2", refused.Header.Get("Retry-After"), "1.5 seconds, rounded up")
		assert.Equal(t, `"handshake";r=0;t=3`, refused.Header.Get("RateLimit"))
		assert.Equal(t, 200, attempt(h, "192.0.2.2:3", nil).StatusCode, "another address")
		assert.Equal(t, 429, attempt(h, "192.0.2.1:3", http.Header{"X-Forwarded-For": {"192.0.2.9"}}).StatusCode, "which anybody can claim")
		time.Sleep(2 * time.Second)
		assert.Equal(t, 200, attempt(h, "192.0.2.1:3", nil).StatusCode)
	})
}

func TestHandshakeOptions(t *testing.T) {
	h := ratelimit.Handshake(memory.NewLimiter(ratelimit.PerHour(1)), &ratelimit.HandshakeOptions{
		Options:        ratelimit.Options{Name: "connect", Key: ratelimit.KeyPerUserOrIPPerType},
		Identify:       func(req *http.Request) router.Identity { return router.Identity{UserID: router.Token(req)} },
		TrustedProxies: router.TrustedProxies{Networks: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}},
	})(ok)
	ann, bob := http.Header{"X-Forwarded-For": {"192.0.2.1"}}, http.Header{"X-Forwarded-For": {"192.0.2.2"}}
	assert.Equal(t, 200, attempt(h, "10.0.0.1:1", ann).StatusCode)
	assert.Equal(t, 429, attempt(h, "10.0.0.2:1", ann).StatusCode)
	assert.Equal(t, 200, attempt(h, "10.0.0.1:1", bob).StatusCode)
	ann["Sec-Websocket-Protocol"] = []string{"bearer.ann"}
	refused := attempt(h, "10.0.0.1:1", ann)
	assert.Equal(t, 200, refused.StatusCode, "a user of her own")
	assert.Equal(t, `"connect";r=0;t=3600`, refused.Header.Get("RateLimit"))
	assert.Equal(t, 200, attempt(h, "@", nil).StatusCode, "a socket without an address")
	assert.Equal(t, 429, attempt(h, "@", nil).StatusCode)
	assert.Panics(t, func() {
		ratelimit.Handshake(memory.NewLimiter(ratelimit.PerHour(1)), &ratelimit.HandshakeOptions{Options: ratelimit.Options{Name: `"`}})
	})
	assert.Panics(t, func() { ratelimit.Handshake(nil, nil) })
}

func TestHandshake_BehindAUnixSocketEachClientHasABucket(t *testing.T) {
	proxies := router.TrustedProxies{UnixSocket: true, Header: router.HeaderForwarded}
	h := ratelimit.Handshake(memory.NewLimiter(ratelimit.PerHour(1)), &ratelimit.HandshakeOptions{TrustedProxies: proxies})(ok)
	overUnixSocket := http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		local := &net.UnixAddr{Name: "/run/ws.sock", Net: "unix"}
		h.ServeHTTP(w, req.WithContext(context.WithValue(req.Context(), http.LocalAddrContextKey, local)))
	})
	ann, bob := http.Header{"Forwarded": {"for=192.0.2.1"}}, http.Header{"Forwarded": {`for=192.0.2.1, for="192.0.2.2:80"`}}
	assert.Equal(t, 200, attempt(overUnixSocket, "@", ann).StatusCode)
	assert.Equal(t, 429, attempt(overUnixSocket, "@", ann).StatusCode)
	assert.Equal(t, 200, attempt(overUnixSocket, "@", bob).StatusCode)
	assert.PanicsWithValue(t, "ratelimit: TrustedProxies.Header is 9; it must be HeaderXForwardedFor or HeaderForwarded", func() {
		ratelimit.Handshake(memory.NewLimiter(ratelimit.PerHour(1)), &ratelimit.HandshakeOptions{TrustedProxies: router.TrustedProxies{Header: 9}})
	})
}

func TestHandshakeWithoutALimiter(t *testing.T) {
	down := limiterFunc(func(context.Context, ratelimit.Key, int64) (ratelimit.Decision, error) {
		return ratelimit.Decision{}, io.ErrUnexpectedEOF
	})
	resp := attempt(ratelimit.Handshake(down, nil)(ok), "192.0.2.1:1", nil)
	assert.Equal(t, 503, resp.StatusCode)
	assert.Empty(t, resp.Header.Get("RateLimit"))
	admit := &ratelimit.HandshakeOptions{Options: ratelimit.Options{OnUnavailable: ratelimit.Admit}}
	assert.Equal(t, 200, attempt(ratelimit.Handshake(down, admit)(ok), "192.0.2.1:1", nil).StatusCode)
	costly := &ratelimit.HandshakeOptions{Options: ratelimit.Options{Cost: func(router.IngressContext) int64 { return 5 }}}
	resp = attempt(ratelimit.Handshake(memory.NewLimiter(ratelimit.PerHour(1)), costly)(ok), "192.0.2.1:1", nil)
	assert.Equal(t, 429, resp.StatusCode)
	assert.Empty(t, resp.Header.Get("Retry-After"), "no wait can help")
}

func TestDryRun(t *testing.T) {
	var refused []*router.LimitExceeded
	admit := ratelimit.New(memory.NewLimiter(ratelimit.PerHour(1)), &ratelimit.Options{
		OnDryRun: func(in router.IngressContext, l *router.LimitExceeded) {
			assert.Equal(t, "ann", in.Identity.UserID)
			refused = append(refused, l)
		},
	})
	for range 3 {
		assert.NoError(t, admit(t.Context(), from("ann")))
	}
	assert.Len(t, refused, 2)
	assert.EqualValues(t, 1, refused[0].Limit)
	down := ratelimit.New(limiterFunc(func(context.Context, ratelimit.Key, int64) (ratelimit.Decision, error) {
		return ratelimit.Decision{}, io.ErrUnexpectedEOF
	}), &ratelimit.Options{OnDryRun: func(router.IngressContext, *router.LimitExceeded) { t.Error("nothing was decided") }})
	assert.NoError(t, down(t.Context(), from("ann")), "a dry run refuses nobody")
}

func TestChargeOnly(t *testing.T) {
	limiter := memory.NewLimiter(ratelimit.PerHour(2))
	admit := ratelimit.New(limiter, &ratelimit.Options{
		Key:        ratelimit.KeyPerUser,
		ChargeOnly: func(in router.IngressContext) bool { return in.Type == "LEAVE" },
	})
	leave := from("ann")
	leave.Type = "LEAVE"
	for range 5 {
		assert.NoError(t, admit(t.Context(), leave))
	}
	assert.Error(t, admit(t.Context(), from("ann")), "leaving has cost what there was")
}

// TestRefundFromAHandler computes the key again from what ingress saw.
func TestRefundFromAHandler(t *testing.T) {
	limiter := memory.NewLimiter(ratelimit.PerHour(1))
	in := from("ann")
	admit := ratelimit.New(limiter, nil)
	assert.NoError(t, admit(t.Context(), in))
	assert.Error(t, admit(t.Context(), in))
	assert.NoError(t, limiter.Refund(t.Context(), ratelimit.KeyPerUserOrIPPerType(in), 1))
	assert.NoError(t, admit(t.Context(), in))
}
