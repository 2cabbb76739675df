package batch_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/batch"
	"github.com/penstock-go/penstock/limit"
)

func TestState_WaitsAreWholeTicks(t *testing.T) {
	units := limit.PerSecond(300).Units() // a token returns in 3,333.3 µs
	token := units.CostUnits(1)
	s := batch.State{Tick: time.Millisecond}
	d := s.Decision(token, &units)
	assert.Equal(t, []time.Duration{4 * time.Millisecond, time.Second}, []time.Duration{d.RetryAfter, d.ResetAfter})
	assert.Equal(t, limit.Never, s.Decision(units.CostUnits(301), &units).RetryAfter)
	assert.Zero(t, batch.State{Units: token, Tick: time.Millisecond}.Decision(token, &units).RetryAfter)
	assert.Equal(t, 2*time.Millisecond, s.ReserveDecision(token, 1500*time.Microsecond, &units).RetryAfter, "1,834 µs rounded up")
	assert.Equal(t, 4*time.Millisecond, s.ReserveDecision(token, time.Second, &units).RetryAfter)
	assert.Equal(t, 7*time.Millisecond, s.KeepDecision(token, token, &units).RetryAfter)
	s.BlockedFor = 1001 * time.Microsecond
	assert.Equal(t, 2*time.Millisecond, s.Decision(0, &units).RetryAfter)
	assert.Equal(t, 2*time.Millisecond, s.ReserveDecision(token, time.Second, &units).RetryAfter)
	assert.Equal(t, limit.Never, s.KeepDecision(token, units.Full(), &units).RetryAfter)
	s.Tick = 0
	assert.Equal(t, s.BlockedFor, s.Decision(0, &units).RetryAfter)
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
		units := limit.PerSecond(1 + rng.Int64N(2000)).Burst(3).Units()
		costUnits := units.CostUnits(1 + rng.Int64N(3))
		var d batch.DenialCache
		sent := micros(10_000)
		decided := sent + micros(2000)
		received := decided + micros(2000)
		state := batch.State{Units: rng.Int64N(costUnits), Tick: tick}
		if rng.IntN(4) == 0 {
			state.BlockedFor = time.Microsecond + micros(5000)
		}
		d.Learn(1, state, costUnits, sent, received)
		allowed := func(at time.Duration) bool {
			passed := clock(at) - clock(decided)
			if state.BlockedFor > 0 {
				return passed >= state.BlockedFor
			}
			return state.Units+passed.Microseconds()*units.PerMicro() >= costUnits
		}
		now := received + micros(5000)
		got, ok := d.Decide(1, now, costUnits, &units)
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
	units := limit.PerSecond(1).Burst(10).Units()
	token := units.PerToken()
	for _, tt := range []struct {
		name string
		take batch.Take
		held int64
		want int64
	}{
		{"all", batch.TakeAll(3*token, 0, &units), 3 * token, 3 * token},
		{"none", batch.TakeAll(3*token, 0, &units), 3*token - 1, 0},
		{"nothing", batch.TakeAll(0, 0, &units), token, 0},
		{"above the capacity", batch.TakeAll(units.CostUnits(11), 0, &units), 10 * token, 0},
		{"a deficit", batch.TakeAll(3*token, -2*token, &units), token, 3 * token},
		{"a larger deficit", batch.TakeAll(3*token, -2*token, &units), token - 1, 0},
		{"whole tokens", batch.Take{Units: 5 * token, Divisor: token}, 3*token + 7, 3 * token},
		{"every unit", batch.Take{Units: 5 * token, Lowest: -5 * token, Divisor: 1}, -token, 4 * token},
	} {
		assert.Equal(t, tt.want, tt.take.Taken(batch.State{Units: tt.held}), tt.name)
	}
	assert.Zero(t, batch.TakeAll(token, 0, &units).Taken(batch.State{Units: token, BlockedFor: 1}))
	take, need := batch.TakeKeeping(3*token, 7*token, &units)
	assert.Equal(t, []any{batch.Take{Units: 3 * token, Lowest: 7 * token, Divisor: 3 * token}, 10 * token}, []any{take, need})
	take, need = batch.TakeKeeping(3*token, units.CostUnits(11), &units)
	assert.Equal(t, []any{batch.Take{Divisor: 1}, units.Full() + 1}, []any{take, need})
}
