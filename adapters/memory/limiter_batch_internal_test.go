package memory

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/limit"
)

// TestLimiter_DeniedBatchIsInvisible sends joint calls in opposite orders that are all denied,
// and other calls that would see missing tokens.
func TestLimiter_DeniedBatchIsInvisible(t *testing.T) {
	rooms, users := NewLimiter(limit.PerHour(2)), NewLimiter(limit.PerHour(2))
	rooms.clock = func() int64 { return 0 }
	users.clock = rooms.clock
	ann, room := limit.Key{"ann"}, limit.Key{"room"}
	takeAll(t, users, ann)
	takeAll(t, rooms, limit.Key{"other"})
	_, err := limit.Consume(t.Context(), rooms, room, 1)
	require.NoError(t, err)
	a, b := limit.Request{Limiter: users, Key: ann, Cost: 1}, limit.Request{Limiter: rooms, Key: room, Cost: 1}
	done := make(chan struct{})
	var joint, single sync.WaitGroup
	for _, requests := range [][]limit.Request{{a, b}, {b, a}, {b, a, {Limiter: rooms, Key: limit.Key{"other"}, Cost: 0}}} {
		joint.Go(func() {
			for range 3000 {
				if d, err := limit.ConsumeAll(context.Background(), requests...); err != nil || d.Allowed {
					t.Errorf("a joint call is %+v, %v", d, err)
					return
				}
			}
		})
	}
	for range 2 {
		single.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if d, err := limit.Consume(context.Background(), rooms, room, 0); err != nil || d.Remaining != 1 {
					t.Errorf("a denied joint call has taken tokens: %+v, %v", d, err)
					return
				}
			}
		})
	}
	joint.Wait()
	close(done)
	single.Wait()
	assert.EqualValues(t, 1, takeAll(t, rooms, room))
}

// TestLimiter_BatchesMeetFloodsAndChanges sends joint calls while slots change their keys, tables
// are replaced and policies change.
func TestLimiter_BatchesMeetFloodsAndChanges(t *testing.T) {
	const capacity = 300
	policy := limit.PerHour(capacity)
	rooms, users := NewLimiterMaxKeys(policy, 100), NewLimiterMaxKeys(policy, 100)
	rooms.clock = func() int64 { return 1 }
	users.clock = rooms.clock
	ann, room := limit.Key{"ann"}, limit.Key{"room"}
	var granted [3]int64
	var wg sync.WaitGroup
	wg.Go(func() {
		for range 400 {
			if d, err := limit.Consume(context.Background(), rooms, room, 1); err == nil && d.Allowed {
				granted[2]++
			}
		}
	})
	for i, requests := range [][]limit.Request{
		{{Limiter: users, Key: ann, Cost: 1}, {Limiter: rooms, Key: room, Cost: 1}},
		{{Limiter: rooms, Key: room, Cost: 1}, {Limiter: users, Key: ann, Cost: 1}, {Limiter: rooms, Key: limit.Key{"free"}, Cost: 0}},
	} {
		wg.Go(func() {
			for range 400 {
				if d, err := limit.ConsumeAll(context.Background(), requests...); err == nil && d.Allowed {
					granted[i]++
				}
			}
		})
	}
	wg.Go(func() {
		for n := range 2000 {
			_, _ = limit.Consume(context.Background(), rooms, limit.Key{"flood", strconv.Itoa(n)}, 1)
			_ = limit.Refund(context.Background(), rooms, limit.Key{"flood", strconv.Itoa(n)}, 1)
		}
	})
	wg.Go(func() {
		for n := range int64(101) {
			assert.NoError(t, rooms.SetPolicy(policy.Burst(capacity-n%2*10)))
			assert.NoError(t, users.SetPolicy(policy.Burst(capacity-n%2*10)))
		}
	})
	wg.Wait()
	assert.EqualValues(t, capacity, granted[0]+granted[1]+granted[2]+takeAll(t, rooms, room))
	assert.EqualValues(t, capacity, granted[0]+granted[1]+takeAll(t, users, ann))
}

// TestLimiter_BatchOfUntrackedKeysSharesBucket lets two requests of a batch meet in the overflow
// bucket.
func TestLimiter_BatchOfUntrackedKeysSharesBucket(t *testing.T) {
	l := NewLimiterMaxKeys(limit.PerHour(10), 1)
	l.clock = func() int64 { return 0 }
	takeAll(t, l, limit.Key{"tracked"})
	both := func(cost int64) limit.Decision {
		d, err := limit.ConsumeAll(t.Context(),
			limit.Request{Limiter: l, Key: limit.Key{"ann"}, Cost: cost},
			limit.Request{Limiter: l, Key: limit.Key{"bob"}, Cost: cost})
		require.NoError(t, err)
		return d
	}
	assert.True(t, both(4).Allowed)
	assert.False(t, both(2).Allowed, "two tokens are left")
	assert.True(t, both(1).Allowed)
	assert.Equal(t, 6*time.Minute, both(1).RetryAfter)
}

func TestLimiter_BatchHoldsBuckets(t *testing.T) {
	l := NewLimiter(limit.PerHour(10))
	key := limit.Key{"ann"}
	hash := key.Hash(l.seed)
	checked := false
	l.clock = func() int64 {
		s := &l.shards[hash>>l.shift]
		if found, _ := s.table.Load().find(hash); found != nil {
			checked = true
			assert.Equal(t, int64(held), found.bucket.Load(), "other calls must wait for the batch")
		}
		return 0
	}
	_, err := l.TakeBatch(t.Context(), []limit.Request{{Limiter: l, Key: key, Cost: 4}}, limit.Take{})
	require.NoError(t, err)
	assert.True(t, checked)
	l.clock = func() int64 { return 0 }
	assert.EqualValues(t, 6, takeAll(t, l, key))
}
