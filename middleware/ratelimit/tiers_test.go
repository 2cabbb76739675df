package ratelimit_test

import (
	"context"
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/middleware/ratelimit"
	"github.com/penstock-go/penstock/router"
)

func TestTiers(t *testing.T) {
	plan := "free"
	admit := ratelimit.Tiers(func(router.IngressContext) string { return plan }, map[string]ratelimit.Limiter{
		"free": memory.NewLimiter(ratelimit.PerHour(2).Named("free")),
		"pro":  memory.NewLimiter(ratelimit.PerHour(5).Named("pro")),
	}, nil)
	admitted := func(n int) (yes int) {
		for range n {
			if admit(t.Context(), from("ann")) == nil {
				yes++
			}
		}
		return yes
	}
	assert.Equal(t, 2, admitted(10))
	plan = "pro"
	assert.Equal(t, 3, admitted(10), "two of five are spent")
	plan = "free"
	assert.Zero(t, admitted(10), "nor is a way back a fresh bucket")
	plan = "gold"
	assert.Equal(t, errors.Internal, errors.CodeOf(admit(t.Context(), from("ann"))))
	assert.Panics(t, func() { ratelimit.Tiers(nil, nil, nil) })
}

func TestTiersTakeWhatTheOthersHold(t *testing.T) {
	plan := "pro"
	free := memory.NewLimiter(ratelimit.PerHour(3).Named("free"))
	admit := ratelimit.Tiers(func(router.IngressContext) string { return plan }, map[string]ratelimit.Limiter{
		"free": free,
		"pro":  memory.NewLimiter(ratelimit.PerHour(20).Named("pro")),
	}, &ratelimit.Options{Key: ratelimit.KeyPerUser, Cost: func(router.IngressContext) int64 { return 2 }})
	for _, left := range []int64{1, 0, 0} {
		require.NoError(t, admit(t.Context(), from("ann")))
		d, err := free.Consume(t.Context(), ratelimit.KeyPerUser(from("ann")), 0)
		require.NoError(t, err)
		assert.Equal(t, left, d.Remaining)
	}
}

// TestTiersChargeWhoeverEnters though the message's own bucket does not hold its cost.
func TestTiersChargeWhoeverEnters(t *testing.T) {
	for name, opts := range map[string]ratelimit.Options{
		"in a dry run": {OnDryRun: func(router.IngressContext, *router.LimitExceeded) {}},
		"charge only":  {ChargeOnly: func(router.IngressContext) bool { return true }},
	} {
		t.Run(name, func(t *testing.T) {
			pro := memory.NewLimiter(ratelimit.PerHour(5))
			opts.Key = ratelimit.KeyPerUser
			admit := ratelimit.Tiers(func(router.IngressContext) string { return "free" }, map[string]ratelimit.Limiter{
				"free": memory.NewLimiter(ratelimit.PerHour(1)), "pro": pro,
			}, &opts)
			for range 3 {
				require.NoError(t, admit(t.Context(), from("ann")))
			}
			d, err := pro.Consume(t.Context(), ratelimit.KeyPerUser(from("ann")), 0)
			require.NoError(t, err)
			assert.EqualValues(t, 2, d.Remaining)
		})
	}
}

func TestTiersThatMakeNoSense(t *testing.T) {
	l := memory.NewLimiter(ratelimit.PerHour(1))
	of := func(router.IngressContext) string { return "free" }
	for want, limiters := range map[string]map[string]ratelimit.Limiter{
		"Tiers needs a function and limiters": nil,
		"must be Adjustable":                  {"free": memory.NewCooldown(ratelimit.CooldownPolicy{Max: 2, Window: 1e9, Penalty: 1e9}, nil)},
		"charged twice":                       {"free": l, "trial": l},
	} {
		func() {
			defer func() { assert.Contains(t, recover(), want) }()
			ratelimit.Tiers(of, limiters, nil)
		}()
	}
	_, ok := errors.AsType[*errors.Error](ratelimit.Tiers(func(router.IngressContext) string { return "" },
		map[string]ratelimit.Limiter{"secret plan": l}, nil)(t.Context(), from("ann")))
	assert.False(t, ok, "clients are not told the names of plans")
}

// A downLimiter cannot decide.
type downLimiter struct{ *memory.Limiter }

func (downLimiter) Consume(context.Context, ratelimit.Key, int64) (ratelimit.Decision, error) {
	return ratelimit.Decision{}, io.ErrUnexpectedEOF
}

func TestTiersSurviveAnOutageOfAnother(t *testing.T) {
	down := downLimiter{memory.NewLimiter(ratelimit.PerHour(1))}
	var seen []error
	admit := ratelimit.Tiers(func(router.IngressContext) string { return "free" }, map[string]ratelimit.Limiter{
		"free": memory.NewLimiter(ratelimit.PerHour(1)),
		"pro":  down,
	}, &ratelimit.Options{OnError: func(err error) { seen = append(seen, err) }})
	assert.NoError(t, admit(t.Context(), from("ann")))
	assert.Len(t, seen, 1)
	assert.ErrorContains(t, seen[0], `charging tier "pro"`)
}
