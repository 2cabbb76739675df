package router_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// floodWithAborts sends messages without an answer, and returns how many are answered without an error.
func floodWithAborts(t *testing.T, c *routertest.Conn, messages int) (admitted int, last *errors.Error) {
	t.Helper()
	for range messages {
		c.SendText(`{"type":"$ws:abort","meta":{"correlationId":"h"}}`)
		synctest.Wait()
		if c.Pending() == 0 {
			admitted++
			continue
		}
		last = routertest.ReceiveError(c)
	}
	return admitted, last
}

func TestRates_DefaultsBoundAFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var limits recorder[router.LimitExceeded]
		r := router.New(&router.Options{OnLimitExceeded: func(l router.LimitExceeded) { limits.add(l) }})
		c := routertest.Dial(t, r)
		admitted, rejection := floodWithAborts(t, c, 10_010)
		assert.Equal(t, 10_000, admitted)
		assert.Equal(t, errors.ResourceExhausted, rejection.Code)
		assert.Equal(t, time.Millisecond, rejection.RetryAfter)
		reported := limits.all()
		require.Len(t, reported, 10)
		assert.Equal(t, "MessagesPerConn", reported[0].Policy)
		assert.EqualValues(t, 10_000, reported[0].Limit)
		time.Sleep(50 * time.Millisecond)
		admitted, _ = floodWithAborts(t, c, 100)
		assert.Equal(t, 50, admitted)
		admitted, _ = floodWithAborts(t, routertest.Dial(t, r), 100)
		assert.Equal(t, 100, admitted, "another connection of the address")
	})
}

func TestRates_ConnectionsOfAnAddressShareItsRates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var limits recorder[string]
		r := router.New(&router.Options{
			OnLimitExceeded: func(l router.LimitExceeded) { limits.add(l.Policy) },
			Limits:          router.Limits{MessagesPerIP: router.Rate{PerSecond: 10, Burst: 15}, MessagesPerConn: router.Rate{PerSecond: 10}},
		})
		dial := func(address string) *routertest.Conn { return routertest.Dial(t, r, routertest.RemoteAddr(address)) }
		for _, tt := range []struct {
			address string
			want    int
		}{
			{"192.0.2.1:1", 10},
			{"192.0.2.1:2", 5},
			{"[::ffff:192.0.2.1]:3", 0},
			{"192.0.2.2:1", 10},
			{"[2001:db8::1]:1", 10},
			{"[2001:db8::2]:1", 5},
			{"[2001:db8:0:1::1]:1", 10},
		} {
			admitted, _ := floodWithAborts(t, dial(tt.address), 12)
			assert.Equal(t, tt.want, admitted, tt.address)
		}
		assert.Contains(t, limits.all(), "MessagesPerIP")
		time.Sleep(time.Second)
		c := dial("192.0.2.1:4")
		admitted, _ := floodWithAborts(t, c, 12)
		assert.Equal(t, 10, admitted, "what the address rejects is not charged to the connection")
	})
}

func TestRates_HandshakesOfAnAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := router.New(&router.Options{Authenticate: func(*http.Request) (router.Identity, error) {
			return router.Identity{}, errors.Errorf(errors.Unauthenticated, "no")
		}})
		attempt := func(address string) *http.Response {
			return routertest.Refused(t, r, routertest.RemoteAddr(address))
		}
		count := func(attempts int) (limited int) {
			for range attempts {
				if resp := attempt("192.0.2.1:1"); resp.StatusCode == http.StatusTooManyRequests {
					assert.Equal(t, "1", resp.Header.Get("Retry-After"))
					limited++
				}
			}
			return limited
		}
		assert.Equal(t, 10, count(2010))
		assert.Equal(t, http.StatusUnauthorized, attempt("192.0.2.2:1").StatusCode)
		time.Sleep(time.Second)
		assert.Equal(t, 1, count(101))
	})
}

func TestRates_ConnectionsOfAnAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := router.New(nil)
		for range 1000 {
			routertest.Dial(t, r)
		}
		assert.Equal(t, http.StatusTooManyRequests, routertest.Refused(t, r).StatusCode)
		routertest.Dial(t, r, routertest.RemoteAddr("192.0.2.2:1"))
	})
}

func TestRates_Unlimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := router.New(&router.Options{Limits: withoutRates(router.Limits{})})
		for range 1001 {
			routertest.Dial(t, r)
		}
		admitted, _ := floodWithAborts(t, routertest.Dial(t, r), 10_100)
		assert.Equal(t, 10_100, admitted)
	})
	for _, rate := range []router.Rate{{PerSecond: -1}, {PerSecond: 1, Burst: -1}, {Burst: 5}} {
		assert.PanicsWithValue(t, fmt.Sprintf("router: Limits.MessagesPerIP is %+v; PerSecond must be at least 1, or Unlimited, and Burst must not be negative", rate), func() {
			router.New(&router.Options{Limits: router.Limits{MessagesPerIP: rate}})
		})
	}
}

// TestRates_FailedAuthenticationsAreDelayedAndLimited guesses tokens on open connections.
func TestRates_FailedAuthenticationsAreDelayedAndLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int64
		r := router.New(discardLogs(router.Options{Authenticate: func(req *http.Request) (router.Identity, error) {
			calls.Add(1)
			switch router.Token(req) {
			case "":
				return router.Identity{}, nil
			case "ann":
				return router.Identity{UserID: "ann"}, nil
			case "away":
				return router.Identity{}, errors.Errorf(errors.Unavailable, "the database is away")
			}
			return router.Identity{}, errors.Errorf(errors.Unauthenticated, "unknown token")
		}}))
		try := func(c *routertest.Conn, token string) (code errors.Code, took time.Duration) {
			start := time.Now()
			c.SendText(fmt.Sprintf(`{"type":"$ws:auth","meta":{"correlationId":"a"},"payload":{"token":%q}}`, token))
			if frame := c.Next(); frame.Type == "RPC_ERROR" {
				var payload struct {
					Code errors.Code `json:"code"`
				}
				require.NoError(t, json.Unmarshal(frame.Payload, &payload))
				code = payload.Code
			}
			return code, time.Since(start)
		}
		c := routertest.Dial(t, r)
		code, took := try(c, "guess")
		assert.Equal(t, errors.Unauthenticated, code)
		assert.Equal(t, time.Second, took)
		code, took = try(c, "away")
		assert.Equal(t, errors.Unavailable, code)
		assert.Zero(t, took)
		code, took = try(c, "ann")
		assert.Empty(t, code)
		assert.Zero(t, took)

		time.Sleep(time.Minute)
		conns := make([]*routertest.Conn, 70)
		for n := range conns {
			conns[n] = routertest.Dial(t, r)
		}
		calls.Store(0)
		for _, c := range conns {
			c.SendText(`{"type":"$ws:auth","meta":{"correlationId":"a"},"payload":{"token":"guess"}}`)
		}
		time.Sleep(5 * time.Second)
		assert.EqualValues(t, 60, calls.Load(), "attempts that begin at once")
		for _, c := range conns {
			assert.Equal(t, 1, c.Pending())
			c.Next()
		}
		other := routertest.Dial(t, r, routertest.RemoteAddr("192.0.2.2:1"))
		code, _ = try(other, "guess")
		assert.Equal(t, errors.Unauthenticated, code, "another address")
	})
}

// TestRefresh_TenantDoesNotChange has connections with a tenant and no user, whose topics are those of
// the tenant.
func TestRefresh_TenantDoesNotChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := router.New(discardLogs(router.Options{Authenticate: func(req *http.Request) (router.Identity, error) {
			return router.Identity{TenantID: router.Token(req)}, nil
		}}))
		c := routertest.Dial(t, r, routertest.Token("acme"))
		c.SendText(`{"type":"$ws:auth","meta":{"correlationId":"a"},"payload":{"token":"other"}}`)
		assert.Contains(t, c.Next().Text, `"code":"PERMISSION_DENIED"`)
		assert.Equal(t, "acme", onlyConn(t, r).Identity().TenantID)
		c.SendText(`{"type":"$ws:auth","meta":{"correlationId":"a"},"payload":{"token":"acme"}}`)
		assert.Contains(t, c.Next().Text, `$ws:authenticated`)
	})
}
