package internal_test

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestSerialQueue_ClaimedJobRunsOnTheCallersGoroutineBeforeOthers(t *testing.T) {
	q := newQueue(10)
	var j journal
	assert.True(t, q.Claim())
	assert.False(t, q.Claim(), "a claimed job blocks the queue like one that runs")
	for i := range 3 {
		q.Enqueue(j.entry(i), time.Time{})
	}
	assert.False(t, q.TryStart())
	q.RunClaimed(j.entry(-1))
	assert.Equal(t, []int{-1, 0, 1, 2}, j.all())
	assert.True(t, q.Claim(), "the queue is empty again")
}

func TestSerialQueue_ClaimFailsWhileJobsWaitOrStart(t *testing.T) {
	q := newQueue(10)
	q.Enqueue(func() {}, time.Time{})
	assert.False(t, q.Claim(), "a job waits")
	assert.True(t, q.TryStart())
	assert.False(t, q.Claim(), "a job starts")
	q.Run()
	assert.True(t, q.Claim())
}

func TestSerialQueue_UnclaimedJobRunsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(10)
		var j journal
		assert.True(t, q.Claim())
		q.Enqueue(j.entry(2), time.Time{})
		q.Enqueue(j.entry(3), time.Time{})
		q.Unclaim(j.entry(1))
		synctest.Wait()
		assert.Equal(t, []int{1, 2, 3}, j.all())
	})
}

func TestSerialQueue_ClaimedJobMayYieldAndExit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(10)
		var j journal
		assert.True(t, q.Claim())
		q.Enqueue(j.entry(2), time.Time{})
		go q.RunClaimed(func() {
			j.add(1)
			q.Yield()
			time.Sleep(time.Second) // the other job runs meanwhile
			j.add(3)
			runtime.Goexit()
		})
		time.Sleep(time.Minute)
		assert.True(t, q.Claim())
		go q.RunClaimed(runtime.Goexit) // without Yield
		synctest.Wait()
		assert.True(t, q.Claim())
		assert.Equal(t, []int{1, 2, 3}, j.all())
	})
}
