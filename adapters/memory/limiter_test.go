package memory_test

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"strconv"
	"sync/atomic"
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

func TestLimiter_Contract(t *testing.T) {
	for _, c := range limittest.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c.Run(t, limittest.Harness{
					New:   func(p limit.Policy) limit.Limiter { return memory.NewLimiter(p) },
					Sleep: time.Sleep,
				})
			})
		})
	}
}

func TestLimiter_IntervalBound(t *testing.T) {
	limittest.IntervalBound(t, memory.NewLimiter(limittest.IntervalBoundPolicy()))
}

func TestLimiter_AllOf(t *testing.T) {
	h := limittest.Harness{
		New:   func(p limit.Policy) limit.Limiter { return memory.NewLimiter(p) },
		Sleep: time.Sleep,
	}
	synctest.Test(t, func(t *testing.T) { limittest.AllOf(t, h) })
	for _, c := range limittest.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { c.Run(t, limittest.WithAllOf(h)) })
		})
	}
	l := memory.NewLimiter(limit.PerHour(1))
	_, inProcess := limit.AllOf(l, memory.NewLimiter(limit.PerHour(2))).(adapter.InProcess)
	assert.True(t, inProcess, "it needs no deadline")
	assert.Panics(t, func() { limit.AllOf() })
	assert.Panics(t, func() { limit.AllOf(l, l) })
}

func user(name string) limit.Key { return limit.Key{"user", "acme", name, "SAY"} }

func consume(t testing.TB, l *memory.Limiter, key limit.Key, cost int64) limit.Decision {
	t.Helper()
	d, err := limit.Consume(context.Background(), l, key, cost)
	require.NoError(t, err)
	return d
}

func TestLimiter_ConsumeAllocatesNothing(t *testing.T) {
	l := memory.NewLimiter(limit.PerHour(100).Burst(50))
	key := user("ann")
	assert.Zero(t, testing.AllocsPerRun(1000, func() {
		if _, err := limit.Consume(t.Context(), l, key, 1); err != nil {
			t.Fatal(err)
		}
	}), "admitted and denied calls")
}

func TestLimiter_FloodThrottlesOnlyUntrackedKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const tracked = 400
		l := memory.NewLimiterMaxKeys(limit.PerHour(5), 2000)
		for n := range tracked {
			assert.EqualValues(t, 4, consume(t, l, user(fmt.Sprint("tracked", n)), 1).Remaining)
		}
		admitted := 0
		for n := range 100_000 {
			if consume(t, l, user(fmt.Sprint("new", n)), 5).Allowed {
				admitted++
			}
		}
		assert.LessOrEqual(t, admitted, 2000, "one call per new bucket, and one per overflow bucket")
		assert.Greater(t, admitted, 1000)
		for n := range tracked {
			require.EqualValues(t, 3, consume(t, l, user(fmt.Sprint("tracked", n)), 1).Remaining, "tracked keys keep their buckets")
		}
		time.Sleep(2 * time.Hour)
		assert.True(t, consume(t, l, user("late"), 5).Allowed, "full buckets are evicted")
	})
}

func TestLimiter_MemoryPerKeyIsBounded(t *testing.T) {
	const keys = 1 << 14
	l := memory.NewLimiterMaxKeys(limit.PerHour(5), keys)
	before := heap()
	for n := range 2 * keys {
		consume(t, l, user(fmt.Sprint(n)), 1)
	}
	perKey := float64(heap()-before) / keys
	t.Logf("%.1f bytes for each of %d keys", perKey, keys)
	assert.Less(t, perKey, 45.)
	runtime.KeepAlive(l)
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func TestLimiter_InvalidPolicyPanics(t *testing.T) {
	assert.Panics(t, func() { memory.NewLimiter(limit.PerSecond(0)) })
	assert.Panics(t, func() { memory.NewLimiterMaxKeys(limit.PerSecond(1), 0) })
	unbounded := memory.NewLimiterMaxKeys(limit.PerHour(1), math.MaxInt)
	for user := range 1000 {
		d, err := limit.Consume(t.Context(), unbounded, limit.Key{"user", strconv.Itoa(user)}, 1)
		require.NoError(t, err)
		require.True(t, d.Allowed, "each user has a bucket")
	}
}

func BenchmarkConsume(b *testing.B) {
	for _, keys := range []int{1, 10_000, 1_000_000} {
		names := make([]limit.Key, keys)
		for i := range names {
			names[i] = user(fmt.Sprint(i))
		}
		for _, bench := range []struct {
			name   string
			policy limit.Policy
		}{
			{"admitted", limit.PerSecond(1_000_000).Burst(1_000_000_000)},
			{"denied", limit.PerHour(1)},
		} {
			b.Run(fmt.Sprintf("%d keys/%s", keys, bench.name), func(b *testing.B) {
				l := memory.NewLimiter(bench.policy)
				for _, name := range names {
					consume(b, l, name, 1)
				}
				b.ReportAllocs()
				b.ResetTimer()
				var worker atomic.Int64
				b.RunParallel(func(pb *testing.PB) {
					i := int(worker.Add(1)) * 7919
					for pb.Next() {
						i = (i*1103515245 + 12345) & 0x7fffffff
						if _, err := limit.Consume(context.Background(), l, names[i%keys], 1); err != nil {
							b.Fatal(err)
						}
					}
				})
			})
		}
	}
}
