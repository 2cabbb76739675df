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
	"github.com/penstock-go/penstock/middleware/ratelimit"
	"github.com/penstock-go/penstock/router"
)

func from(user string) router.IngressContext {
	return router.IngressContext{Type: "SAY", ConnID: "c1", IP: netip.MustParseAddr("192.0.2.1"), Identity: router.Identity{UserID: user}}
}

// A limiterFunc is a limiter of one function.
type limiterFunc func(ctx context.Context, key ratelimit.Key, cost int64) (ratelimit.Decision, error)

func (f limiterFunc) Consume(ctx context.Context, key ratelimit.Key, cost int64) (ratelimit.Decision, error) {
	return f(ctx, key, cost)
}

func TestAdmitsWhatTheBucketCanPayFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		admit := ratelimit.New(memory.NewLimiter(ratelimit.PerSecond(1).Burst(2)), nil)
		require.NoError(t, admit(t.Context(), from("ann")))
		require.NoError(t, admit(t.Context(), from("ann")))
		assert.Equal(t, &router.LimitExceeded{Kind: router.LimitRate, Observed: 1, Limit: 2, RetryAfter: time.Second}, admit(t.Context(), from("ann")))
		require.NoError(t, admit(t.Context(), from("bob")))
		time.Sleep(time.Second)
		require.NoError(t, admit(t.Context(), from("ann")))
	})
}

func TestCost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cost := int64(0)
		admit := ratelimit.New(memory.NewLimiter(ratelimit.PerSecond(1).Burst(5)), &ratelimit.Options{
			Cost: func(router.IngressContext) int64 { return cost },
		})
		for range 100 {
			require.NoError(t, admit(t.Context(), from("ann")), "what costs nothing is not limited")
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

func TestCostPerKiB(t *testing.T) {
	for size, want := range map[int64]int64{0: 0, 1: 1, 1024: 1, 1025: 2, 10 << 10: 10} {
		assert.Equal(t, want, ratelimit.CostPerKiB(router.IngressContext{Size: size}))
	}
}

func TestKeys(t *testing.T) {
	user := router.IngressContext{Type: "SAY", ConnID: "c1", IP: netip.MustParseAddr("192.0.2.1"), Identity: router.Identity{TenantID: "acme", UserID: "ann"}}
	guest, six, nowhere := user, user, user
	guest.Identity, six.Identity, nowhere.Identity = router.Identity{}, router.Identity{}, router.Identity{}
	six.IP, nowhere.IP = netip.MustParseAddr("2001:db8:1:2:3::4"), netip.Addr{}
	for _, tt := range []struct {
		name string
		key  func(router.IngressContext) ratelimit.Key
		want [4]ratelimit.Key // for user, guest, a guest on IPv6, a guest of unknown address
	}{
		{"KeyPerUserPerType", ratelimit.KeyPerUserPerType, [4]ratelimit.Key{{"user", "acme", "ann", "SAY"}, {"conn", "c1", "", "SAY"}, {"conn", "c1", "", "SAY"}, {"conn", "c1", "", "SAY"}}},
		{"KeyPerUserOrIPPerType", ratelimit.KeyPerUserOrIPPerType, [4]ratelimit.Key{{"user", "acme", "ann", "SAY"}, {"ip", "192.0.2.1", "", "SAY"}, {"ip", "2001:db8:1:2::/64", "", "SAY"}, {"conn", "c1", "", "SAY"}}},
		{"KeyPerUser", ratelimit.KeyPerUser, [4]ratelimit.Key{{"user", "acme", "ann"}, {"conn", "c1"}, {"conn", "c1"}, {"conn", "c1"}}},
		{"KeyPerConn", ratelimit.KeyPerConn, [4]ratelimit.Key{{"conn", "c1"}, {"conn", "c1"}, {"conn", "c1"}, {"conn", "c1"}}},
		{"KeyPerIP", ratelimit.KeyPerIP, [4]ratelimit.Key{{"ip", "192.0.2.1"}, {"ip", "192.0.2.1"}, {"ip", "2001:db8:1:2::/64"}, {"conn", "c1"}}},
		{"KeyPerType", ratelimit.KeyPerType, [4]ratelimit.Key{{"type", "SAY"}, {"type", "SAY"}, {"type", "SAY"}, {"type", "SAY"}}},
	} {
		for i, in := range []router.IngressContext{user, guest, six, nowhere} {
			assert.Equal(t, tt.want[i], tt.key(in), tt.name)
		}
	}
}

func TestAUserIsNeverAStranger(t *testing.T) {
	stranger := from("")
	for _, key := range []func(router.IngressContext) ratelimit.Key{
		ratelimit.KeyPerUserPerType, ratelimit.KeyPerUserOrIPPerType, ratelimit.KeyPerUser,
	} {
		for _, name := range []string{"192.0.2.1", "c1", "conn", "ip", "SAY"} {
			assert.NotEqual(t, key(stranger), key(from(name)))
		}
	}
}

func TestAdmittingAllocatesNothing(t *testing.T) {
	admit := ratelimit.New(memory.NewLimiter(ratelimit.PerHour(1_000_000).Burst(600_000)), nil)
	in := from("ann")
	assert.Zero(t, testing.AllocsPerRun(1000, func() {
		if err := admit(t.Context(), in); err != nil {
			t.Fatal(err)
		}
	}))
}

func TestAnErrorIsNeverADenial(t *testing.T) {
	down := limiterFunc(func(context.Context, ratelimit.Key, int64) (ratelimit.Decision, error) {
		return ratelimit.Decision{Allowed: true}, io.ErrUnexpectedEOF
	})
	t.Run("denied by default", func(t *testing.T) {
		err := ratelimit.New(down, nil)(t.Context(), from("ann"))
		assert.Equal(t, errors.Unavailable, errors.CodeOf(err))
		assert.ErrorIs(t, err, io.ErrUnexpectedEOF)
	})
	t.Run("admitted if told so", func(t *testing.T) {
		var reported []error
		admit := ratelimit.New(down, &ratelimit.Options{OnUnavailable: ratelimit.Admit, OnError: func(err error) { reported = append(reported, err) }})
		require.NoError(t, admit(t.Context(), from("ann")))
		assert.Equal(t, []error{io.ErrUnexpectedEOF}, reported)
	})
	t.Run("decided by the fallback", func(t *testing.T) {
		admit := ratelimit.New(down, &ratelimit.Options{Fallback: memory.NewLimiter(ratelimit.PerHour(1))})
		require.NoError(t, admit(t.Context(), from("ann")))
		_, denied := errors.AsType[*router.LimitExceeded](admit(t.Context(), from("ann")))
		assert.True(t, denied)
	})
	t.Run("the fallback fails too", func(t *testing.T) {
		assert.Equal(t, errors.Unavailable, errors.CodeOf(ratelimit.New(down, &ratelimit.Options{Fallback: down})(t.Context(), from("ann"))))
	})
	t.Run("a denial is not asked about twice", func(t *testing.T) {
		admit := ratelimit.New(memory.NewLimiter(ratelimit.PerHour(1)), &ratelimit.Options{Fallback: limiterFunc(
			func(context.Context, ratelimit.Key, int64) (ratelimit.Decision, error) {
				t.Error("the fallback was asked")
				return ratelimit.Decision{}, nil
			})})
		require.NoError(t, admit(t.Context(), from("ann")))
		require.Error(t, admit(t.Context(), from("ann")))
	})
	t.Run("a connection that has gone is no outage", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		admit := ratelimit.New(limiterFunc(func(ctx context.Context, _ ratelimit.Key, _ int64) (ratelimit.Decision, error) {
			cancel()
			return ratelimit.Decision{}, ctx.Err()
		}), &ratelimit.Options{OnUnavailable: ratelimit.Admit, OnError: func(error) { t.Error("reported") }})
		assert.ErrorIs(t, admit(ctx, from("ann")), context.Canceled)
	})
}

func TestACallIsBoundedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hung := limiterFunc(func(ctx context.Context, _ ratelimit.Key, _ int64) (ratelimit.Decision, error) {
			<-ctx.Done()
			return ratelimit.Decision{}, ctx.Err()
		})
		for want, opts := range map[time.Duration]*ratelimit.Options{50 * time.Millisecond: nil, time.Second: {Timeout: time.Second}} {
			start := time.Now()
			err := ratelimit.New(hung, opts)(t.Context(), from("ann"))
			assert.Equal(t, errors.Unavailable, errors.CodeOf(err))
			assert.Equal(t, want, time.Since(start))
		}
	})
}

func TestABreakerKeepsAFailingStoreFromBeingAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls, healthy := 0, false
		store := limiterFunc(func(ctx context.Context, _ ratelimit.Key, _ int64) (ratelimit.Decision, error) {
			calls++
			if healthy {
				return ratelimit.Decision{Allowed: true}, nil
			}
			<-ctx.Done()
			return ratelimit.Decision{}, ctx.Err()
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
		assert.Zero(t, time.Since(start), "nobody waits while the breaker is open")

		time.Sleep(375 * time.Millisecond)
		require.Error(t, admit(t.Context(), from("ann")))
		require.Error(t, admit(t.Context(), from("ann")))
		assert.Equal(t, 6, calls, "one try, and the pause begins anew")

		healthy = true
		time.Sleep(375 * time.Millisecond)
		for range 10 {
			require.NoError(t, admit(t.Context(), from("ann")))
		}
		assert.Equal(t, 16, calls, "one success closes the breaker")
	})
}

func TestWrongOptionsPanic(t *testing.T) {
	l := memory.NewLimiter(ratelimit.PerSecond(1))
	assert.PanicsWithValue(t, "ratelimit: New needs a limiter", func() { ratelimit.New(nil, nil) })
	assert.PanicsWithValue(t, "ratelimit: Timeout is -1s; it must not be negative", func() { ratelimit.New(l, &ratelimit.Options{Timeout: -time.Second}) })
	assert.PanicsWithValue(t, "ratelimit: OnUnavailable is 7; it must be Deny or Admit", func() { ratelimit.New(l, &ratelimit.Options{OnUnavailable: 7}) })
}
