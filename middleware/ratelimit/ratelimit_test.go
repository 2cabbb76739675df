package ratelimit_test

import (
	"context"
	"io"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/middleware/ratelimit"
	"github.com/penstock-go/penstock/router"
)

func from(user string) router.IngressContext {
	return router.IngressContext{Type: "SAY", ConnID: "c1", IP: netip.MustParseAddr("192.0.2.1"), Identity: router.Identity{UserID: user}}
}

// A limiterFunc is a function that implements limit.Limiter.
type limiterFunc func(ctx context.Context, key limit.Key, cost int64) (limit.Decision, error)

func (f limiterFunc) Take(ctx context.Context, key limit.Key, take limit.Take) (limit.Decision, error) {
	return f(ctx, key, take.Cost)
}

func (limiterFunc) Check(take limit.Take) error { return take.ValidatePlain() }

func TestNew_RejectsMessagesOverLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		admit := ratelimit.New(memory.NewLimiter(limit.PerSecond(1).Burst(2)), nil)
		require.NoError(t, admit(t.Context(), from("ann")))
		require.NoError(t, admit(t.Context(), from("ann")))
		assert.Equal(t, &router.LimitExceeded{Kind: router.LimitRate, Observed: 1, Limit: 2, RetryAfter: time.Second}, admit(t.Context(), from("ann")))
		require.NoError(t, admit(t.Context(), from("bob")))
		time.Sleep(time.Second)
		require.NoError(t, admit(t.Context(), from("ann")))
	})
}

func TestNew_ChargesCostOrRejectsInvalidCost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cost := int64(0)
		admit := ratelimit.New(memory.NewLimiter(limit.PerSecond(1).Burst(5)), &ratelimit.Options{
			Cost: func(router.IngressContext) int64 { return cost },
		})
		for range 100 {
			require.NoError(t, admit(t.Context(), from("ann")), "a message that costs 0 is not limited")
		}
		cost = 6
		assert.Equal(t, &router.LimitExceeded{Kind: router.LimitRate, Observed: 6, Limit: 5, RetryAfter: errors.Never}, admit(t.Context(), from("ann")))
		cost = -1
		err := admit(t.Context(), from("ann"))
		e, ok := errors.AsType[*errors.Error](err)
		require.True(t, ok)
		assert.Equal(t, errors.InvalidArgument, e.Code)
		assert.EqualError(t, e.Err, `ratelimit: Cost returned -1 for "SAY"; it must not be negative`)
		cost = 5
		require.NoError(t, admit(t.Context(), from("ann")), "nothing was taken so far")
	})
}

func TestCostPerKiB_RoundsUp(t *testing.T) {
	for size, want := range map[int64]int64{0: 0, 1: 1, 1024: 1, 1025: 2, 10 << 10: 10} {
		assert.Equal(t, want, ratelimit.CostPerKiB(router.IngressContext{Size: size}))
	}
}

func TestKeyFunctions_ReturnKeysOfUsersAndGuests(t *testing.T) {
	user := router.IngressContext{Type: "SAY", ConnID: "c1", IP: netip.MustParseAddr("192.0.2.1"), Identity: router.Identity{TenantID: "acme", UserID: "ann"}}
	guest, six, nowhere := user, user, user
	guest.Identity, six.Identity, nowhere.Identity = router.Identity{}, router.Identity{}, router.Identity{}
	six.IP, nowhere.IP = netip.MustParseAddr("2001:db8:1:2:3::4"), netip.Addr{}
	for _, tt := range []struct {
		name string
		key  func(router.IngressContext) limit.Key
		want [4]limit.Key // for user, guest, a guest on IPv6, a guest of unknown address
	}{
		{"KeyPerUserPerType", ratelimit.KeyPerUserPerType, [4]limit.Key{{"user", "acme", "ann", "SAY"}, {"conn", "c1", "", "SAY"}, {"conn", "c1", "", "SAY"}, {"conn", "c1", "", "SAY"}}},
		{"KeyPerUserOrIPPerType", ratelimit.KeyPerUserOrIPPerType, [4]limit.Key{{"user", "acme", "ann", "SAY"}, {"ip", "192.0.2.1", "", "SAY"}, {"ip", "2001:db8:1:2::/64", "", "SAY"}, {"conn", "c1", "", "SAY"}}},
		{"KeyPerUser", ratelimit.KeyPerUser, [4]limit.Key{{"user", "acme", "ann"}, {"conn", "c1"}, {"conn", "c1"}, {"conn", "c1"}}},
		{"KeyPerConn", ratelimit.KeyPerConn, [4]limit.Key{{"conn", "c1"}, {"conn", "c1"}, {"conn", "c1"}, {"conn", "c1"}}},
		{"KeyPerIP", ratelimit.KeyPerIP, [4]limit.Key{{"ip", "192.0.2.1"}, {"ip", "192.0.2.1"}, {"ip", "2001:db8:1:2::/64"}, {"conn", "c1"}}},
		{"KeyPerType", ratelimit.KeyPerType, [4]limit.Key{{"type", "SAY"}, {"type", "SAY"}, {"type", "SAY"}, {"type", "SAY"}}},
	} {
		for i, in := range []router.IngressContext{user, guest, six, nowhere} {
			assert.Equal(t, tt.want[i], tt.key(in), tt.name)
		}
	}
}

func TestKeyPerIPPrefix_GroupsAddresses(t *testing.T) {
	for _, tt := range []struct {
		v4, v6   int
		ip, want string
	}{
		{24, 48, "192.0.2.1", "192.0.2.0/24"},
		{24, 48, "::ffff:192.0.2.1", "192.0.2.0/24"},
		{24, 48, "2001:db8:1:2:3::4", "2001:db8:1::/48"},
		{32, 64, "192.0.2.1", "192.0.2.1"},
		{32, 64, "::ffff:192.0.2.1", "192.0.2.1"},
		{32, 64, "2001:db8:1:2:3::4", "2001:db8:1:2::/64"},
		{1, 128, "192.0.2.1", "128.0.0.0/1"},
		{1, 128, "2001:db8::1%eth0", "2001:db8::1"},
	} {
		in := router.IngressContext{IP: netip.MustParseAddr(tt.ip), ConnID: "c1"}
		assert.Equal(t, limit.Key{"ip", tt.want}, ratelimit.KeyPerIPPrefix(tt.v4, tt.v6)(in), "%v", tt)
		if tt.v4 == 32 {
			assert.Equal(t, ratelimit.KeyPerIPPrefix(tt.v4, tt.v6)(in), ratelimit.KeyPerIP(in), "%v", tt)
		}
	}
	assert.Equal(t, limit.Key{"conn", "c1"}, ratelimit.KeyPerIPPrefix(24, 48)(router.IngressContext{ConnID: "c1"}))
	for _, bits := range [][2]int{{0, 64}, {33, 64}, {32, 0}, {32, 129}, {-1, 64}} {
		assert.Panics(t, func() { ratelimit.KeyPerIPPrefix(bits[0], bits[1]) }, "%v", bits)
	}
}

func TestKeyFunctions_UserNamesCannotImitateOtherKeys(t *testing.T) {
	anonymous := from("")
	for _, key := range []func(router.IngressContext) limit.Key{
		ratelimit.KeyPerUserPerType, ratelimit.KeyPerUserOrIPPerType, ratelimit.KeyPerUser,
	} {
		for _, name := range []string{"192.0.2.1", "c1", "conn", "ip", "SAY"} {
			assert.NotEqual(t, key(anonymous), key(from(name)))
		}
	}
}

func TestNew_AdmittingAllocatesNothing(t *testing.T) {
	admit := ratelimit.New(memory.NewLimiter(limit.PerHour(1_000_000).Burst(600_000)), nil)
	in := from("ann")
	assert.Zero(t, testing.AllocsPerRun(1000, func() {
		if err := admit(t.Context(), in); err != nil {
			t.Fatal(err)
		}
	}))
}

func TestNew_HandlesLimiterErrorsByFailOpenAndFallback(t *testing.T) {
	down := limiterFunc(func(context.Context, limit.Key, int64) (limit.Decision, error) {
		return limit.Decision{Allowed: true}, io.ErrUnexpectedEOF
	})
	t.Run("rejected by default", func(t *testing.T) {
		err := ratelimit.New(down, nil)(t.Context(), from("ann"))
		assert.Equal(t, errors.Unavailable, errors.CodeOf(err))
		assert.ErrorIs(t, err, io.ErrUnexpectedEOF)
	})
	t.Run("admitted with FailOpen", func(t *testing.T) {
		in, seen := reporting(t, from("ann"))
		admit := ratelimit.New(down, &ratelimit.Options{FailOpen: true})
		require.NoError(t, admit(t.Context(), in))
		require.Len(t, seen.errs, 1)
		assert.ErrorIs(t, seen.errs[0], io.ErrUnexpectedEOF)
	})
	t.Run("decided by the fallback", func(t *testing.T) {
		admit := ratelimit.New(down, &ratelimit.Options{Fallback: memory.NewLimiter(limit.PerHour(1))})
		require.NoError(t, admit(t.Context(), from("ann")))
		_, denied := errors.AsType[*router.LimitExceeded](admit(t.Context(), from("ann")))
		assert.True(t, denied)
	})
	t.Run("the fallback fails too", func(t *testing.T) {
		assert.Equal(t, errors.Unavailable, errors.CodeOf(ratelimit.New(down, &ratelimit.Options{Fallback: down})(t.Context(), from("ann"))))
	})
	t.Run("the fallback does not override a denial", func(t *testing.T) {
		admit := ratelimit.New(memory.NewLimiter(limit.PerHour(1)), &ratelimit.Options{Fallback: limiterFunc(
			func(context.Context, limit.Key, int64) (limit.Decision, error) {
				t.Error("the fallback was called")
				return limit.Decision{}, nil
			})})
		require.NoError(t, admit(t.Context(), from("ann")))
		require.Error(t, admit(t.Context(), from("ann")))
	})
	t.Run("a canceled connection is no error of the limiter", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		in, seen := reporting(t, from("ann"))
		admit := ratelimit.New(limiterFunc(func(ctx context.Context, _ limit.Key, _ int64) (limit.Decision, error) {
			cancel()
			return limit.Decision{}, ctx.Err()
		}), &ratelimit.Options{FailOpen: true})
		assert.ErrorIs(t, admit(ctx, in), context.Canceled)
		assert.Empty(t, seen.errs)
	})
}

func TestNew_TimeoutBoundsCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hung := limiterFunc(func(ctx context.Context, _ limit.Key, _ int64) (limit.Decision, error) {
			<-ctx.Done()
			return limit.Decision{}, ctx.Err()
		})
		for want, opts := range map[time.Duration]*ratelimit.Options{50 * time.Millisecond: nil, time.Second: {Timeout: time.Second}} {
			start := time.Now()
			err := ratelimit.New(hung, opts)(t.Context(), from("ann"))
			assert.Equal(t, errors.Unavailable, errors.CodeOf(err))
			assert.Equal(t, want, time.Since(start))
		}
	})
}

func TestBreaker_PausesCallsOfFailingLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls, healthy := 0, false
		store := limiterFunc(func(ctx context.Context, _ limit.Key, _ int64) (limit.Decision, error) {
			calls++
			if healthy {
				return limit.Decision{Allowed: true}, nil
			}
			<-ctx.Done()
			return limit.Decision{}, ctx.Err()
		})
		admit := ratelimit.New(store, nil)
		for range 5 {
			require.Error(t, admit(t.Context(), from("ann")))
		}
		start := time.Now()
		for range 1000 {
			assert.Equal(t, errors.Unavailable, errors.CodeOf(admit(t.Context(), from("ann"))))
		}
		assert.Equal(t, 5, calls)
		assert.Zero(t, time.Since(start), "no message waits while the breaker is open")

		time.Sleep(375 * time.Millisecond)
		require.Error(t, admit(t.Context(), from("ann")))
		require.Error(t, admit(t.Context(), from("ann")))
		assert.Equal(t, 6, calls, "one probe per pause")

		healthy = true
		time.Sleep(375 * time.Millisecond)
		for range 10 {
			require.NoError(t, admit(t.Context(), from("ann")))
		}
		assert.Equal(t, 16, calls, "one success closes the breaker")
	})
}

func TestNew_DryRunReportsAndAdmits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, seen := reporting(t, from("ann"))
		admit := ratelimit.New(memory.NewLimiter(limit.PerHour(1)), &ratelimit.Options{DryRun: true})
		for range 3 {
			assert.NoError(t, admit(t.Context(), in))
		}
		synctest.Wait()
		require.Len(t, seen.limits, 2)
		assert.EqualValues(t, 1, seen.limits[0].Limit)
		assert.True(t, seen.limits[0].DryRun)
		assert.NotNil(t, seen.limits[0].Conn)
		assert.Empty(t, seen.errs)
		down := ratelimit.New(limiterFunc(func(context.Context, limit.Key, int64) (limit.Decision, error) {
			return limit.Decision{}, io.ErrUnexpectedEOF
		}), &ratelimit.Options{DryRun: true})
		assert.NoError(t, down(t.Context(), in), "a dry run rejects no message")
		synctest.Wait()
		assert.Len(t, seen.limits, 2, "the limiter decided nothing")
		assert.Len(t, seen.errs, 1)
	})
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

func TestNew_InvalidOptionsPanic(t *testing.T) {
	l := memory.NewLimiter(limit.PerSecond(1))
	assert.PanicsWithValue(t, "ratelimit: New needs a limiter", func() { ratelimit.New(nil, nil) })
	assert.PanicsWithValue(t, "ratelimit: Timeout is -1s; it must not be negative", func() { ratelimit.New(l, &ratelimit.Options{Timeout: -time.Second}) })
}
