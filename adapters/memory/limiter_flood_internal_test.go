package memory

import (
	"context"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/limittest"
)

// TestLimiter_NewBucketStartsAsOverflowBucket lets a key spend the overflow bucket of a full
// limiter and then get a bucket of its own.
func TestLimiter_NewBucketStartsAsOverflowBucket(t *testing.T) {
	l := NewLimiterMaxKeys(limit.PerMinute(550), 1)
	micros := int64(0)
	l.clock = func() int64 { return micros }
	ann, bob := limit.Key{"ann"}, limit.Key{"bob"}
	d, err := limit.Consume(t.Context(), l, ann, 60)
	require.NoError(t, err)
	require.True(t, d.Allowed)
	granted := takeAll(t, l, bob)
	require.EqualValues(t, 550, granted)

	micros = 7 * time.Second.Microseconds() // ann's bucket is full again, and can be evicted
	granted += takeAll(t, l, bob)
	assert.EqualValues(t, 1, l.Stats().Evicted, "bob has got ann's slot")
	assert.EqualValues(t, 550+64, granted, "the capacity and the refill of 7 seconds")
}

// TestLimiter_CallFindsReusedSlot lets a slot get another key between a call's search for its
// slot and its change of the bucket.
func TestLimiter_CallFindsReusedSlot(t *testing.T) {
	l := NewLimiterMaxKeys(limit.PerSecond(10), 1)
	micros := time.Second.Microseconds()
	l.clock = func() int64 { return micros }
	ann, bob := limit.Key{"ann"}, limit.Key{"bob"}
	for n := 0; ann.Hash(l.seed)%minSlots != bob.Hash(l.seed)%minSlots; n++ {
		bob[1] = strconv.Itoa(n)
	}
	_, err := limit.Consume(t.Context(), l, ann, 5)
	require.NoError(t, err)
	slot, _ := l.shards[0].table.Load().find(ann.Hash(l.seed))
	first := true
	l.clock = func() int64 {
		if first {
			first = false
			micros += time.Second.Microseconds()
			d, err := limit.Consume(t.Context(), l, bob, 3)
			require.NoError(t, err)
			require.True(t, d.Allowed)
		}
		return micros
	}
	d, err := limit.Consume(t.Context(), l, ann, 1)
	require.NoError(t, err)
	assert.True(t, d.Allowed)
	assert.Equal(t, bob.Hash(l.seed), slot.hash.Load(), "bob has got ann's slot")
	d, err = limit.Consume(t.Context(), l, bob, 0)
	require.NoError(t, err)
	assert.EqualValues(t, 7, d.Remaining, "ann has used the overflow bucket")
}

// TestLimiter_ValuesOfSlotsAreUsedOnce checks what lets a call detect that its slot has got
// another key: see slot.
func TestLimiter_ValuesOfSlotsAreUsedOnce(t *testing.T) {
	l := NewLimiterMaxKeys(limit.PerHour(10), 1)
	s := &l.shards[0]
	assert.NotEqual(t, s.fullMarkerLocked(), s.fullMarkerLocked())

	micros := int64(1)
	l.clock = func() int64 { return micros }
	for _, name := range []string{"ann", "bob"} {
		_, err := limit.Consume(t.Context(), l, limit.Key{name}, 5)
		require.NoError(t, err)
		require.NoError(t, limit.Refund(t.Context(), l, limit.Key{name}, 5)) // its values in the future may return
		before := s.table.Load()
		micros += time.Second.Microseconds()
		_, err = limit.Consume(t.Context(), l, limit.Key{"after", name}, 5)
		require.NoError(t, err)
		assert.NotSame(t, before, s.table.Load(), "another key must not get the slot")
		assert.Zero(t, l.Stats().Overflowed)
		micros += time.Hour.Microseconds()
	}
	assert.EqualValues(t, 3, l.Stats().Evicted)
}

// TestLimiter_FullLimiterKeepsBound uses many more keys than the limiter has buckets, so that
// slots change their keys all the time, and checks the grants of each key in every interval.
func TestLimiter_FullLimiterKeepsBound(t *testing.T) {
	const keys, callers, rounds = 300, 4, 400
	p := limit.Per(3, 10*time.Millisecond)
	l := NewLimiterMaxKeys(p, 40)
	var micros atomic.Int64
	l.clock = micros.Load
	level := make([]int64, keys) // grants beyond the refill, in thirds of a token
	for round := range rounds {
		var granted [keys]atomic.Int64
		var wg sync.WaitGroup
		for caller := range callers {
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(round), uint64(caller)))
				for range 100 {
					k := rng.IntN(keys / (1 + round%3))
					if d, err := limit.Consume(context.Background(), l, limit.Key{strconv.Itoa(k)}, 1); err == nil && d.Allowed {
						granted[k].Add(1)
					}
				}
			})
		}
		wg.Wait()
		for k := range level {
			level[k] += 3 * granted[k].Load()
			require.LessOrEqual(t, level[k], int64(9), "key %d", k)
			level[k] = max(0, level[k]-1-2*int64(round%2))
		}
		micros.Add(int64(1111 + round%2*2222)) // so that a third of a token returns, or a whole one
	}
	assert.Positive(t, l.Stats().Evicted)
	assert.Positive(t, l.Stats().Overflowed)
}

// TestLimiter_ReusedSlotsEqualModel lets slots change their keys during calls. Each caller knows
// all calls for its keys, so it knows every Decision.
func TestLimiter_ReusedSlotsEqualModel(t *testing.T) {
	const callers, keys, rounds = 4, 300, 2000
	p := limit.Per(3, 9*time.Millisecond)
	l := NewLimiterMaxKeys(p, 255)
	var micros, different atomic.Int64
	l.clock = micros.Load
	models := make([]*limittest.Model, callers*keys)
	for i := range models {
		models[i] = limittest.NewModel(p)
	}
	for round := range rounds {
		at := time.Duration(micros.Load()) * time.Microsecond
		var wg sync.WaitGroup
		for caller := range callers {
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(round), uint64(caller)))
				for range 3 {
					k := caller + callers*rng.IntN(keys)
					for range 2 {
						cost := 1 + rng.Int64N(2)
						got, err := limit.Consume(context.Background(), l, limit.Key{strconv.Itoa(k)}, cost)
						if err != nil || got != models[k].Consume(at, cost) {
							different.Add(1)
						}
					}
				}
			})
		}
		wg.Wait()
		micros.Add(int64(1 + round%7*1000))
	}
	stats := l.Stats()
	assert.Greater(t, stats.Evicted, int64(callers*rounds))
	assert.Less(t, stats.Overflowed, int64(rounds/100), "most keys find a slot")
	assert.LessOrEqual(t, different.Load(), 10*stats.Overflowed, "only the overflow bucket differs from the model")
}

func TestLimiter_TableShrinksAfterFlood(t *testing.T) {
	l := NewLimiterMaxKeys(limit.PerHour(5), 500)
	micros := int64(0)
	l.clock = func() int64 { return micros }
	for n := range 1000 {
		_, err := limit.Consume(t.Context(), l, limit.Key{strconv.Itoa(n)}, 1)
		require.NoError(t, err)
	}
	require.Len(t, l.shards[0].table.Load().slots, 1024)
	micros = time.Hour.Microseconds()
	_, err := limit.Consume(t.Context(), l, limit.Key{"after"}, 1)
	require.NoError(t, err)
	assert.Len(t, l.shards[0].table.Load().slots, minSlots)
}
