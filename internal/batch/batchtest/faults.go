package batchtest

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/limit"
)

// NeverChargesTwice calls a limiter whose connections cut closes, and compares its calls with what
// another one, whose connections stay open, finds missing. Both have one policy, by which no token
// returns during the test.
func NeverChargesTwice(t *testing.T, disturbed, direct limit.Limiter, cut func()) {
	t.Helper()
	key := limit.Key{"user", "ann"}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var attempts, succeeded atomic.Int64
	var callers sync.WaitGroup
	for range 8 {
		callers.Go(func() {
			for ctx.Err() == nil {
				call, cancel := context.WithTimeout(context.Background(), time.Second)
				if d, err := limit.Consume(call, disturbed, key, 1); err == nil && d.Allowed {
					succeeded.Add(1)
				}
				cancel()
				attempts.Add(1)
			}
		})
	}
	for range 10 {
		before := succeeded.Load()
		require.Eventually(t, func() bool { return succeeded.Load() > before+20 }, time.Minute, time.Millisecond)
		cut()
	}
	stop()
	callers.Wait()
	d, err := limit.Inspect(t.Context(), direct, key)
	require.NoError(t, err)
	assert.LessOrEqual(t, d.Limit-d.Remaining, attempts.Load())
	assert.GreaterOrEqual(t, d.Limit-d.Remaining, succeeded.Load())
}

// DeadHolder has one process hold a permit of a key for longer than a lease, while another one dies. Both
// have a semaphore with two permits. The permits are released when DeadHolder returns.
func DeadHolder(t *testing.T, key limit.Key, alive, dying limit.Semaphore, die func()) {
	t.Helper()
	var held []limit.Permit
	for _, s := range []limit.Semaphore{alive, dying} {
		p, err := s.Acquire(t.Context(), key)
		require.NoError(t, err)
		require.NotNil(t, p.Release)
		held = append(held, p)
	}
	die()
	denied, err := alive.Acquire(t.Context(), key)
	require.NoError(t, err)
	assert.Equal(t, limit.Permit{InUse: 2, Limit: 2}, denied)
	require.Eventually(t, func() bool {
		p, err := alive.Acquire(t.Context(), key)
		if err != nil || p.Release == nil {
			return false
		}
		assert.EqualValues(t, 2, p.InUse, "the live process keeps its permit")
		p.Release()
		return true
	}, time.Minute, 10*time.Millisecond)
	for _, p := range held {
		p.Release()
	}
}
