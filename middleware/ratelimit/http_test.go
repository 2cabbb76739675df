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
	"github.com/penstock-go/penstock/clientip"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/observe"
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

func TestHTTP_RejectsAttemptsOverLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := ratelimit.HTTP(memory.NewLimiter(limit.PerMinute(40).Burst(2)), nil)(ok)
		first := attempt(h, "192.0.2.1:1", nil)
		assert.Equal(t, 200, first.StatusCode)
		assert.Equal(t, `"http";q=2;w=3`, first.Header.Get("RateLimit-Policy"))
		assert.Equal(t, `"http";r=1;t=2`, first.Header.Get("RateLimit"))
		assert.Equal(t, 200, attempt(h, "192.0.2.1:2", nil).StatusCode)
		rejected := attempt(h, "192.0.2.1:3", nil)
		assert.Equal(t, 429, rejected.StatusCode)
		assert.Equal(t, "2", rejected.Header.Get("Retry-After"), "1.5 seconds, rounded up")
		assert.Equal(t, `"http";r=0;t=2`, rejected.Header.Get("RateLimit"), "the same time as Retry-After")
		body, err := io.ReadAll(rejected.Body)
		assert.NoError(t, err)
		assert.Equal(t, "too many requests\n", string(body))
		assert.Equal(t, 200, attempt(h, "192.0.2.2:3", nil).StatusCode, "another address")
		assert.Equal(t, 429, attempt(h, "192.0.2.1:3", http.Header{"X-Forwarded-For": {"192.0.2.9"}}).StatusCode, "clients can forge the header")
		time.Sleep(2 * time.Second)
		assert.Equal(t, 200, attempt(h, "192.0.2.1:3", nil).StatusCode)
	})
}

func TestHTTP_UsesIdentityAndTrustedProxies(t *testing.T) {
	h := ratelimit.HTTP(memory.NewLimiter(limit.PerHour(1)), &ratelimit.HTTPOptions{
		Options:        ratelimit.Options{Name: "connect", Key: ratelimit.KeyPerUserOrIPPerType},
		Identify:       func(req *http.Request) router.Identity { return router.Identity{UserID: router.Token(req)} },
		TrustedProxies: clientip.TrustedProxies{Networks: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}},
	})(ok)
	ann, bob := http.Header{"X-Forwarded-For": {"192.0.2.1"}}, http.Header{"X-Forwarded-For": {"192.0.2.2"}}
	assert.Equal(t, 200, attempt(h, "10.0.0.1:1", ann).StatusCode)
	assert.Equal(t, 429, attempt(h, "10.0.0.2:1", ann).StatusCode)
	assert.Equal(t, 200, attempt(h, "10.0.0.1:1", bob).StatusCode)
	ann["Sec-Websocket-Protocol"] = []string{"bearer.ann"}
	rejected := attempt(h, "10.0.0.1:1", ann)
	assert.Equal(t, 200, rejected.StatusCode, "authenticated users have their own bucket")
	assert.Equal(t, `"connect";r=0;t=3600`, rejected.Header.Get("RateLimit"))
	assert.Equal(t, 200, attempt(h, "@", nil).StatusCode, "a Unix socket has no address")
	assert.Equal(t, 429, attempt(h, "@", nil).StatusCode)
	assert.Panics(t, func() {
		ratelimit.HTTP(memory.NewLimiter(limit.PerHour(1)), &ratelimit.HTTPOptions{Options: ratelimit.Options{Name: `"`}})
	})
	assert.Panics(t, func() { ratelimit.HTTP(nil, nil) })
}

func TestHTTP_ClientsBehindUnixSocketHaveSeparateBuckets(t *testing.T) {
	proxies := clientip.TrustedProxies{UnixSocket: true, Header: clientip.HeaderForwarded}
	h := ratelimit.HTTP(memory.NewLimiter(limit.PerHour(1)), &ratelimit.HTTPOptions{TrustedProxies: proxies})(ok)
	overUnixSocket := http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		local := &net.UnixAddr{Name: "/run/ws.sock", Net: "unix"}
		h.ServeHTTP(w, req.WithContext(context.WithValue(req.Context(), http.LocalAddrContextKey, local)))
	})
	ann, bob := http.Header{"Forwarded": {"for=192.0.2.1"}}, http.Header{"Forwarded": {`for=192.0.2.1, for="192.0.2.2:80"`}}
	assert.Equal(t, 200, attempt(overUnixSocket, "@", ann).StatusCode)
	assert.Equal(t, 429, attempt(overUnixSocket, "@", ann).StatusCode)
	assert.Equal(t, 200, attempt(overUnixSocket, "@", bob).StatusCode)
	assert.PanicsWithValue(t, "ratelimit: TrustedProxies.Header is 9; it must be HeaderXForwardedFor or HeaderForwarded", func() {
		ratelimit.HTTP(memory.NewLimiter(limit.PerHour(1)), &ratelimit.HTTPOptions{TrustedProxies: clientip.TrustedProxies{Header: 9}})
	})
}

func TestHTTP_AppliesFailurePolicy(t *testing.T) {
	down := limiterFunc(func(context.Context, limit.Key, int64) (limit.Decision, error) {
		return limit.Decision{}, io.ErrUnexpectedEOF
	})
	resp := attempt(ratelimit.HTTP(down, nil)(ok), "192.0.2.1:1", nil)
	assert.Equal(t, 503, resp.StatusCode)
	assert.Empty(t, resp.Header.Get("RateLimit"))
	failOpen := &ratelimit.HTTPOptions{Options: ratelimit.Options{FailurePolicy: limit.FailOpen}}
	assert.Equal(t, 200, attempt(ratelimit.HTTP(down, failOpen)(ok), "192.0.2.1:1", nil).StatusCode)
	costly := &ratelimit.HTTPOptions{Options: ratelimit.Options{Cost: func(router.IngressContext) int64 { return 5 }}}
	resp = attempt(ratelimit.HTTP(memory.NewLimiter(limit.PerHour(1)), costly)(ok), "192.0.2.1:1", nil)
	assert.Equal(t, 429, resp.StatusCode)
	assert.Empty(t, resp.Header.Get("Retry-After"), "the cost is never allowed")
	body, err := io.ReadAll(resp.Body)
	assert.NoError(t, err)
	assert.Equal(t, "the request costs more than the limit can ever allow\n", string(body))
	assert.Equal(t, `"http";r=1;t=0`, resp.Header.Get("RateLimit"))
}

func TestNew_DryRunReportsAndAdmits(t *testing.T) {
	var rejected []*router.LimitExceeded
	admit := ratelimit.New(memory.NewLimiter(limit.PerHour(1)), &ratelimit.Options{
		DryRun: true,
		OnDryRun: func(in router.IngressContext, l *router.LimitExceeded) {
			assert.Equal(t, "ann", in.Identity.UserID)
			rejected = append(rejected, l)
		},
	})
	for range 3 {
		assert.NoError(t, admit(t.Context(), from("ann")))
	}
	assert.Len(t, rejected, 2)
	assert.EqualValues(t, 1, rejected[0].Limit)
	down := ratelimit.New(limiterFunc(func(context.Context, limit.Key, int64) (limit.Decision, error) {
		return limit.Decision{}, io.ErrUnexpectedEOF
	}), &ratelimit.Options{DryRun: true, OnDryRun: func(router.IngressContext, *router.LimitExceeded) { t.Error("the limiter decided nothing") }})
	assert.NoError(t, down(t.Context(), from("ann")), "a dry run rejects no message")
}

func TestNew_ChargeOnlyAdmitsAndCharges(t *testing.T) {
	limiter := memory.NewLimiter(limit.PerHour(2))
	admit := ratelimit.New(limiter, &ratelimit.Options{
		Key:        ratelimit.KeyPerUser,
		ChargeOnly: func(in router.IngressContext) bool { return in.Type == "LEAVE" },
	})
	leave := from("ann")
	leave.Type = "LEAVE"
	for range 5 {
		assert.NoError(t, admit(t.Context(), leave))
	}
	assert.Error(t, admit(t.Context(), from("ann")), "the LEAVE messages have emptied the bucket")
}

func TestNew_ChargeOnlyAdmitsWhileTheLimiterIsUnavailable(t *testing.T) {
	var outcomes []observe.Outcome
	admit := ratelimit.New(limiterFunc(func(context.Context, limit.Key, int64) (limit.Decision, error) {
		return limit.Decision{}, io.ErrUnexpectedEOF
	}), &ratelimit.Options{
		ChargeOnly: func(in router.IngressContext) bool { return in.Type == "LEAVE" },
		Observe:    func(o observe.Observation) { outcomes = append(outcomes, o.Outcome) },
	})
	leave := from("ann")
	leave.Type = "LEAVE"
	assert.NoError(t, admit(t.Context(), leave))
	assert.Equal(t, errors.Unavailable, errors.CodeOf(admit(t.Context(), from("ann"))))
	assert.Equal(t, []observe.Outcome{observe.FailedOpen, observe.Failed}, outcomes)
}

// TestKeyFunctions_KeyOfIngressContextRefunds computes the key as a handler does for a refund.
func TestKeyFunctions_KeyOfIngressContextRefunds(t *testing.T) {
	limiter := memory.NewLimiter(limit.PerHour(1))
	in := from("ann")
	admit := ratelimit.New(limiter, nil)
	assert.NoError(t, admit(t.Context(), in))
	assert.Error(t, admit(t.Context(), in))
	assert.NoError(t, limit.Refund(t.Context(), limiter, ratelimit.KeyPerUserOrIPPerType(in), 1))
	assert.NoError(t, admit(t.Context(), in))
}
