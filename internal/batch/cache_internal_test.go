package batch

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/adapter"
)

func TestCache_IgnoresResponsesSentBeforeInvalidation(t *testing.T) {
	for name, invalidate := range map[string]func(*Cache[string], time.Duration){
		"one key":  func(c *Cache[string], now time.Duration) { c.Invalidate(1, now) },
		"all keys": func(c *Cache[string], now time.Duration) { c.InvalidateAll(now) },
	} {
		t.Run(name, func(t *testing.T) {
			var c Cache[string]
			c.Put(1, "empty", time.Second, 2*time.Second)
			invalidate(&c, 3*time.Second)
			_, ok := c.Get(1, 3*time.Second)
			require.False(t, ok)
			c.Put(1, "empty", 2*time.Second, 4*time.Second)
			_, ok = c.Get(1, 4*time.Second)
			require.False(t, ok, "the request was sent before the invalidation")
			c.Put(1, "empty", 4*time.Second, 5*time.Second)
			_, ok = c.Get(1, 5*time.Second)
			require.True(t, ok)
		})
	}
}

func TestCache_EntriesExpire(t *testing.T) {
	var c Cache[int]
	c.Put(1, 7, 0, time.Second)
	e, ok := c.Get(1, time.Second+CacheTime)
	assert.True(t, ok)
	assert.Equal(t, Entry[int]{Value: 7, Received: time.Second}, e)
	_, ok = c.Get(1, time.Second+CacheTime+1)
	assert.False(t, ok)
}

// TestCache_SizeIsBounded fills the cache, which then accepts new keys only after old ones have
// expired.
func TestCache_SizeIsBounded(t *testing.T) {
	const size = 65_536
	var c Cache[int]
	for hash := range uint64(size) {
		c.Put(hash, 0, 0, 0)
	}
	known := func(hash uint64, now time.Duration) bool {
		_, ok := c.Get(hash, now)
		return ok
	}
	c.Put(size, 0, 0, 0)
	assert.True(t, known(0, 0))
	assert.False(t, known(size, 0))
	later := 2 * CacheTime
	c.Put(size, 0, later, later)
	assert.True(t, known(size, later))
}

// denial returns what a cache knows of a cost from bucket 1.
func denial(d *denialCache, now time.Duration, costUnits int64, u *adapter.Units) (limit.Decision, bool) {
	s, ok := d.denies(1, now, costUnits, 0, u)
	return s.decision(costUnits, u), ok
}

func TestDenialCache_DeniesUntilTokensMayBeBack(t *testing.T) {
	units := adapter.UnitsOf(limit.PerSecond(1).Burst(10))
	token := units.CostUnits(1)
	var d denialCache
	decide := func(now time.Duration, cost int64) (limit.Decision, bool) {
		return denial(&d, now, units.CostUnits(cost), &units)
	}
	_, ok := decide(0, 1)
	assert.False(t, ok, "nothing is known")

	// A response that was under way from 1 s to 1.2 s has left no tokens.
	d.learn(1, State{}, token, time.Second, 1200*time.Millisecond)
	got, ok := decide(1500*time.Millisecond, 1)
	assert.True(t, ok)
	assert.Equal(t, limit.Decision{Limit: 10, RetryAfter: 700 * time.Millisecond, ResetAfter: 9700 * time.Millisecond}, got,
		"RetryAfter counts from when the response arrived")
	_, ok = decide(2*time.Second, 1)
	assert.False(t, ok, "the bucket may contain a token a second after the request was sent")
	_, ok = decide(2*time.Second, 2)
	assert.True(t, ok, "but not two")

	d.learn(1, State{Units: 3 * token}, token, 3*time.Second, 3*time.Second)
	_, ok = decide(3*time.Second, 5)
	assert.False(t, ok, "a bucket with tokens for the same cost is not cached")
}

func TestDenialCache_DeniesWhileBlocked(t *testing.T) {
	units := adapter.UnitsOf(limit.PerSecond(1).Burst(10))
	var d denialCache
	d.learn(1, State{BlockedFor: time.Second}, 0, 0, 100*time.Millisecond)
	got, ok := denial(&d, 500*time.Millisecond, 0, &units)
	assert.True(t, ok)
	assert.Equal(t, limit.Decision{Limit: 10, RetryAfter: 600 * time.Millisecond, ResetAfter: 600 * time.Millisecond, Reason: limit.Blocked}, got)
	_, ok = denial(&d, time.Second, 0, &units)
	assert.False(t, ok, "the block may have ended")
	d.states.Invalidate(1, 500*time.Millisecond)
	_, ok = denial(&d, 500*time.Millisecond, 0, &units)
	assert.False(t, ok)
}

func TestState_DecisionComparesUnitsAndBlock(t *testing.T) {
	units := adapter.UnitsOf(limit.PerSecond(1))
	assert.True(t, State{Units: units.Full()}.decision(units.CostUnits(1), &units).Allowed)
	assert.False(t, State{Units: units.Full() - 1}.decision(units.CostUnits(1), &units).Allowed)
	blocked := State{BlockedFor: time.Minute}.decision(0, &units)
	assert.Equal(t, limit.Decision{Limit: 1, RetryAfter: time.Minute, ResetAfter: time.Minute, Reason: limit.Blocked}, blocked)
}
