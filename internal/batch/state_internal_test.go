package batch

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/adapter"
)

func TestState_WaitsAreWholeTicks(t *testing.T) {
	units := adapter.UnitsOf(limit.PerSecond(300)) // a token returns in 3,333.3 µs
	token := units.CostUnits(1)
	s := State{Tick: time.Millisecond}
	d := s.decision(token, &units)
	assert.Equal(t, []time.Duration{4 * time.Millisecond, time.Second}, []time.Duration{d.RetryAfter, d.ResetAfter})
	assert.Equal(t, limit.Never, s.decision(units.CostUnits(301), &units).RetryAfter)
	assert.Zero(t, State{Units: token, Tick: time.Millisecond}.decision(token, &units).RetryAfter)
	assert.Equal(t, 2*time.Millisecond, s.reserveDecision(token, 1500*time.Microsecond, &units).RetryAfter, "1,834 µs rounded up")
	assert.Equal(t, 4*time.Millisecond, s.reserveDecision(token, time.Second, &units).RetryAfter)
	assert.Equal(t, 7*time.Millisecond, s.keepDecision(token, token, &units).RetryAfter)
	s.BlockedFor = 1001 * time.Microsecond
	assert.Equal(t, 2*time.Millisecond, s.decision(0, &units).RetryAfter)
	assert.Equal(t, 2*time.Millisecond, s.reserveDecision(token, time.Second, &units).RetryAfter)
	assert.Equal(t, limit.Never, s.keepDecision(token, units.Full(), &units).RetryAfter)
	s.Tick = 0
	assert.Equal(t, s.BlockedFor, s.decision(0, &units).RetryAfter)
}

// TestDenialCache_WaitsAreLongEnoughForACoarseClock compares denials of the cache with a store
// whose clock is rounded down to milliseconds, at any offset from the caller's.
func TestDenialCache_WaitsAreLongEnoughForACoarseClock(t *testing.T) {
	const tick = time.Millisecond
	rng := rand.New(rand.NewPCG(9, 10))
	clock := func(at time.Duration) time.Duration { return at - at%tick }
	micros := func(most int64) time.Duration { return time.Duration(rng.Int64N(most)) * time.Microsecond }
	denials := 0
	for range 20_000 {
		units := adapter.UnitsOf(limit.PerSecond(1 + rng.Int64N(2000)).Burst(3))
		costUnits := units.CostUnits(1 + rng.Int64N(3))
		var d denialCache
		sent := micros(10_000)
		decided := sent + micros(2000)
		received := decided + micros(2000)
		state := State{Units: rng.Int64N(costUnits), Tick: tick}
		if rng.IntN(4) == 0 {
			state.BlockedFor = time.Microsecond + micros(5000)
		}
		d.learn(1, state, costUnits, sent, received)
		allowed := func(at time.Duration) bool {
			passed := clock(at) - clock(decided)
			if state.BlockedFor > 0 {
				return passed >= state.BlockedFor
			}
			return state.Units+passed.Microseconds()*units.PerMicro() >= costUnits
		}
		now := received + micros(5000)
		got, ok := denial(&d, now, costUnits, &units)
		if !ok {
			continue
		}
		denials++
		require.False(t, allowed(now), "the cache denies only what the store would deny")
		require.True(t, allowed(now+got.RetryAfter), "%+v after %v", got, now-decided)
		transfer := received - clock(decided)
		require.False(t, allowed(now+got.RetryAfter-transfer-time.Microsecond), "the wait is too long")
		if state.BlockedFor == 0 && got.Remaining > 0 {
			require.GreaterOrEqual(t, state.Units+(clock(now)-clock(decided)).Microseconds()*units.PerMicro(), got.Remaining*units.PerToken())
		}
	}
	assert.Greater(t, denials, 1000)
}

func TestTake_TakesLargestMultiple(t *testing.T) {
	units := adapter.UnitsOf(limit.PerSecond(1).Burst(10))
	token := units.PerToken()
	for _, tt := range []struct {
		name string
		take Take
		held int64
		want int64
	}{
		{"all", takeAll(3*token, 0, &units), 3 * token, 3 * token},
		{"none", takeAll(3*token, 0, &units), 3*token - 1, 0},
		{"nothing", takeAll(0, 0, &units), token, 0},
		{"above the capacity", takeAll(units.CostUnits(11), 0, &units), 10 * token, 0},
		{"a deficit", takeAll(3*token, -2*token, &units), token, 3 * token},
		{"a larger deficit", takeAll(3*token, -2*token, &units), token - 1, 0},
		{"whole tokens", Take{Units: 5 * token, Divisor: token}, 3*token + 7, 3 * token},
		{"every unit", Take{Units: 5 * token, Lowest: -5 * token, Divisor: 1}, -token, 4 * token},
	} {
		assert.Equal(t, tt.want, tt.take.taken(State{Units: tt.held}), tt.name)
	}
	assert.Zero(t, takeAll(token, 0, &units).taken(State{Units: token, BlockedFor: 1}))
	p := NewPolicy(limit.PerSecond(1).Burst(10), nil)
	keeping := limit.Take{Cost: 3, Keep: 7}
	assert.Equal(t, []any{Take{Units: 3 * token, Lowest: 7 * token, Divisor: 3 * token}, 10 * token}, []any{p.Taking(&keeping), p.need(&keeping)})
	keeping.Keep = 11
	assert.Equal(t, []any{Take{Divisor: 1}, units.Full() + 1}, []any{p.Taking(&keeping), p.need(&keeping)})
}
