package memory

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/adapter"
	"github.com/penstock-go/penstock/limit/limittest"
)

// A keyedLimiter is a limiter with records.
type keyedLimiter interface {
	limit.Limiter
	Reset(context.Context, limit.Key) error
	Stats() adapter.Stats
}

// smallLimiters returns limiters with a maximum of 10 and room for one record in each of 64 shards. Their
// windows end together, at least a minute after any time of the bubble's first hour.
func smallLimiters() map[string]keyedLimiter {
	window := limit.WindowPolicy{Max: 10, Window: time.Hour}
	log, counter := NewSlidingLog(window), NewSlidingCounter(window)
	cooldown := NewCooldown(limit.CooldownPolicy{Max: 10, Window: time.Hour, Penalty: time.Millisecond}, nil)
	quota := NewQuota(limit.QuotaPolicy{Max: 10, Period: limit.Month})
	log.records.(*recordTable[callLog, *callLog]).shardKeys = 1
	counter.records.(*recordTable[windowCount, *windowCount]).shardKeys = 1
	quota.records.(*recordTable[quotaCount, *quotaCount]).shardKeys = 1
	cooldown.records.shardKeys = 1
	return map[string]keyedLimiter{"log": log, "counter": counter, "cooldown": cooldown, "quota": quota}
}

func allowedCost(t testing.TB, l limit.Limiter, name string, cost int64) bool {
	t.Helper()
	d, err := limit.Consume(context.Background(), l, limit.Key{"user", name}, cost)
	require.NoError(t, err)
	return d.Allowed
}

// fill gives every shard a key with a token, and returns the keys.
func fill(t testing.TB, l keyedLimiter) (keys []string) {
	t.Helper()
	for n := 0; l.Stats().Keys < recordShards; n++ {
		before := l.Stats().Keys
		if allowedCost(t, l, fmt.Sprint(n), 1); l.Stats().Keys > before {
			keys = append(keys, fmt.Sprint(n))
		}
	}
	// The keys without a record have used the overflow records.
	for n := range 1000 {
		require.NoError(t, l.Reset(context.Background(), limit.Key{"user", "untracked", fmt.Sprint(n)}))
	}
	return keys
}

// TestRecords_OverflowIsInherited checks that a key that has used the overflow record, and then gets a
// record of its own, has the tokens of one of them.
func TestRecords_OverflowIsInherited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, l := range smallLimiters() {
			keys := fill(t, l)
			require.True(t, allowedCost(t, l, "ann", 10), name)
			require.False(t, allowedCost(t, l, "ann", 1), name)
			time.Sleep(time.Second)
			for _, key := range keys {
				require.NoError(t, l.Reset(t.Context(), limit.Key{"user", key}))
			}
			evicted := l.Stats().Evicted
			assert.False(t, allowedCost(t, l, "ann", 1), name)
			require.Equal(t, evicted+1, l.Stats().Evicted, "%s: ann has a record of her own", name)
			d, err := limit.Consume(t.Context(), l, limit.Key{"user", "ann"}, 0)
			require.NoError(t, err)
			assert.Zero(t, d.Remaining, name)
			time.Sleep(time.Second)
			require.NoError(t, l.Reset(t.Context(), limit.Key{"user", "ann"}))
			assert.True(t, allowedCost(t, l, "ann", 10), "%s: a reset ends it", name)
			time.Sleep(32 * 24 * time.Hour)
			assert.True(t, allowedCost(t, l, "ann", 10), "%s: the overflow record expires", name)
		}
	})
}

// TestCallLog_CloneIsSeparate adds a call to a record and another one to its copy.
func TestCallLog_CloneIsSeparate(t *testing.T) {
	rules := newLogRules(numbers{max: 10}, time.Millisecond, 0)
	var r callLog
	r.add(1, 2, rules)
	r.add(2, 1, rules) // makes room for four
	c := r.clone()
	c.add(3, 1, rules)
	r.add(4, 1, rules)
	assert.EqualValues(t, 3, c.at(3))
	assert.EqualValues(t, 4, r.at(3))
}

// TestCooldown_PenaltyIsNotEvicted checks that a key without calls in its window keeps its penalty.
func TestCooldown_PenaltyIsNotEvicted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewCooldown(limit.CooldownPolicy{Max: 1, Window: time.Second, Penalty: time.Hour}, nil)
		c.records.shardKeys = 1
		keys := fill(t, c)
		for _, key := range keys {
			require.False(t, allowedCost(t, c, key, 1))
		}
		time.Sleep(time.Minute)
		for n := range 300 {
			allowedCost(t, c, fmt.Sprint("new ", n), 1)
		}
		assert.Zero(t, c.Stats().Evicted)
		for _, key := range keys {
			assert.False(t, allowedCost(t, c, key, 1), key)
		}
	})
}

// TestRecords_FloodIsSweptSeldom checks that a full table is searched for idle records at most every
// 100 milliseconds.
func TestRecords_FloodIsSweptSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, l := range smallLimiters() {
			keys := fill(t, l)
			time.Sleep(time.Second)
			allowedCost(t, l, "ann", 1) // searches the shard
			for _, key := range keys {
				require.NoError(t, l.Reset(t.Context(), limit.Key{"user", key}))
			}
			allowedCost(t, l, "ann", 1)
			assert.Zero(t, l.Stats().Evicted, name)
			time.Sleep(100 * time.Millisecond)
			allowedCost(t, l, "ann", 1)
			assert.EqualValues(t, 1, l.Stats().Evicted, name)
		}
	})
}

func TestQuota_ClockSteps(t *testing.T) {
	for _, c := range limittest.QuotaCases() {
		if !strings.HasPrefix(c.Name, "the clock goes back") {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			now := time.Date(2024, 5, 1, 12, 0, 0, 0, time.UTC)
			c.Run(t, limittest.WindowHarness[limit.QuotaPolicy]{
				New: func(p limit.QuotaPolicy) adapter.Resetter {
					return newQuota(p, func() int64 { return now.UnixMicro() })
				},
				Sleep:  func(d time.Duration) { now = now.Add(d) },
				Now:    func() time.Time { return now },
				Rewind: func(d time.Duration) { now = now.Add(-d) },
			})
		})
	}
}

// TestCooldown_LongKeysTakeNoMemory stores keys of 4 KiB.
func TestCooldown_LongKeysTakeNoMemory(t *testing.T) {
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	c := NewCooldown(limit.CooldownPolicy{Max: 1000, Window: time.Hour, Penalty: time.Hour}, nil)
	before := heap()
	const keys = 20_000
	long := strings.Repeat("x", 4096)
	for n := range keys {
		_, err := limit.Consume(t.Context(), c, limit.Key{"user", fmt.Sprint(n) + long}, 1)
		require.NoError(t, err)
	}
	perKey := (heap() - before) / keys
	t.Logf("%d bytes per key", perKey)
	assert.Less(t, perKey, uint64(200))
	assert.EqualValues(t, keys, c.Stats().Keys)
	runtime.KeepAlive(c)
}
