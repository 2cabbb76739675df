package ratelimit_test

import (
	"io"
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

func TestTiers_ChargesOtherTiersTheFullCost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		plan := "pro"
		free := memory.NewLimiter(limit.PerHour(3).Named("free"))
		admit := ratelimit.Tiers(func(router.IngressContext) string { return plan }, map[string]limit.Limiter{
			"free": free,
			"pro":  memory.NewLimiter(limit.PerHour(20).Named("pro")),
		}, &ratelimit.Options{Key: ratelimit.KeyPerUser, Cost: func(router.IngressContext) int64 { return 2 }})
		for _, full := range []time.Duration{40 * time.Minute, 80 * time.Minute} {
			require.NoError(t, admit(t.Context(), from("ann")))
			d, err := limit.Consume(t.Context(), free, ratelimit.KeyPerUser(from("ann")), 0)
			require.NoError(t, err)
			assert.Equal(t, full, d.ResetAfter, "it lacks a token after the second message")
		}
	})
}

// TestTiers_ChargesOtherTiersForAdmittedMessages covers messages that are admitted although
// their own bucket does not hold the cost. A dry run charges for those that it would admit.
func TestTiers_ChargesOtherTiersForAdmittedMessages(t *testing.T) {
	for name, tt := range map[string]struct {
		opts ratelimit.Options
		left int64 // of 5 tokens, after three messages of which the own tier admits one
	}{
		"enforced":    {ratelimit.Options{}, 4},
		"dry run":     {ratelimit.Options{DryRun: true}, 4},
		"charge only": {ratelimit.Options{ChargeOnly: func(router.IngressContext) bool { return true }}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			pro := memory.NewLimiter(limit.PerHour(5))
			tt.opts.Key = ratelimit.KeyPerUser
			admit := ratelimit.Tiers(func(router.IngressContext) string { return "free" }, map[string]limit.Limiter{
				"free": memory.NewLimiter(limit.PerHour(1)), "pro": pro,
			}, &tt.opts)
			for i := range 3 {
				rejected := admit(t.Context(), from("ann")) != nil
				assert.Equal(t, name == "enforced" && i > 0, rejected)
			}
			d, err := limit.Consume(t.Context(), pro, ratelimit.KeyPerUser(from("ann")), 0)
			require.NoError(t, err)
			assert.Equal(t, tt.left, d.Remaining)
		})
	}
}

// TestTiers_DryRunDuringOutageChargesByFailOpen compares a dry run with the enforcement.
func TestTiers_DryRunDuringOutageChargesByFailOpen(t *testing.T) {
	for policy, left := range map[bool]int64{false: 5, true: 4} {
		for _, dryRun := range []bool{false, true} {
			pro := memory.NewLimiter(limit.PerHour(5))
			admit := ratelimit.Tiers(func(router.IngressContext) string { return "free" }, map[string]limit.Limiter{
				"free": &fakelimiter.Limiter{Err: io.ErrUnexpectedEOF}, "pro": pro,
			}, &ratelimit.Options{Key: ratelimit.KeyPerUser, DryRun: dryRun, FailOpen: policy})
			err := admit(t.Context(), from("ann"))
			assert.Equal(t, !dryRun && !policy, err != nil)
			d, err := limit.Consume(t.Context(), pro, ratelimit.KeyPerUser(from("ann")), 0)
			require.NoError(t, err)
			assert.Equal(t, left, d.Remaining, "dry run: %v, policy: %v", dryRun, policy)
		}
	}
}

func TestTiers_InvalidArgumentsPanic(t *testing.T) {
	l := memory.NewLimiter(limit.PerHour(1))
	of := func(router.IngressContext) string { return "free" }
	for want, limiters := range map[string]map[string]limit.Limiter{
		"Tiers needs a function and limiters": nil,
		"which cannot be charged":             {"free": memory.NewCooldown(limit.CooldownPolicy{Max: 2, Window: 1e9, Penalty: 1e9}, nil)},
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

func TestTiers_AdmitsDuringOutageOfAnotherTier(t *testing.T) {
	in, seen := reporting(t, from("ann"))
	admit := ratelimit.Tiers(func(router.IngressContext) string { return "free" }, map[string]limit.Limiter{
		"free": memory.NewLimiter(limit.PerHour(1)),
		"pro":  &fakelimiter.Limiter{Err: io.ErrUnexpectedEOF},
	}, nil)
	assert.NoError(t, admit(t.Context(), in))
	require.Len(t, seen.errs, 1)
	assert.ErrorContains(t, seen.errs[0], `charging tier "pro"`)
}

func TestTiers_JointLimitersAreCharged(t *testing.T) {
	free := limit.AllOf(memory.NewLimiter(limit.PerHour(5)), memory.NewLimiter(limit.PerHour(50)))
	tier := "pro"
	admit := ratelimit.Tiers(func(router.IngressContext) string { return tier },
		map[string]limit.Limiter{"free": free, "pro": memory.NewLimiter(limit.PerHour(100))},
		&ratelimit.Options{Cost: func(in router.IngressContext) int64 { return in.Size }})
	in, seen := reporting(t, router.IngressContext{Type: "SAY", Identity: router.Identity{UserID: "ann"}, Size: 20})
	defer func() { assert.Empty(t, seen.errs) }()
	require.NoError(t, admit(t.Context(), in), "the cost is above a capacity of the other tier")
	tier, in.Size = "free", 1
	require.Error(t, admit(t.Context(), in))
}
