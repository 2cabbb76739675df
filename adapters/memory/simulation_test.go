package memory_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/limit"
)

// A manualClock is a clock that only sleep advances.
type manualClock struct{ at time.Time }

func newManualClock() *manualClock {
	return &manualClock{time.Date(2026, 3, 28, 22, 59, 59, 123_456_000, time.UTC)}
}

func (c *manualClock) now() time.Time        { return c.at }
func (c *manualClock) sleep(d time.Duration) { c.at = c.at.Add(d) }

func TestSimulation_DecidesLikeRealClock(t *testing.T) {
	bucket := limit.PerSecond(7).Burst(3)
	window := limit.WindowPolicy{Max: 5, Window: time.Second}
	cooldown := limit.CooldownPolicy{Max: 3, Window: time.Second, Penalty: 2 * time.Second}
	synctest.Test(t, func(t *testing.T) {
		clock := newManualClock()
		s := memory.NewSimulation(clock.now)
		penalties := 0
		pairs := [][2]limit.Limiter{
			{memory.NewLimiter(bucket), s.NewLimiter(bucket)},
			{memory.NewCooldown(cooldown, nil), s.NewCooldown(cooldown, func(limit.Penalty) { penalties++ })},
			{memory.NewSlidingLog(window), s.NewSlidingLog(window)},
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
