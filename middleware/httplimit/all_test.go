package httplimit_test

import (
	"net/http"
	"net/netip"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/access"
	"github.com/penstock-go/penstock/middleware/httplimit"
)

// TestNewAll_DeniedRequestTakesFromNoBucket limits addresses and users. Reads are free for the
// users.
func TestNewAll_DeniedRequestTakesFromNoBucket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		users, addresses := memory.NewLimiter(limit.PerMinute(2).Named("user")), memory.NewLimiter(limit.PerHour(5).Named("address"))
		limitRequests := httplimit.NewAll([]httplimit.Rule{
			{Limiter: addresses},
			{Limiter: users, Key: perUser, Cost: func(req *http.Request) int64 {
				if req.Method == http.MethodGet {
					return 0
				}
				return 1
			}},
		}, nil)
		for _, tt := range []struct {
			method, user string
			want         int
			limit, wait  string
		}{
			{"POST", "ann", 200, `"user";r=1;t=30`, ""},
			{"POST", "ann", 200, `"user";r=0;t=60`, ""},
			{"POST", "ann", 429, `"user";r=0;t=30`, "30"},
			{"POST", "ann", 429, `"user";r=0;t=30`, "30"},
			{"GET", "ann", 200, `"address";r=2;t=2160`, ""},
			{"POST", "bob", 200, `"address";r=1;t=2880`, ""},
			{"GET", "bob", 200, `"address";r=0;t=3600`, ""},
			{"POST", "bob", 429, `"address";r=0;t=720`, "720"},
		} {
			h := limitRequests(ok)
			if tt.want == 429 {
				h = limitRequests(uncalled(t))
			}
			resp := send(h, tt.method, "/", "192.0.2.1:1", as(tt.user))
			assert.Equal(t, tt.want, resp.StatusCode, "%v", tt)
			assert.Equal(t, `"address";q=5;w=3600, "user";q=2;w=60`, resp.Header.Get("RateLimit-Policy"))
			assert.Equal(t, tt.limit, resp.Header.Get("RateLimit"), "%v", tt)
			assert.Equal(t, tt.wait, resp.Header.Get("Retry-After"), "%v", tt)
		}
	})
}

func TestNewAll_SameBucketIsChargedTheSum(t *testing.T) {
	limiter := memory.NewLimiter(limit.PerHour(5))
	two := func(*http.Request) int64 { return 2 }
	rules := []httplimit.Rule{{Limiter: limiter}, {Limiter: limiter, Cost: two}}
	h := httplimit.NewAll(rules, nil)(ok)
	rules[0] = httplimit.Rule{} // changing the rules later has no effect
	resp := attempt(h, "192.0.2.1:1", nil)
	assert.Equal(t, `"http";r=2;t=2160`, resp.Header.Get("RateLimit"))
	assert.Equal(t, `"http";q=5;w=3600`, resp.Header.Get("RateLimit-Policy"), "once")
	assert.Equal(t, 429, attempt(h, "192.0.2.1:1", nil).StatusCode)
}

func TestNewAll_AccessListLooksUpTheAddress(t *testing.T) {
	list := &access.List{}
	require.NoError(t, list.Replace(access.Rules{AllowKeys: []limit.Key{{"ip", "192.0.2.1"}}, Deny: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}))
	h := httplimit.NewAll([]httplimit.Rule{{Limiter: memory.NewLimiter(limit.PerHour(1)), Key: perUser}}, &httplimit.Options{Access: list})(ok)
	for range 3 {
		assert.Equal(t, 200, attempt(h, "192.0.2.1:1", as("ann")).StatusCode)
		assert.Equal(t, 403, attempt(h, "192.0.2.2:1", as("ann")).StatusCode)
	}
}
