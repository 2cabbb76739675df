package ratelimit_test

import (
	"context"
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/middleware/ratelimit"
	"github.com/penstock-go/penstock/router"
)

func TestTiers_ChangeOfTierGrantsNoTokens(t *testing.T) {
	plan := "free"
	admit := ratelimit.Tiers(func(router.IngressContext) string { return plan }, map[string]limit.Limiter{
		"free": memory.NewLimiter(limit.PerHour(2).Named("free")),
		"pro":  memory.NewLimiter(limit.PerHour(5).Named("pro")),
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
	assert.Equal(t, 3, admitted(10), "two of five are used")
	plan = "free"
	assert.Zero(t, admitted(10), "changing back grants no full bucket")
	plan = "gold"
	assert.Equal(t, errors.Internal, errors.CodeOf(admit(t.Context(), from("ann"))))
	assert.Panics(t, func() { ratelimit.Tiers(nil, nil, nil) })
}

func TestTiers_ChargesOtherTiersUpToTheirTokens(t *testing.T) {
	plan := "pro"
	free := memory.NewLimiter(limit.PerHour(3).Named("free"))
	admit := ratelimit.Tiers(func(router.IngressContext) string { return plan }, map[string]limit.Limiter{
		"free": free,
		"pro":  memory.NewLimiter(limit.PerHour(20).Named("pro")),
	}, &ratelimit.Options{Key: ratelimit.KeyPerUser, Cost: func(router.IngressContext) int64 { return 2 }})
	for _, left := range []int64{1, 0, 0} {
		require.NoError(t, admit(t.Context(), from("ann")))
		d, err := free.Consume(t.Context(), ratelimit.KeyPerUser(from("ann")), 0)
		require.NoError(t, err)
		assert.Equal(t, left, d.Remaining)
	}
}

// TestTiers_ChargesAdmittedMessages covers messages that are admitted although their own bucket
// does not hold the cost.
func TestTiers_ChargesAdmittedMessages(t *testing.T) {
	for name, opts := range map[string]ratelimit.Options{
		"in a dry run": {DryRun: true},
		"charge only":  {ChargeOnly: func(router.IngressContext) bool { return true }},
	} {
		t.Run(name, func(t *testing.T) {
			pro := memory.NewLimiter(limit.PerHour(5))
			opts.Key = ratelimit.KeyPerUser
			admit := ratelimit.Tiers(func(router.IngressContext) string { return "free" }, map[string]limit.Limiter{
				"free": memory.NewLimiter(limit.PerHour(1)), "pro": pro,
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

func TestTiers_InvalidArgumentsPanic(t *testing.T) {
	l := memory.NewLimiter(limit.PerHour(1))
	of := func(router.IngressContext) string { return "free" }
	for want, limiters := range map[string]map[string]limit.Limiter{
		"Tiers needs a function and limiters": nil,
		"must be a limit.Refunder":            {"free": memory.NewCooldown(limit.CooldownPolicy{Max: 2, Window: 1e9, Penalty: 1e9}, nil)},
		"charged twice":                       {"free": l, "trial": l},
	} {
		func() {
			defer func() { assert.Contains(t, recover(), want) }()
			ratelimit.Tiers(of, limiters, nil)
		}()
	}
	_, ok := errors.AsType[*errors.Error](ratelimit.Tiers(func(router.IngressContext) string { return "" },
		map[string]limit.Limiter{"secret plan": l}, nil)(t.Context(), from("ann")))
	assert.False(t, ok, "clients do not see the names of plans")
}

// A downLimiter fails every call.
type downLimiter struct{ *memory.Limiter }

func (downLimiter) Consume(context.Context, limit.Key, int64) (limit.Decision, error) {
	return limit.Decision{}, io.ErrUnexpectedEOF
}

func TestTiers_AdmitsDuringOutageOfAnotherTier(t *testing.T) {
	down := downLimiter{memory.NewLimiter(limit.PerHour(1))}
	var seen []error
	admit := ratelimit.Tiers(func(router.IngressContext) string { return "free" }, map[string]limit.Limiter{
		"free": memory.NewLimiter(limit.PerHour(1)),
		"pro":  down,
	}, &ratelimit.Options{OnError: func(err error) { seen = append(seen, err) }})
	assert.NoError(t, admit(t.Context(), from("ann")))
	assert.Len(t, seen, 1)
	assert.ErrorContains(t, seen[0], `charging tier "pro"`)
}
