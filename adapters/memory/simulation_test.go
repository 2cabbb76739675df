package memory_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/adapter"
	"github.com/penstock-go/penstock/limit/limittest"
)

// A manualClock is a clock that only sleep advances.
type manualClock struct{ at time.Time }

func newManualClock() *manualClock {
	return &manualClock{time.Date(2026, 3, 28, 22, 59, 59, 123_456_000, time.UTC)}
}

func (c *manualClock) now() time.Time        { return c.at }
func (c *manualClock) sleep(d time.Duration) { c.at = c.at.Add(d) }

func testSimulatedWindows[P any](t *testing.T, cases []limittest.WindowCase[P], newLimiter func(*memory.Simulation, P) adapter.Resetter) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			clock := newManualClock()
			simulation := memory.NewSimulation(clock.now)
			c.Run(t, limittest.WindowHarness[P]{
				New:   func(p P) adapter.Resetter { return newLimiter(simulation, p) },
				Sleep: clock.sleep, Now: clock.now,
			})
		})
	}
}

func TestSimulation_WindowsFulfillContractOnManualClock(t *testing.T) {
	testSimulatedWindows(t, limittest.SlidingLogCases(), func(s *memory.Simulation, p limit.WindowPolicy) adapter.Resetter { return s.NewSlidingLog(p) })
	testSimulatedWindows(t, limittest.SlidingCounterCases(), func(s *memory.Simulation, p limit.WindowPolicy) adapter.Resetter { return s.NewSlidingCounter(p) })
	testSimulatedWindows(t, limittest.QuotaCases(), func(s *memory.Simulation, p limit.QuotaPolicy) adapter.Resetter { return s.NewQuota(p) })
}

func TestSimulation_DecidesLikeRealClock(t *testing.T) {
	bucket := limit.PerSecond(7).Burst(3)
	cooldown := limit.CooldownPolicy{Max: 3, Window: time.Second, Penalty: 2 * time.Second}
	synctest.Test(t, func(t *testing.T) {
		clock := newManualClock()
		s := memory.NewSimulation(clock.now)
		penalties := 0
		pairs := [][2]limit.Limiter{
			{memory.NewLimiter(bucket), s.NewLimiter(bucket)},
			{memory.NewCooldown(cooldown, nil), s.NewCooldown(cooldown, func(limit.Penalty) { penalties++ })},
		}
		for n := range 2000 {
			key, step := limit.Key{"user", fmt.Sprint(n % 3)}, time.Duration(n*n%197)*time.Millisecond
			for _, pair := range pairs {
				assert.Equal(t, consumeKey(t, pair[0], key), consumeKey(t, pair[1], key), "%T, call %d", pair[0], n)
			}
			time.Sleep(step)
			clock.sleep(step)
		}
		assert.Positive(t, penalties)
	})
}

func consumeKey(t *testing.T, l limit.Limiter, key limit.Key) limit.Decision {
	t.Helper()
	d, err := limit.Consume(t.Context(), l, key, 1)
	assert.NoError(t, err)
	return d
}
