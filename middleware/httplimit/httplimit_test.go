package httplimit_test

import (
	"context"
	"io"
	"maps"
	"net"
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
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/access"
	"github.com/penstock-go/penstock/middleware/httplimit"
)

// A limiterFunc is a function that implements limit.Limiter.
type limiterFunc func(ctx context.Context, key limit.Key, cost int64) (limit.Decision, error)

func (f limiterFunc) Take(ctx context.Context, key limit.Key, take limit.Take) (limit.Decision, error) {
	return f(ctx, key, take.Cost)
}

func (limiterFunc) Check(take limit.Take) error { return take.ValidatePlain() }

// A describedLimiter makes one decision and describes any policies.
type describedLimiter struct {
	limiterFunc

	policies []limit.Description
}

func (l describedLimiter) Describe() []limit.Description { return l.policies }

func deciding(d limit.Decision, policies ...limit.Description) describedLimiter {
	return describedLimiter{func(context.Context, limit.Key, int64) (limit.Decision, error) { return d, nil }, policies}
}

func failing(err error) limiterFunc {
	return func(context.Context, limit.Key, int64) (limit.Decision, error) { return limit.Decision{}, err }
}

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

func TestNew_InvalidOptionsPanic(t *testing.T) {
	bucket := memory.NewLimiter(limit.PerHour(1))
	negative := func(*http.Request) int64 { return -1 }
	for _, tt := range []struct {
		name    string
		limiter limit.Limiter
		opts    httplimit.Options
		want    string
	}{
		{"limiter", nil, httplimit.Options{}, "httplimit: New needs a limiter"},
		{"Name", bucket, httplimit.Options{Name: `"`}, `httplimit: Name is "\""; it must be printable ASCII without quotes and backslashes`},
		{"TrustedProxies", bucket, httplimit.Options{TrustedProxies: clientip.TrustedProxies{Header: 9}}, "httplimit: TrustedProxies.Header is 9; it must be HeaderXForwardedFor or HeaderForwarded"},
		{"OnDryRun", bucket, httplimit.Options{OnDryRun: func(*http.Request, limit.Decision) {}}, "httplimit: OnDryRun is set, but DryRun is false; set DryRun too"},
		{"AccessKey", bucket, httplimit.Options{AccessKey: perUser}, "httplimit: AccessKey is set, but Access is nil; set Access too"},
		{"Timeout", bucket, httplimit.Options{Timeout: -time.Second}, "httplimit: Timeout is -1s; it must not be negative"},
		{"Jitter", bucket, httplimit.Options{Jitter: -1}, "httplimit: Jitter is -1ns; it must not be negative"},
		{"MaxWait", bucket, httplimit.Options{MaxWait: 2 * time.Hour}, "httplimit: MaxWait is 2h0m0s; it must be from 0 to 1h0m0s"},
		{"MaxWait of a limiter", failing(nil), httplimit.Options{MaxWait: 1}, "httplimit: MaxWait is set, which a httplimit_test.limiterFunc cannot do: the limiter can only take a cost whole"},
		{"Keep of a fallback", bucket, httplimit.Options{Keep: negative, Fallback: failing(nil)}, "httplimit: Keep is set, which a httplimit_test.limiterFunc cannot do: the limiter can only take a cost whole"},
		{"Keep and MaxWait", bucket, httplimit.Options{Keep: negative, MaxWait: 1}, "httplimit: Keep and MaxWait are set; set one of them"},
	} {
		assert.PanicsWithValue(t, tt.want, func() { httplimit.New(tt.limiter, &tt.opts) }, tt.name)
	}
}

func TestKeyPerIPPrefix_InvalidLengthsPanic(t *testing.T) {
	for _, bits := range [][2]int{{0, 64}, {33, 64}, {32, 0}, {32, 129}} {
		assert.Panics(t, func() { httplimit.KeyPerIPPrefix(bits[0], bits[1]) }, "%v", bits)
	}
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

	broken := &httplimit.Options{Fallback: down}
	assert.Equal(t, 503, attempt(httplimit.New(down, broken)(uncalled(t)), "192.0.2.1:1", nil).StatusCode)
}

func TestNew_TimeoutBoundsCallsAndBreakerPausesThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		hung := limiterFunc(func(ctx context.Context, _ limit.Key, _ int64) (limit.Decision, error) {
			calls++
			<-ctx.Done()
			return limit.Decision{}, ctx.Err()
		})
		h := httplimit.New(hung, &httplimit.Options{Timeout: time.Second})(uncalled(t))
		start := time.Now()
		for range 100 {
			assert.Equal(t, 503, attempt(h, "192.0.2.1:1", nil).StatusCode)
		}
		assert.Equal(t, 5, calls)
		assert.Equal(t, 5*time.Second, time.Since(start))
	})
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
	var keys []limit.Key
	var costs []int64
	limiter := limiterFunc(func(_ context.Context, key limit.Key, cost int64) (limit.Decision, error) {
		keys, costs = append(keys, key), append(costs, cost)
		return limit.Decision{Allowed: true}, nil
	})
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
	assert.Equal(t, []limit.Key{
		{"ip", "192.0.2.0/24", "", "/users/{id}"},
		{"ip", "2001:db8:1::/48", "", "/users/{id}"},
		{"ip", "192.0.2.0/24", "", "/users/{id}"},
		{"conn", "nowhere", "", "/users/{id}"},
	}, keys, "a request that costs 0 is not limited")
	assert.Equal(t, []int64{3, 3, 3, 3}, costs)
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

func TestNew_ClientsBehindUnixSocketHaveSeparateBuckets(t *testing.T) {
	proxies := clientip.TrustedProxies{UnixSocket: true, Header: clientip.HeaderForwarded}
	h := httplimit.New(memory.NewLimiter(limit.PerHour(1)), &httplimit.Options{TrustedProxies: proxies})(ok)
	overUnixSocket := http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		local := &net.UnixAddr{Name: "/run/api.sock", Net: "unix"}
		h.ServeHTTP(w, req.WithContext(context.WithValue(req.Context(), http.LocalAddrContextKey, local)))
	})
	ann, bob := http.Header{"Forwarded": {"for=192.0.2.1"}}, http.Header{"Forwarded": {`for=192.0.2.1, for="192.0.2.2:80"`}}
	assert.Equal(t, 200, attempt(overUnixSocket, "@", ann).StatusCode)
	assert.Equal(t, 429, attempt(overUnixSocket, "@", ann).StatusCode)
	assert.Equal(t, 200, attempt(overUnixSocket, "@", bob).StatusCode)
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

func TestNew_ChargeOnlyAdmitsAndCharges(t *testing.T) {
	opts := &httplimit.Options{ChargeOnly: func(req *http.Request) bool { return req.Method == http.MethodDelete }}
	h := httplimit.New(memory.NewLimiter(limit.PerHour(2)), opts)(ok)
	for range 5 {
		assert.Equal(t, 200, send(h, http.MethodDelete, "/", "192.0.2.1:1", nil).StatusCode)
	}
	assert.Equal(t, 429, attempt(h, "192.0.2.1:1", nil).StatusCode, "the bucket is empty")
	down := httplimit.New(failing(io.ErrUnexpectedEOF), opts)(ok)
	assert.Equal(t, 200, send(down, http.MethodDelete, "/", "192.0.2.1:1", nil).StatusCode)
	assert.Equal(t, 503, attempt(down, "192.0.2.1:1", nil).StatusCode)
}

func TestNew_KeepLeavesAShare(t *testing.T) {
	h := httplimit.New(memory.NewLimiter(limit.PerHour(3)), &httplimit.Options{Keep: func(req *http.Request) int64 {
		if req.URL.Path == "/preview" {
			return 2
		}
		return 0
	}})(ok)
	for _, tt := range []struct {
		path string
		want int
	}{{"/preview", 200}, {"/preview", 429}, {"/save", 200}, {"/save", 200}, {"/save", 429}} {
		assert.Equal(t, tt.want, send(h, http.MethodGet, tt.path, "192.0.2.1:1", nil).StatusCode)
	}
}

func TestNew_MaxWaitDelaysRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limitRequests := httplimit.New(memory.NewLimiter(limit.PerSecond(1)), &httplimit.Options{MaxWait: time.Second})
		start := time.Now()
		for range 2 {
			assert.Equal(t, 200, attempt(limitRequests(ok), "192.0.2.1:1", nil).StatusCode)
		}
		assert.Equal(t, time.Second, time.Since(start))

		ctx, leave := context.WithCancel(t.Context())
		time.AfterFunc(time.Second/2, leave)
		req := httptest.NewRequest(http.MethodGet, "/", nil).WithContext(ctx)
		req.RemoteAddr = "192.0.2.1:1"
		limitRequests(uncalled(t)).ServeHTTP(httptest.NewRecorder(), req)
		assert.Equal(t, 1500*time.Millisecond, time.Since(start), "the client has left")
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
