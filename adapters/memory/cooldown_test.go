package memory_test

import (
	"context"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/adapter"
	"github.com/penstock-go/penstock/limit/limittest"
)

func hit(t testing.TB, l limit.Limiter, key limit.Key, cost int64) limit.Decision {
	t.Helper()
	d, err := limit.Consume(context.Background(), l, key, cost)
	require.NoError(t, err)
	return d
}

func TestCooldown_Contract(t *testing.T) {
	for _, c := range limittest.CooldownCases() {
		t.Run(c.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c.Run(t, limittest.CooldownHarness{
					New: func(p limit.CooldownPolicy, onPenalty func(limit.Penalty)) limit.Limiter {
						return memory.NewCooldown(p, onPenalty)
					},
					Sleep: time.Sleep,
				})
			})
		})
	}
}

func TestCooldown_Reset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := memory.NewCooldown(limit.CooldownPolicy{Max: 3, Window: time.Minute, Penalty: time.Hour}, nil)
		hit(t, c, user("ann"), 3)
		assert.EqualValues(t, 3, count(t, c, user("ann")))
		assert.False(t, hit(t, c, user("ann"), 1).Allowed)
		require.NoError(t, c.Reset(t.Context(), user("ann")))
		assert.True(t, hit(t, c, user("ann"), 3).Allowed)
		hit(t, c, user("eve"), 3)
		require.NoError(t, c.ResetAll(t.Context()))
		assert.Zero(t, count(t, c, user("eve")))
	})
}

func TestCooldown_KeysAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := memory.NewCooldown(limit.CooldownPolicy{Max: 2, Window: time.Hour, Penalty: time.Hour}, nil)
		hit(t, c, user("tracked"), 1)
		for n := range 200_000 {
			hit(t, c, user(fmt.Sprint(n)), 1)
		}
		assert.EqualValues(t, 1, count(t, c, user("tracked")), "new keys do not evict tracked ones")
		assert.False(t, hit(t, c, user("one more"), 1).Allowed, "new keys share a record")
		assert.EqualValues(t, 2, count(t, c, user("one more")))
		require.NoError(t, c.Reset(t.Context(), user("one more")))
		assert.True(t, hit(t, c, user("one more"), 2).Allowed)
		full := c.Stats()
		assert.EqualValues(t, 65_536, full.Keys)
		assert.EqualValues(t, 200_003-65_536, full.Overflowed)
		assert.Zero(t, full.Evicted)
		time.Sleep(3 * time.Hour)
		assert.True(t, hit(t, c, user("one more"), 1).Allowed)
		assert.Equal(t, adapter.Stats{Keys: full.Keys - 1023, Evicted: 1024, Overflowed: full.Overflowed}, c.Stats())
	})
}

func TestCooldown_InvalidPolicyPanics(t *testing.T) {
	right := limit.CooldownPolicy{Name: "x", Max: 1, Window: time.Second, Penalty: time.Second}
	require.NoError(t, right.Validate())
	for want, edit := range map[string]func(*limit.CooldownPolicy){
		`limit: cooldown "x": Max is 0; it must be from 1 to 1000 (for more, use a Policy)`:                   func(p *limit.CooldownPolicy) { p.Max = 0 },
		`limit: cooldown "x": Max is 1001; it must be from 1 to 1000 (for more, use a Policy)`:                func(p *limit.CooldownPolicy) { p.Max = 1001 },
		`limit: cooldown "x": Window is 0s; it must be a whole number of microseconds, at least 1`:            func(p *limit.CooldownPolicy) { p.Window = 0 },
		`limit: cooldown "x": Penalty is 1.000000001s; it must be a whole number of microseconds, at least 1`: func(p *limit.CooldownPolicy) { p.Penalty++ },
		`limit: cooldown "x": Window and Penalty must be at most 87600h0m0s`:                                  func(p *limit.CooldownPolicy) { p.Window = math.MaxInt64 / 1000 * 1000 },
	} {
		p := right
		edit(&p)
		assert.EqualError(t, p.Validate(), want)
		assert.PanicsWithValue(t, want, func() { memory.NewCooldown(p, nil) })
	}
	_, err := limit.Consume(t.Context(), memory.NewCooldown(right, nil), user("ann"), -1)
	assert.Error(t, err)
}

func count(t *testing.T, c *memory.Cooldown, key limit.Key) int64 {
	t.Helper()
	n, err := c.Count(t.Context(), key)
	require.NoError(t, err)
	return n
}
