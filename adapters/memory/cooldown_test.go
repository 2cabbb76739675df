package memory_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/middleware/ratelimit"
)

func hit(t testing.TB, l ratelimit.Limiter, key ratelimit.Key, cost int64) ratelimit.Decision {
	t.Helper()
	d, err := l.Consume(context.Background(), key, cost)
	require.NoError(t, err)
	return d
}

func TestCooldown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var penalties []ratelimit.Penalty
		policy := ratelimit.CooldownPolicy{Name: "burst", Max: 3, Window: time.Minute, Penalty: 5 * time.Minute}
		c := memory.NewCooldown(policy, func(p ratelimit.Penalty) { penalties = append(penalties, p) })
		for n := range 3 {
			d := hit(t, c, user("ann"), 1)
			assert.Equal(t, ratelimit.Decision{Allowed: true, Limit: 3, Remaining: int64(2 - n), ResetAfter: time.Minute}, d)
		}
		assert.EqualValues(t, 3, c.Count(user("ann")))
		five := 5 * time.Minute
		assert.Equal(t, ratelimit.Decision{Limit: 3, RetryAfter: five, ResetAfter: five, Reason: ratelimit.BurstExceeded}, hit(t, c, user("ann"), 1))
		time.Sleep(time.Minute)
		assert.Equal(t, ratelimit.Decision{Limit: 3, RetryAfter: five - time.Minute, ResetAfter: five - time.Minute, Reason: ratelimit.InCooldown}, hit(t, c, user("ann"), 1), "it does not grow")
		assert.Equal(t, []ratelimit.Penalty{{Policy: policy, Key: user("ann"), Count: 4, RetryAfter: five}}, penalties, "once")
		assert.True(t, hit(t, c, user("bob"), 1).Allowed)
		time.Sleep(4*time.Minute - time.Microsecond)
		assert.False(t, hit(t, c, user("ann"), 1).Allowed)
		time.Sleep(time.Microsecond)
		assert.True(t, hit(t, c, user("ann"), 3).Allowed, "everything is as new")
		c.Reset(user("ann"))
		assert.True(t, hit(t, c, user("ann"), 3).Allowed)
		assert.Equal(t, ratelimit.Never, hit(t, c, user("eve"), 4).RetryAfter)
		assert.True(t, hit(t, c, user("eve"), 3).Allowed, "what can never be is not punished")
		c.ResetAll()
		assert.Zero(t, c.Count(user("eve")))
	})
}

// TestACooldownsWindowIsHalfOpen: what came exactly a window ago does not count.
func TestACooldownsWindowIsHalfOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := memory.NewCooldown(ratelimit.CooldownPolicy{Max: 1, Window: time.Second, Penalty: time.Microsecond}, nil)
		assert.True(t, hit(t, c, user("ann"), 1).Allowed)
		time.Sleep(time.Second)
		assert.True(t, hit(t, c, user("ann"), 1).Allowed)
		time.Sleep(time.Second - time.Microsecond)
		d := hit(t, c, user("ann"), 1)
		assert.False(t, d.Allowed)
		assert.Equal(t, time.Microsecond, d.RetryAfter)
	})
}

// TestCooldownEqualsTheModel compares with a list of everything that was ever admitted,
// and holds every RetryAfter to its word.
func TestCooldownEqualsTheModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(5, 6))
		for n := range 200 {
			p := ratelimit.CooldownPolicy{
				Max:     1 + rng.Int64N(8),
				Window:  time.Duration(1+rng.Int64N(1000)) * time.Microsecond,
				Penalty: time.Duration(1+rng.Int64N(2000)) * time.Microsecond,
			}
			c := memory.NewCooldown(p, nil)
			var admitted []time.Time
			var until time.Time
			promised := time.Duration(-1)
			cost := int64(0)
			for step := range 200 {
				if promised < 0 {
					cost = 1 + rng.Int64N(p.Max+1)
				}
				now := time.Now()
				inWindow := int64(0)
				for _, at := range admitted {
					if at.After(now.Add(-p.Window)) {
						inWindow++
					}
				}
				want := !now.Before(until) && inWindow+cost <= p.Max
				d := hit(t, c, user("ann"), cost)
				require.Equal(t, want, d.Allowed, "%+v: policy %d, step %d, cost %d", p, n, step, cost)
				require.True(t, promised < 0 || d.Allowed, "%+v: a promise was broken", p)
				promised = -1
				switch {
				case d.Allowed:
					for range cost {
						admitted = append(admitted, now)
					}
				case cost > p.Max:
					require.Equal(t, ratelimit.Never, d.RetryAfter)
				case d.Reason == ratelimit.BurstExceeded:
					require.False(t, now.Before(until), "a penalty starts while one lasts")
					require.GreaterOrEqual(t, d.RetryAfter, p.Penalty)
					until = now.Add(d.RetryAfter)
				}
				pause := time.Duration(rng.Int64N(600)) * time.Microsecond
				if !d.Allowed && cost <= p.Max && rng.IntN(2) == 0 {
					pause, promised = d.RetryAfter, d.RetryAfter
				}
				time.Sleep(pause)
			}
		}
	})
}

func TestACooldownIsAtomic(t *testing.T) {
	var penalties, allowed atomic.Int64
	c := memory.NewCooldown(ratelimit.CooldownPolicy{Max: 100, Window: time.Hour, Penalty: time.Hour},
		func(ratelimit.Penalty) { penalties.Add(1) })
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				if hit(t, c, user("ann"), 1).Allowed {
					allowed.Add(1)
				}
			}
		})
	}
	wg.Wait()
	assert.EqualValues(t, 100, allowed.Load())
	assert.EqualValues(t, 1, penalties.Load())
}

func TestACooldownIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := memory.NewCooldown(ratelimit.CooldownPolicy{Max: 2, Window: time.Hour, Penalty: time.Hour}, nil)
		hit(t, c, user("known"), 1)
		for n := range 200_000 {
			hit(t, c, user(fmt.Sprint(n)), 1)
		}
		assert.EqualValues(t, 1, c.Count(user("known")), "strangers do not push out the known")
		assert.False(t, hit(t, c, user("one more"), 1).Allowed, "they share what is left")
		time.Sleep(3 * time.Hour)
		assert.True(t, hit(t, c, user("one more"), 1).Allowed)
	})
}

func TestWrongCooldowns(t *testing.T) {
	right := ratelimit.CooldownPolicy{Name: "x", Max: 1, Window: time.Second, Penalty: time.Second}
	require.NoError(t, right.Validate())
	for want, edit := range map[string]func(*ratelimit.CooldownPolicy){
		`ratelimit: cooldown "x": Max is 0; it must be from 1 to 1000 (for more, take a Policy)`:                  func(p *ratelimit.CooldownPolicy) { p.Max = 0 },
		`ratelimit: cooldown "x": Max is 1001; it must be from 1 to 1000 (for more, take a Policy)`:               func(p *ratelimit.CooldownPolicy) { p.Max = 1001 },
		`ratelimit: cooldown "x": Window is 0s; it must be a whole number of microseconds, at least 1`:            func(p *ratelimit.CooldownPolicy) { p.Window = 0 },
		`ratelimit: cooldown "x": Penalty is 1.000000001s; it must be a whole number of microseconds, at least 1`: func(p *ratelimit.CooldownPolicy) { p.Penalty++ },
		`ratelimit: cooldown "x": Window and Penalty must be at most 87600h0m0s`:                                  func(p *ratelimit.CooldownPolicy) { p.Window = math.MaxInt64 / 1000 * 1000 },
	} {
		p := right
		edit(&p)
		assert.EqualError(t, p.Validate(), want)
		assert.PanicsWithValue(t, want, func() { memory.NewCooldown(p, nil) })
	}
	_, err := memory.NewCooldown(right, nil).Consume(t.Context(), user("ann"), -1)
	assert.Error(t, err)
}
