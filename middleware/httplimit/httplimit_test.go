package httplimit_test

import (
	"context"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/clientip"
	"github.com/penstock-go/penstock/internal/fakelimiter"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/access"
	"github.com/penstock-go/penstock/middleware/httplimit"
)

// deciding returns a limiter that makes one decision and describes any policies.
func deciding(d limit.Decision, policies ...limit.Description) *fakelimiter.Limiter {
	return &fakelimiter.Limiter{Decision: d, Policies: policies}
}

func failing(err error) limit.Limiter { return &fakelimiter.Limiter{Err: err} }

// attempt sends a request of a client whose socket has the address, and some header fields.
func attempt(h http.Handler, addr string, header http.Header) *http.Response {
	return send(h, http.MethodGet, "/search", addr, header)
}

func send(h http.Handler, method, path, addr string, header http.Header) *http.Response {
	req := httptest.NewRequest(method, path, nil)
	req.RemoteAddr = addr
	maps.Copy(req.Header, header)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, req)
	return w.Result()
}

func bodyOf(t *testing.T, resp *http.Response) string {
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return string(body)
}

var ok = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "in") })

// uncalled returns a handler that must not be called.
func uncalled(t *testing.T) http.Handler {
	return http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the handler was called") })
}

func perUser(req *http.Request, ip netip.Addr) limit.Key {
	if user := req.Header.Get("User"); user != "" {
		return limit.Key{"user", "", user}
	}
	return httplimit.KeyPerIP(req, ip)
}

func as(user string) http.Header { return http.Header{"User": {user}} }

// TestNew_InvalidOptionsPanic has those that messages do not have.
func TestNew_InvalidOptionsPanic(t *testing.T) {
	for _, tt := range []struct {
		opts httplimit.Options
		want string
	}{
		{httplimit.Options{Name: `"`}, `Name is "\""; it must be printable ASCII without quotes and backslashes`},
		{httplimit.Options{TrustedProxies: clientip.TrustedProxies{Header: 9}}, "TrustedProxies.Header is 9; it must be HeaderXForwardedFor or HeaderForwarded"},
		{httplimit.Options{OnDryRun: func(*http.Request, limit.Decision) {}}, "OnDryRun is set, but DryRun is false; set DryRun too"},
		{httplimit.Options{AccessKey: perUser}, "AccessKey is set, but Access is nil; set Access too"},
	} {
		assert.PanicsWithValue(t, "httplimit: "+tt.want, func() { httplimit.New(failing(nil), &tt.opts) })
	}
	assert.PanicsWithValue(t, "httplimit: NewAll does not use Options.Key; set Rule.Key", func() {
		httplimit.NewAll([]httplimit.Rule{{Limiter: failing(nil)}}, &httplimit.Options{Key: perUser})
	})
	assert.PanicsWithValue(t, "httplimit: KeyPerIPPrefix was called with 33 and 64 bits; they must be from 1 to 32 and from 1 to 128", func() { httplimit.KeyPerIPPrefix(33, 64) })
}

func TestNew_NegativeCostIsReportedAndRejected(t *testing.T) {
	number := int64(-1)
	function := func(*http.Request) int64 { return number }
	for name, opts := range map[string]httplimit.Options{"Cost": {Cost: function}, "Keep": {Keep: function}} {
		var reported []error
		opts.OnError = func(err error) { reported = append(reported, err) }
		bucket := memory.NewLimiter(limit.PerHour(9))
		resp := attempt(httplimit.New(bucket, &opts)(uncalled(t)), "192.0.2.1:1", nil)
		assert.Equal(t, 503, resp.StatusCode)
		require.Len(t, reported, 1)
		require.EqualError(t, reported[0], "httplimit: "+name+" returned -1 for GET /search; it must not be negative")
		d, err := limit.Consume(t.Context(), bucket, limit.Key{"ip", "192.0.2.1"}, 0)
		require.NoError(t, err)
		assert.EqualValues(t, 9, d.Remaining, "nothing was taken")
		opts.OnError = nil
		assert.Equal(t, 503, attempt(httplimit.New(bucket, &opts)(uncalled(t)), "192.0.2.1:1", nil).StatusCode)
	}
}

func TestNew_LimiterErrorsFollowFailOpenAndFallback(t *testing.T) {
	down := failing(io.ErrUnexpectedEOF)
	var reported []error
	report := func(err error) { reported = append(reported, err) }
	resp := attempt(httplimit.New(down, &httplimit.Options{OnError: report})(uncalled(t)), "192.0.2.1:1", nil)
	assert.Equal(t, 503, resp.StatusCode)
	assert.Equal(t, "limits cannot be checked\n", bodyOf(t, resp))
	assert.NotContains(t, resp.Header, "Ratelimit")
	assert.Equal(t, []error{io.ErrUnexpectedEOF}, reported, "once")

	resp = attempt(httplimit.New(down, &httplimit.Options{FailOpen: true})(ok), "192.0.2.1:1", nil)
	assert.Equal(t, 200, resp.StatusCode)
	assert.NotContains(t, resp.Header, "Ratelimit")

	h := httplimit.New(down, &httplimit.Options{Fallback: memory.NewLimiter(limit.PerHour(1))})(ok)
	assert.Equal(t, 200, attempt(h, "192.0.2.1:1", nil).StatusCode)
	resp = attempt(h, "192.0.2.1:1", nil)
	assert.Equal(t, 429, resp.StatusCode)
	assert.Equal(t, `"http";q=1`, resp.Header.Get("RateLimit-Policy"))
}

func TestNew_RejectsRequestsOverLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limitRequests := httplimit.New(memory.NewLimiter(limit.PerMinute(40).Burst(2)), nil)
		h := limitRequests(ok)
		first := attempt(h, "192.0.2.1:1", nil)
		assert.Equal(t, 200, first.StatusCode)
		assert.Equal(t, `"http";q=2;w=3`, first.Header.Get("RateLimit-Policy"))
		assert.Equal(t, `"http";r=1;t=2`, first.Header.Get("RateLimit"))
		assert.Equal(t, 200, attempt(h, "192.0.2.1:2", nil).StatusCode)
		rejected := attempt(limitRequests(uncalled(t)), "192.0.2.1:3", nil)
		assert.Equal(t, 429, rejected.StatusCode)
		assert.Equal(t, "2", rejected.Header.Get("Retry-After"), "1.5 seconds, rounded up")
		assert.Equal(t, `"http";r=0;t=2`, rejected.Header.Get("RateLimit"), "the same time as Retry-After")
		assert.Equal(t, "too many requests\n", bodyOf(t, rejected))
		assert.Equal(t, 200, attempt(h, "192.0.2.2:3", nil).StatusCode, "another address")
		assert.Equal(t, 429, attempt(h, "192.0.2.1:3", http.Header{"X-Forwarded-For": {"192.0.2.9"}}).StatusCode, "clients can forge the header")
		time.Sleep(2 * time.Second)
		assert.Equal(t, 200, attempt(h, "192.0.2.1:3", nil).StatusCode)
	})
}

func TestNew_CostAboveCapacityIsNeverAllowed(t *testing.T) {
	costly := &httplimit.Options{Cost: func(*http.Request) int64 { return 5 }}
	resp := attempt(httplimit.New(memory.NewLimiter(limit.PerHour(1)), costly)(uncalled(t)), "192.0.2.1:1", nil)
	assert.Equal(t, 429, resp.StatusCode)
	assert.NotContains(t, resp.Header, "Retry-After")
	assert.Equal(t, "the request costs more than the limit can ever allow\n", bodyOf(t, resp))
	assert.Equal(t, `"http";r=1;t=0`, resp.Header.Get("RateLimit"))
}

func TestNew_KeyAndCostReceiveTheRequest(t *testing.T) {
	limiter := deciding(limit.Decision{Allowed: true})
	h := httplimit.New(limiter, &httplimit.Options{
		Key: func(req *http.Request, ip netip.Addr) limit.Key {
			key := httplimit.KeyPerIPPrefix(24, 48)(req, ip)
			key[3] = req.Pattern
			return key
		},
		Cost: func(req *http.Request) int64 {
			if req.Method == http.MethodOptions {
				return 0
			}
			return int64(len(req.Method))
		},
	})
	mux := http.NewServeMux()
	mux.Handle("/users/{id}", h(ok))
	for _, addr := range []string{"192.0.2.1:1", "[2001:db8:1:2::3]:1", "[::ffff:192.0.2.1]:1", "nowhere"} {
		assert.Equal(t, "in", bodyOf(t, send(mux, http.MethodGet, "/users/7", addr, nil)))
	}
	assert.Equal(t, 200, send(mux, http.MethodOptions, "/users/7", "192.0.2.1:1", nil).StatusCode)
	three := limit.Take{Cost: 3}
	assert.Equal(t, []fakelimiter.Call{
		{Key: limit.Key{"ip", "192.0.2.0/24", "", "/users/{id}"}, Take: three},
		{Key: limit.Key{"ip", "2001:db8:1::/48", "", "/users/{id}"}, Take: three},
		{Key: limit.Key{"ip", "192.0.2.0/24", "", "/users/{id}"}, Take: three},
		{Key: limit.Key{"conn", "nowhere", "", "/users/{id}"}, Take: three},
	}, limiter.Calls, "a request that costs 0 is not limited")
}

func TestNew_DefaultKeyIsTheNetworkOfTheClient(t *testing.T) {
	h := httplimit.New(memory.NewLimiter(limit.PerHour(1)), &httplimit.Options{
		TrustedProxies: clientip.TrustedProxies{Networks: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}},
	})(ok)
	for _, tt := range []struct {
		peer, forwarded string
		want            int
	}{
		{"10.0.0.1:1", "192.0.2.1", 200},
		{"10.0.0.2:1", "192.0.2.1", 429},
		{"10.0.0.1:1", "192.0.2.2", 200},
		{"192.0.2.2:1", "192.0.2.3", 429}, // is no proxy
		{"[2001:db8:1:2::3]:1", "", 200},
		{"[2001:db8:1:2:ffff::3]:1", "", 429},
		{"[2001:db8:1:3::3]:1", "", 200},
		{"@", "192.0.2.4", 200}, // a Unix socket has no address
		{"@", "192.0.2.5", 429},
	} {
		assert.Equal(t, tt.want, attempt(h, tt.peer, http.Header{"X-Forwarded-For": {tt.forwarded}}).StatusCode, "%v", tt)
	}
}

func TestNew_AccessListDecidesFirst(t *testing.T) {
	list := &access.List{}
	require.NoError(t, list.Replace(access.Rules{
		Deny: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}, Allow: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")},
		DenyKeys: []limit.Key{{"user", "", "eve"}},
	}))
	limiter := memory.NewLimiter(limit.PerHour(1))
	denied := attempt(httplimit.New(limiter, &httplimit.Options{Access: list})(uncalled(t)), "192.0.2.1:1", nil)
	assert.Equal(t, 403, denied.StatusCode)
	assert.Equal(t, "access is denied\n", bodyOf(t, denied))
	assert.NotContains(t, denied.Header, "Ratelimit")
	for name, opts := range map[string]httplimit.Options{"Key": {Key: perUser}, "AccessKey": {AccessKey: perUser}} {
		opts.Access = list
		h := httplimit.New(memory.NewLimiter(limit.PerHour(1)), &opts)(ok)
		for range 3 {
			assert.Equal(t, 200, attempt(h, "198.51.100.1:1", nil).StatusCode, name)
			assert.Equal(t, 403, attempt(h, "198.51.100.1:1", as("eve")).StatusCode, name)
		}
		assert.Equal(t, 200, attempt(h, "203.0.113.1:1", nil).StatusCode, name)
		assert.Equal(t, 429, attempt(h, "203.0.113.1:1", nil).StatusCode, name)
	}
	dry := httplimit.New(limiter, &httplimit.Options{Access: list, DryRun: true})(ok)
	assert.Equal(t, 200, attempt(dry, "192.0.2.1:1", nil).StatusCode, "a dry run rejects no request")
}

func TestNew_DryRunReportsAndAdmits(t *testing.T) {
	var denials []limit.Decision
	report := func(req *http.Request, d limit.Decision) {
		assert.Equal(t, "/search", req.URL.Path)
		d.RetryAfter = d.RetryAfter.Round(time.Hour)
		d.ResetAfter = 0
		denials = append(denials, d)
	}
	h := httplimit.New(memory.NewLimiter(limit.PerHour(1).Named("searches")), &httplimit.Options{DryRun: true, OnDryRun: report})(ok)
	for range 3 {
		resp := attempt(h, "192.0.2.1:1", nil)
		assert.Equal(t, "in", bodyOf(t, resp))
		assert.NotContains(t, resp.Header, "Retry-After")
	}
	denial := limit.Decision{Limit: 1, RetryAfter: time.Hour, Policy: "searches"}
	assert.Equal(t, []limit.Decision{denial, denial}, denials)
	down := httplimit.New(failing(io.ErrUnexpectedEOF), &httplimit.Options{DryRun: true, OnDryRun: report})(ok)
	assert.Equal(t, 200, attempt(down, "192.0.2.1:1", nil).StatusCode, "a dry run rejects no request")
	assert.Len(t, denials, 2, "the limiter has denied nothing")
}

func TestNew_ClientLeavesWhileItsRequestWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := httplimit.New(memory.NewLimiter(limit.PerSecond(1)), &httplimit.Options{MaxWait: time.Second})
		assert.Equal(t, 200, attempt(h(ok), "192.0.2.1:1", nil).StatusCode)
		ctx, leave := context.WithTimeout(t.Context(), time.Second/2)
		defer leave()
		req := httptest.NewRequest(http.MethodGet, "/", nil).WithContext(ctx)
		req.RemoteAddr = "192.0.2.1:1"
		start := time.Now()
		h(uncalled(t)).ServeHTTP(httptest.NewRecorder(), req)
		assert.Equal(t, time.Second/2, time.Since(start))
	})
}

func TestNew_JitterIsInRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := httplimit.New(memory.NewLimiter(limit.PerMinute(1)), &httplimit.Options{Jitter: time.Hour})(ok)
		assert.Equal(t, 200, attempt(h, "192.0.2.1:1", nil).StatusCode)
		seen := map[int]bool{}
		for range 100 {
			resp := attempt(h, "192.0.2.1:1", nil)
			seconds, err := strconv.Atoi(resp.Header.Get("Retry-After"))
			require.NoError(t, err)
			require.GreaterOrEqual(t, seconds, 60)
			require.LessOrEqual(t, seconds, 3660)
			assert.Equal(t, `"http";r=0;t=`+strconv.Itoa(seconds), resp.Header.Get("RateLimit"))
			seen[seconds] = true
		}
		assert.Greater(t, len(seen), 50)
	})
}
