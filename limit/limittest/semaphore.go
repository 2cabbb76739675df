package limittest

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/limit"
)

// Semaphore tests a semaphore with three permits per key against the contract of
// [limit.Semaphore]. settle must return once at most inUse permits of key are in use: an
// implementation may release permits asynchronously.
func Semaphore(t *testing.T, semaphore limit.Semaphore, settle func(key limit.Key, inUse int64)) {
	t.Helper()
	acquire := func(name string) limit.Permit {
		p, err := semaphore.Acquire(context.Background(), key(name))
		require.NoError(t, err)
		assert.EqualValues(t, 3, p.Limit)
		return p
	}
	var held []limit.Permit
	for n := range 3 {
		p := acquire("ann")
		require.NotNil(t, p.Release)
		assert.EqualValues(t, n+1, p.InUse)
		held = append(held, p)
	}
	denied := acquire("ann")
	assert.Nil(t, denied.Release)
	assert.EqualValues(t, 3, denied.InUse)
	acquire("bob").Release()
	held[0].Release()
	held[0].Release() // a second call does nothing
	settle(key("ann"), 2)
	again := acquire("ann")
	require.NotNil(t, again.Release)
	assert.Nil(t, acquire("ann").Release)
	for _, p := range append(held, again) {
		p.Release()
	}
	settle(key("ann"), 0)

	acquireConcurrently(t, func() limit.Permit { return acquire("eve") })
	settle(key("eve"), 0)
	p := acquire("eve")
	assert.EqualValues(t, 1, p.InUse)
	p.Release()
}

// acquireConcurrently counts how many permits of one key many callers hold at the same time.
func acquireConcurrently(t *testing.T, acquire func() limit.Permit) {
	var inUse, maxInUse atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				p := acquire()
				if p.Release == nil {
					continue
				}
				if n := inUse.Add(1); n > maxInUse.Load() {
					maxInUse.Store(n)
				}
				inUse.Add(-1)
				p.Release()
			}
		})
	}
	wg.Wait()
	assert.LessOrEqual(t, maxInUse.Load(), int64(3))
}
