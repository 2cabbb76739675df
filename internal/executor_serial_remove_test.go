package internal_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/internal/executor"
)

func TestSerialQueue_RemoveTakesWaitingJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ran []int
		release := make(chan struct{})
		budget := &executor.ByteBudget{MaxBytes: 100}
		q := &executor.SerialQueue[int]{
			Owner: &owner[int]{
				run: func(n int) {
					<-release
					ran = append(ran, n)
				},
				size: func(n int) int64 { return int64(n) },
			},
			Config: &executor.Config{MaxWaiting: 5, MaxBytes: 1000, Budget: budget, Pool: new(executor.Pool)},
		}
		q.EnqueueWait(1)
		synctest.Wait()
		for n := 2; n <= 6; n++ {
			assert.True(t, q.Enqueue(n, time.Time{}))
		}
		added := make(chan bool)
		go func() { added <- q.Enqueue(7, time.Now().Add(time.Hour)) }()
		synctest.Wait()
		assert.Equal(t, []int{-1, 2, 4, 6}, q.Remove([]int{-1}, func(n int) bool { return n%2 == 0 }))
		assert.True(t, <-added, "the removal has made room")
		assert.Empty(t, q.Remove(nil, func(n int) bool { return n == 1 }), "it runs already")
		close(release)
		synctest.Wait()
		assert.Equal(t, []int{1, 3, 5, 7}, ran)
		assert.True(t, q.Enqueue(8, time.Time{}))
		assert.Equal(t, []int{8}, q.Remove(nil, func(int) bool { return true }))
		assert.False(t, q.TryStart(), "nothing is left")
	})
}

func TestSerialQueue_RemoveFreesMemory(t *testing.T) {
	for name, limits := range map[string][2]int64{"of the queue": {10, 1000}, "of all queues": {1000, 10}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				release := make(chan struct{})
				budget := &executor.ByteBudget{MaxBytes: limits[1]}
				newQueue := func() *executor.SerialQueue[int] {
					q := &executor.SerialQueue[int]{
						Owner:  &owner[int]{run: func(int) { <-release }, size: func(int) int64 { return 5 }},
						Config: &executor.Config{MaxWaiting: 100, MaxBytes: limits[0], Budget: budget, Pool: new(executor.Pool)},
					}
					return q
				}
				q := newQueue()
				q.EnqueueWait(0)
				synctest.Wait()
				for n := range 3 {
					if n < 2 || limits[0] > 10 {
						q.Enqueue(n, time.Time{})
					}
				}
				start := time.Now()
				assert.False(t, q.Enqueue(9, start.Add(time.Second)))
				assert.Equal(t, time.Second, time.Since(start))
				q.Remove(nil, func(int) bool { return true })
				for n := range 2 {
					assert.True(t, q.Enqueue(n, start.Add(time.Hour)))
				}
				assert.Equal(t, time.Second, time.Since(start), "it has not waited")
				close(release)
			})
		})
	}
}

func TestSerialQueue_EnqueueExpiresWhileFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(1)
		var j journal
		release := make(chan struct{})
		q.EnqueueWait(j.block(1, release))
		synctest.Wait()
		q.Enqueue(j.entry(2), time.Time{})
		start := time.Now()
		assert.False(t, q.Enqueue(j.entry(3), start.Add(time.Second)))
		assert.Equal(t, time.Second, time.Since(start))
		assert.False(t, q.Enqueue(j.entry(4), start), "a deadline that has passed")
		close(release)
		synctest.Wait()
		assert.Equal(t, []int{1, 2}, j.all())
	})
}
