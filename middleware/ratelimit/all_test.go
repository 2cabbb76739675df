package ratelimit_test

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/fakelimiter"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/observe"
	"github.com/penstock-go/penstock/middleware/ratelimit"
	"github.com/penstock-go/penstock/router"
)

// An uncomparable limiter cannot be compared with others.
type uncomparable struct {
	limit.Limiter
	_ []int
}

func perTenant(in router.IngressContext) limit.Key {
	return limit.Key{"tenant", in.Identity.TenantID}
}

func remaining(t *testing.T, l limit.Limiter, key limit.Key) int64 {
	t.Helper()
	d, err := limit.Consume(t.Context(), l, key, 0)
	require.NoError(t, err)
	return d.Remaining
}

func TestNewAll_DeniedMessageTakesFromNoBucket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		users := memory.NewLimiter(limit.PerMinute(3).Named("user"))
		tenants := memory.NewLimiter(limit.PerHour(5).Named("tenant"))
		admit := ratelimit.NewAll([]ratelimit.Rule{
			{Limiter: users, Key: ratelimit.KeyPerUser}, {Limiter: tenants, Key: perTenant},
		}, nil)
		for range 3 {
			require.NoError(t, admit(t.Context(), from("ann")))
		}
		assert.Equal(t, &router.LimitExceeded{Kind: router.LimitRate, Observed: 1, Limit: 3, Policy: "user", RetryAfter: 20 * time.Second}, admit(t.Context(), from("ann")))
		assert.EqualValues(t, 2, remaining(t, tenants, limit.Key{"tenant"}), "the denied message was charged to the tenant")
		for range 2 {
			require.NoError(t, admit(t.Context(), from("bob")))
		}
		assert.Equal(t, &router.LimitExceeded{Kind: router.LimitRate, Observed: 1, Limit: 5, Policy: "tenant", RetryAfter: 12 * time.Minute}, admit(t.Context(), from("bob")))
		assert.EqualValues(t, 1, remaining(t, users, user("bob")), "the denied message was charged to the user")
	})
}

func TestNewAll_SameBucketIsChargedTheSum(t *testing.T) {
	limiter := memory.NewLimiter(limit.PerHour(10).Named("any"))
	big := int64(2)
	admit := ratelimit.NewAll([]ratelimit.Rule{
		{Limiter: limiter, Key: ratelimit.KeyPerIP, Cost: func(router.IngressContext) int64 { return 3 }},
		{Limiter: limiter, Key: ratelimit.KeyPerUser},
		{Limiter: limiter, Key: ratelimit.KeyPerIP, Cost: func(router.IngressContext) int64 { return big }},
	}, nil)
	in := from("ann")
	require.NoError(t, admit(t.Context(), in))
	assert.EqualValues(t, 5, remaining(t, limiter, limit.Key{"ip", "192.0.2.1"}))
	assert.EqualValues(t, 9, remaining(t, limiter, user("ann")))
	big = math.MaxInt64
	exceeded, ok := errors.AsType[*router.LimitExceeded](admit(t.Context(), in))
	require.True(t, ok, "a sum that overflows is a cost above the capacity")
	assert.Equal(t, limit.Never, exceeded.RetryAfter)
	assert.EqualValues(t, int64(math.MaxInt64), exceeded.Observed)
	assert.EqualValues(t, 5, remaining(t, limiter, limit.Key{"ip", "192.0.2.1"}))
}

func TestNewAll_RuleDoesNotApplyToMessageThatCostsNothing(t *testing.T) {
	users, tenants := memory.NewLimiter(limit.PerHour(1)), memory.NewLimiter(limit.PerHour(2))
	var observed int
	admit := ratelimit.NewAll([]ratelimit.Rule{
		{Limiter: users, Key: ratelimit.KeyPerUser, Cost: func(in router.IngressContext) int64 { return in.Size }},
		{Limiter: tenants, Key: perTenant, Cost: func(in router.IngressContext) int64 {
			if in.Type == "PING" {
				return 0
			}
			return 1
		}},
	}, &ratelimit.Options{Observe: func(observe.Observation) { observed++ }})
	in := from("ann")
	require.NoError(t, users.Block(t.Context(), user("ann"), time.Hour))
	require.NoError(t, admit(t.Context(), in), "the user's rule does not apply")
	assert.EqualValues(t, 1, remaining(t, tenants, limit.Key{"tenant"}))
	assert.Equal(t, 1, observed)
	in.Type = "PING"
	require.NoError(t, admit(t.Context(), in))
	assert.Equal(t, 1, observed, "a message to which no rule applies is not limited")
}

func TestNewAll_RejectsInvalidCost(t *testing.T) {
	limiter := memory.NewLimiter(limit.PerHour(10))
	admit := ratelimit.NewAll([]ratelimit.Rule{
		{Limiter: limiter}, {Limiter: limiter, Key: perTenant, Cost: func(router.IngressContext) int64 { return -1 }},
	}, &ratelimit.Options{FailOpen: true, DryRun: true})
	err := admit(t.Context(), from("ann"))
	assert.Equal(t, errors.InvalidArgument, errors.CodeOf(err))
	assert.EqualValues(t, 10, remaining(t, limiter, limit.Key{"user", "", "ann", "SAY"}))
}

func TestNewAll_ObservesTheDecidingPolicy(t *testing.T) {
	users, tenants := memory.NewLimiter(limit.PerHour(9).Named("user")), memory.NewLimiter(limit.PerHour(1).Named("tenant"))
	rules := []ratelimit.Rule{
		{Limiter: users, Key: ratelimit.KeyPerUser, Cost: func(router.IngressContext) int64 { return 2 }}, {Limiter: tenants, Key: perTenant},
	}
	var observed []observe.Observation
	record := func(o observe.Observation) { o.Duration = 0; observed = append(observed, o) }
	admit := ratelimit.NewAll(rules, &ratelimit.Options{Name: "chat", Observe: record, Jitter: time.Hour})
	require.NoError(t, admit(t.Context(), from("ann")))
	exceeded, ok := errors.AsType[*router.LimitExceeded](admit(t.Context(), from("ann")))
	require.True(t, ok)
	assert.Equal(t, "tenant", exceeded.Policy)
	assert.EqualValues(t, 1, exceeded.Observed, "the cost of the rule that decided")
	assert.GreaterOrEqual(t, exceeded.RetryAfter, time.Hour-time.Second)
	require.NoError(t, users.Block(t.Context(), user("ann"), 24*time.Hour))
	require.Error(t, admit(t.Context(), from("ann")))
	called := observe.Observation{Limit: "chat", Kind: observe.Rate, Called: true}
	admitted, rejected, blocked := called, called, called
	admitted.Outcome, admitted.Policy = observe.Admitted, "tenant"
	rejected.Outcome, rejected.Policy = observe.Rejected, "tenant"
	blocked.Outcome, blocked.Policy, blocked.Reason = observe.Rejected, "user", limit.Blocked
	assert.Equal(t, []observe.Observation{admitted, rejected, blocked}, observed)
}

func TestNewAll_DryRunChargesWhatEnforcementWould(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		users, tenants := memory.NewLimiter(limit.PerHour(9)), memory.NewLimiter(limit.PerHour(2).Named("tenant"))
		rules := []ratelimit.Rule{{Limiter: users, Key: ratelimit.KeyPerUser}, {Limiter: tenants, Key: perTenant}}
		admit := ratelimit.NewAll(rules, &ratelimit.Options{DryRun: true})
		in, seen := reporting(t, from("ann"))
		for range 5 {
			require.NoError(t, admit(t.Context(), in))
		}
		synctest.Wait()
		require.Len(t, seen.limits, 3)
		assert.Equal(t, "tenant", seen.limits[0].Policy)
		assert.True(t, seen.limits[0].DryRun)
		assert.EqualValues(t, 7, remaining(t, users, user("ann")))
	})
}

// TestNewAll_RefundsAndFollowsFailOpen lets the second limiter of a pair that cannot decide
// together fail, until the breaker opens.
func TestNewAll_RefundsAndFollowsFailOpen(t *testing.T) {
	for _, failOpen := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			users := memory.NewLimiter(limit.PerHour(9))
			remote := &fakelimiter.Limiter{Hangs: true, Decision: limit.Decision{Allowed: true}}
			var reported []error
			var outcomes []observe.Outcome
			admit := ratelimit.NewAll([]ratelimit.Rule{{Limiter: users, Key: ratelimit.KeyPerUser}, {Limiter: remote, Key: perTenant}},
				&ratelimit.Options{
					FailOpen: failOpen,
					Observe: func(o observe.Observation) {
						if outcomes = append(outcomes, o.Outcome); o.Err != nil {
							reported = append(reported, o.Err)
						}
					},
				})
			start := time.Now()
			for range 10 {
				err := admit(t.Context(), from("ann"))
				if failOpen {
					require.NoError(t, err)
					continue
				}
				require.ErrorIs(t, err, reported[len(reported)-1])
				assert.Equal(t, errors.Unavailable, errors.CodeOf(err))
			}
			assert.Equal(t, 5*50*time.Millisecond, time.Since(start), "five messages wait for the default timeout; then the breaker is open")
			assert.Len(t, remote.Calls, 5)
			assert.Len(t, reported, 10)
			assert.Contains(t, outcomes, observe.BreakerOpened)
			assert.EqualValues(t, 9, remaining(t, users, user("ann")), "tokens of undecided messages were not refunded")
			remote.Hangs = false
			time.Sleep(time.Second)
			require.NoError(t, admit(t.Context(), from("ann")))
			assert.Contains(t, outcomes, observe.BreakerClosed)
			assert.EqualValues(t, 8, remaining(t, users, user("ann")))
		})
	}
}

func TestNewAll_CanceledMessageIsNotDecided(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	remote := &fakelimiter.Limiter{Do: func(context.Context, limit.Key, limit.Take) (limit.Decision, error) {
		cancel()
		return limit.Decision{}, ctx.Err()
	}}
	var outcome observe.Outcome
	admit := ratelimit.NewAll([]ratelimit.Rule{{Limiter: remote}}, &ratelimit.Options{
		FailOpen: true, Observe: func(o observe.Observation) { outcome = o.Outcome },
	})
	require.ErrorIs(t, admit(ctx, from("ann")), context.Canceled)
	assert.Equal(t, observe.Canceled, outcome)
}

func TestNewAll_PanicsOnInvalidRulesAndOptions(t *testing.T) {
	limiter := memory.NewLimiter(limit.PerHour(1))
	rules := []ratelimit.Rule{{Limiter: limiter}}
	number := func(router.IngressContext) int64 { return 1 }
	for _, tt := range []struct {
		name  string
		rules []ratelimit.Rule
		opts  *ratelimit.Options
		want  string
	}{
		{"no rules", nil, nil, "ratelimit: NewAll needs a rule"},
		{"no limiter", []ratelimit.Rule{{}}, nil, "ratelimit: rule 0 needs a limiter"},
		{"no undo", []ratelimit.Rule{rules[0], {Limiter: &fakelimiter.Limiter{Plain: true}}}, nil, "ratelimit: the limiter of rule 1 is a *fakelimiter.Limiter, which cannot undo a take: the limiter can only take a cost whole"},
		{"slice", []ratelimit.Rule{{Limiter: uncomparable{Limiter: limiter}}}, nil, "ratelimit: the limiter of rule 0 is a ratelimit_test.uncomparable, which cannot be compared; pass a pointer"},
		{"Key", rules, &ratelimit.Options{Key: ratelimit.KeyPerUser}, "ratelimit: NewAll does not use Options.Key; set Rule.Key"},
		{"Cost", rules, &ratelimit.Options{Cost: number}, "ratelimit: NewAll does not use Options.Cost; set Rule.Cost"},
		{"MaxWait", rules, &ratelimit.Options{MaxWait: time.Second}, "ratelimit: NewAll does not support MaxWait; use New with limit.AllOf if the rules have the same key"},
		{"Keep", rules, &ratelimit.Options{Keep: number}, "ratelimit: NewAll does not support Keep; use New"},
		{"Fallback", rules, &ratelimit.Options{Fallback: limiter}, "ratelimit: NewAll does not support Fallback; set FailOpen"},
		{"Jitter", rules, &ratelimit.Options{Jitter: -1}, "ratelimit: Jitter is -1ns; it must not be negative"},
	} {
		assert.PanicsWithValue(t, tt.want, func() { ratelimit.NewAll(tt.rules, tt.opts) }, tt.name)
	}
}
