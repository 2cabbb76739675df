package ratelimit_test

import (
	"io"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/fakelimiter"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/middleware/ratelimit"
	"github.com/penstock-go/penstock/router"
)

func from(user string) router.IngressContext {
	return router.IngressContext{Type: "SAY", ConnID: "c1", IP: netip.MustParseAddr("192.0.2.1"), Identity: router.Identity{UserID: user}}
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

func TestNew_AdmittingAllocatesNothing(t *testing.T) {
	admit := ratelimit.New(memory.NewLimiter(limit.PerHour(1_000_000).Burst(600_000)), nil)
	in := from("ann")
	assert.Zero(t, testing.AllocsPerRun(1000, func() {
		if err := admit(t.Context(), in); err != nil {
			t.Fatal(err)
		}
	}))
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
		down := ratelimit.New(&fakelimiter.Limiter{Err: io.ErrUnexpectedEOF}, &ratelimit.Options{DryRun: true})
		assert.NoError(t, down(t.Context(), in), "a dry run rejects no message")
		synctest.Wait()
		assert.Len(t, seen.limits, 2, "the limiter decided nothing")
		assert.Len(t, seen.errs, 1)
	})
}

func TestNew_InvalidOptionsPanic(t *testing.T) {
	bucket, plain := memory.NewLimiter(limit.PerSecond(1)), &fakelimiter.Limiter{Plain: true}
	keep := func(router.IngressContext) int64 { return 1 }
	const cannot = " is set, which a *fakelimiter.Limiter cannot do: the limiter can only take a cost whole"
	for _, tt := range []struct {
		limiter limit.Limiter
		opts    ratelimit.Options
		want    string
	}{
		{nil, ratelimit.Options{}, "New needs a limiter"},
		{bucket, ratelimit.Options{Timeout: -time.Second}, "Timeout is -1s; it must not be negative"},
		{bucket, ratelimit.Options{Jitter: -1}, "Jitter is -1ns; it must not be negative"},
		{bucket, ratelimit.Options{MaxWait: -1}, "MaxWait is -1ns; it must be from 0 to 1h0m0s"},
		{bucket, ratelimit.Options{MaxWait: time.Hour + 1}, "MaxWait is 1h0m0.000000001s; it must be from 0 to 1h0m0s"},
		{bucket, ratelimit.Options{Keep: keep, MaxWait: 1}, "Keep and MaxWait are set; set one of them"},
		{bucket, ratelimit.Options{AccessKey: ratelimit.KeyPerIP}, "AccessKey is set, but Access is nil; set Access too"},
		{plain, ratelimit.Options{MaxWait: 1}, "MaxWait" + cannot},
		{plain, ratelimit.Options{Keep: keep}, "Keep" + cannot},
		{plain, ratelimit.Options{Refund: true}, "Refund" + cannot},
		{bucket, ratelimit.Options{Refund: true, Fallback: plain}, "Refund" + cannot},
	} {
		assert.PanicsWithValue(t, "ratelimit: "+tt.want, func() { ratelimit.New(tt.limiter, &tt.opts) })
	}
}
