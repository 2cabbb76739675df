package batch

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/adapter"
	"github.com/penstock-go/penstock/limit/mode"
)

// leased is the Take that reserves 3 tokens for a minute.
func leased() *limit.Take { return &limit.Take{Cost: 3, Lease: time.Minute, Receipt: true} }

func TestDenialCache_AsksAfterTheEndOfALease(t *testing.T) {
	units := adapter.UnitsOf(limit.PerMinute(1).Burst(10))
	for tick, last := range map[time.Duration]time.Duration{0: 499 * time.Millisecond, time.Millisecond: 498 * time.Millisecond} {
		var d denialCache
		d.learn(1, State{LeaseEnds: 400 * time.Millisecond, Tick: tick}, units.CostUnits(1), 100*time.Millisecond, 200*time.Millisecond)
		got, ok := denial(&d, last, units.CostUnits(1), &units)
		assert.True(t, ok)
		assert.Equal(t, time.Minute-last+200*time.Millisecond, got.RetryAfter)
		_, ok = denial(&d, last+time.Millisecond, units.CostUnits(1), &units)
		assert.False(t, ok, "the lease may have ended 400 ms after the request was sent")
	}
}

func TestState_LeasesAreFull(t *testing.T) {
	units := adapter.UnitsOf(limit.PerSecond(1).Burst(10))
	token := units.PerToken()
	full := func(tokens int64, ends time.Duration) State {
		return State{Units: tokens * token, LeasesFull: true, LeaseEnds: ends}
	}
	coarse := full(5, 1500*time.Microsecond)
	coarse.Tick, coarse.passed = time.Millisecond, 300*time.Microsecond
	for _, tt := range []struct {
		name  string
		state State
		cost  int64
		want  limit.Decision
	}{
		{"the bucket has the cost", full(5, 2*time.Second), 3, limit.Decision{Remaining: 5, RetryAfter: 2 * time.Second, ResetAfter: 5 * time.Second}},
		{"a cost of 0", full(5, 2*time.Second), 0, limit.Decision{Remaining: 5, RetryAfter: 2 * time.Second, ResetAfter: 5 * time.Second}},
		{"the lease ends later", full(2, 2*time.Second), 3, limit.Decision{Remaining: 2, RetryAfter: 2 * time.Second, ResetAfter: 8 * time.Second}},
		{"the lease ends earlier", full(0, 2*time.Second), 3, limit.Decision{RetryAfter: 3 * time.Second, ResetAfter: 10 * time.Second}},
		{"above the capacity", full(0, 2*time.Second), 11, limit.Decision{RetryAfter: limit.Never, ResetAfter: 10 * time.Second}},
		{"a coarse clock", coarse, 3, limit.Decision{Remaining: 5, RetryAfter: 1700 * time.Microsecond, ResetAfter: 5*time.Second - 300*time.Microsecond}},
		{"not full", State{Units: 5 * token, LeaseEnds: time.Second}, 3, limit.Decision{Allowed: true, Remaining: 2, ResetAfter: 8 * time.Second}},
	} {
		tt.want.Limit = 10
		assert.Equal(t, tt.want, tt.state.leaseDecision(units.CostUnits(tt.cost), &units), tt.name)
	}
}

func TestPolicy_TakesWithALease(t *testing.T) {
	p := NewPolicy(limit.PerSecond(1).Burst(10), nil)
	now := func() time.Duration { return 0 }
	var sent Take
	state := State{Units: p.Full(), At: 7}
	call := func(what Take) (Reply, error) {
		sent = what
		return Reply{State: state}, nil
	}
	d, err := p.Take(1, leased(), now, call)
	require.NoError(t, err)
	require.NotZero(t, sent.Lease.ID)
	assert.Equal(t, Lease{ID: sent.Lease.ID, Length: time.Minute}, sent.Lease)
	assert.Equal(t, limit.Receipt{Tokens: 3, Stamp: 7, Lease: sent.Lease.ID}, d.Receipt)

	d, err = p.Take(1, &limit.Take{Lease: time.Minute, Receipt: true}, now, call)
	require.NoError(t, err)
	assert.Zero(t, d.Receipt, "a lease of nothing")

	state = State{Units: p.CostUnits(3), LeasesFull: true, LeaseEnds: time.Second}
	d, err = p.Take(1, leased(), now, call)
	require.NoError(t, err)
	assert.Equal(t, limit.Decision{Limit: 10, Remaining: 3, RetryAfter: time.Second, ResetAfter: 7 * time.Second}, d)
	_, ok := p.Remembered(1, &limit.Take{Cost: 3}, 0)
	assert.False(t, ok, "a call without a lease is not denied")
}

// TestNewLease_IdentifiersAreDifferent fails once in 10^8 runs.
func TestNewLease_IdentifiersAreDifferent(t *testing.T) {
	seen := map[int64]bool{}
	for range 10_000 {
		l := NewLease(leased())
		require.False(t, seen[l.ID])
		require.True(t, l.ID > 0 && l.ID < 1<<53, "%d is not exact in a double", l.ID)
		seen[l.ID] = true
	}
}

func TestPolicy_Settles(t *testing.T) {
	first := NewPolicy(limit.PerSecond(1).Burst(10).Named("p"), nil)
	second := NewPolicy(limit.PerSecond(1).Burst(11).Named("p"), first)
	token := first.PerToken()
	receipt := limit.Receipt{Tokens: 3, Stamp: 7, Lease: 42}
	for _, tt := range []struct {
		name    string
		policy  *Policy
		used    int64
		receipt limit.Receipt
		want    Take
	}{
		{"less", first, 2, receipt, Take{Units: 2 * token, Lease: Lease{ID: 42, Excess: -token, Returns: true}}},
		{"nothing", first, 0, receipt, Take{Lease: Lease{ID: 42, Excess: -3 * token, Returns: true}}},
		{"a policy that has changed", second, 2, receipt, Take{Units: 2 * token, Lease: Lease{ID: 42, Excess: -token}}},
		{"the largest number", first, math.MaxInt64, receipt, Take{Units: first.DebtUnits(math.MaxInt64), Lease: Lease{ID: 42, Excess: first.DebtUnits(math.MaxInt64), Returns: true}}},
		{"of a take of nothing", first, 2, limit.Receipt{}, Take{Units: 2 * token}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.want.Lowest, tt.want.Divisor = tt.policy.Full()-adapter.MaxDeficit, 1
			tt.policy.denials.learn(1, State{}, tt.policy.CostUnits(1), 0, 0)
			var got Take
			d, err := tt.policy.Take(1, &limit.Take{Cost: tt.used, Mode: mode.Settling, Undo: &tt.receipt}, func() time.Duration { return 1 }, func(what Take) (Reply, error) {
				got = what
				return Reply{}, nil
			})
			require.NoError(t, err)
			assert.Equal(t, limit.Decision{}, d)
			assert.Equal(t, tt.want, got)
			_, ok := tt.policy.Remembered(1, &limit.Take{Cost: 1}, 1)
			assert.False(t, ok, "tokens may have returned")
		})
	}
}
