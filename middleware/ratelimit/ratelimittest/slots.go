package ratelimittest

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/middleware/ratelimit"
)

// Slots holds slots, of three places for each key, to the contract of
// [ratelimit.Slots]. Settle waits until no more than so many places of a key are taken: a
// release may take its time.
func Slots(t *testing.T, slots ratelimit.Slots, settle func(key ratelimit.Key, taken int64)) {
	t.Helper()
	acquire := func(name string) ratelimit.Slot {
		s, err := slots.Acquire(context.Background(), key(name))
		require.NoError(t, err)
		assert.EqualValues(t, 3, s.Limit)
		return s
	}
	var taken []ratelimit.Slot
	for n := range 3 {
		s := acquire("ann")
		require.NotNil(t, s.Release)
		assert.EqualValues(t, n+1, s.Taken)
		taken = append(taken, s)
	}
	refused := acquire("ann")
	assert.Nil(t, refused.Release)
	assert.EqualValues(t, 3, refused.Taken)
	acquire("bob").Release()
	taken[0].Release()
	taken[0].Release() // which does nothing
	settle(key("ann"), 2)
	again := acquire("ann")
	require.NotNil(t, again.Release)
	assert.Nil(t, acquire("ann").Release)
	for _, s := range append(taken, again) {
		s.Release()
	}
	settle(key("ann"), 0)

	slotsTogether(t, func() ratelimit.Slot { return acquire("eve") })
	settle(key("eve"), 0)
	s := acquire("eve")
	assert.EqualValues(t, 1, s.Taken)
	s.Release()
}

// slotsTogether has many callers want the places of one key.
func slotsTogether(t *testing.T, acquire func() ratelimit.Slot) {
	var inside, most atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				s := acquire()
				if s.Release == nil {
					continue
				}
				if n := inside.Add(1); n > most.Load() {
					most.Store(n)
				}
				inside.Add(-1)
				s.Release()
			}
		})
	}
	wg.Wait()
	assert.LessOrEqual(t, most.Load(), int64(3))
}
