package internal_test

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/internal/executor"
)

func newQueue(maxWaiting int) *executor.SerialQueue[func()] {
	return &executor.SerialQueue[func()]{
		Owner:  &owner[func()]{run: func(job func()) { job() }},
		Config: &executor.Config{MaxWaiting: maxWaiting, Pool: new(executor.Pool)},
	}
}

// An owner calls functions, which may be nil, except run.
type owner[T any] struct {
	run      func(T)
	afterJob func(next bool)
	size     func(T) int64
	ended    <-chan struct{}
}

// RunJob implements executor.Owner.
func (o *owner[T]) RunJob(job T) { o.run(job) }

// AfterJob implements executor.Owner.
func (o *owner[T]) AfterJob(next bool) {
	if o.afterJob != nil {
		o.afterJob(next)
	}
}

// JobBytes implements executor.Owner.
func (o *owner[T]) JobBytes(job T) int64 { return o.size(job) }

// Ended implements executor.Owner.
func (o *owner[T]) Ended() <-chan struct{} { return o.ended }

func ownerOf[T any](q *executor.SerialQueue[T]) *owner[T] { return q.Owner.(*owner[T]) }

// A journal is a list of what has happened, in order.
type journal struct {
	mu      sync.Mutex
	entries []int
}

func (j *journal) add(entry int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.entries = append(j.entries, entry)
}

func (j *journal) all() []int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.entries)
}

// block returns a job that adds entry and waits for release.
func (j *journal) block(entry int, release <-chan struct{}) func() {
	return func() {
		j.add(entry)
		<-release
	}
}

func (j *journal) entry(entry int) func() { return func() { j.add(entry) } }

func TestSerialQueue_RunsJobsOneAtATimeInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(4)
		var j journal
		running := 0 // without a lock, so that the race detector sees jobs that overlap
		for i := range 1000 {
			q.EnqueueWait(func() {
				running++
				assert.Equal(t, 1, running)
				j.add(i)
				if i%10 == 0 {
					runtime.Gosched()
				}
				running--
			})
		}
		synctest.Wait()
		assert.Len(t, j.all(), 1000)
		assert.True(t, slices.IsSorted(j.all()))
	})
}

func TestSerialQueue_YieldStartsOneFurtherJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(10)
		var j journal
		release := make(chan struct{})
		for i := range 3 {
			q.EnqueueWait(func() {
				if i == 0 {
					q.Yield()
				}
				j.block(i, release)()
			})
		}
		synctest.Wait()
		assert.ElementsMatch(t, []int{0, 1}, j.all(), "the second job has not yielded")
		release <- struct{}{}
		release <- struct{}{}
		synctest.Wait()
		assert.Equal(t, 2, j.all()[2])
		release <- struct{}{}
	})
}

func TestSerialQueue_YieldingJobThatEndsDoesNotStartTwoJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(10)
		var j journal
		first, rest := make(chan struct{}), make(chan struct{})
		q.EnqueueWait(func() {
			q.Yield()
			<-first
		})
		q.EnqueueWait(j.block(1, rest))
		q.EnqueueWait(j.block(2, rest))
		synctest.Wait()
		close(first) // its goroutine must not take job 2, because job 1 has not yielded
		synctest.Wait()
		assert.Equal(t, []int{1}, j.all())
		close(rest)
		synctest.Wait()
		assert.Equal(t, []int{1, 2}, j.all())
	})
}

func TestSerialQueue_GoexitDoesNotStopTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(10)
		var ended atomic.Int64
		ownerOf(q).afterJob = func(next bool) {
			if !next {
				ended.Add(1)
			}
		}
		var j journal
		q.EnqueueWait(func() {
			q.EnqueueNow(j.entry(1))
			runtime.Goexit()
		})
		synctest.Wait()
		assert.Equal(t, []int{1}, j.all())
		assert.EqualValues(t, 2, ended.Load(), "once for each goroutine")
		q.EnqueueWait(func() {
			q.Yield()
			runtime.Goexit()
		})
		q.EnqueueWait(j.entry(2))
		synctest.Wait()
		assert.Equal(t, []int{1, 2}, j.all())
	})
}

func TestSerialQueue_CallsHooksBetweenAndAfterJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(10)
		var j journal
		ownerOf(q).afterJob = func(next bool) {
			if next {
				j.add(-1)
			} else {
				j.add(-2)
			}
		}
		q.Enqueue(j.entry(1), time.Time{})
		q.Enqueue(j.entry(2), time.Time{})
		q.Enqueue(j.entry(3), time.Time{})
		assert.True(t, q.TryStart())
		assert.False(t, q.TryStart(), "a goroutine is about to take the first job")
		q.Run()
		assert.Equal(t, []int{1, -1, 2, -1, 3, -2}, j.all())
		assert.False(t, q.TryStart(), "no job waits")
	})
}

// waits reports whether f blocks. It must be called in a synctest bubble. f must return
// after release has been called.
func waits(f func(), release func()) bool {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	synctest.Wait()
	select {
	case <-done:
		return false
	default:
	}
	release()
	<-done
	return true
}

func TestSerialQueue_EnqueueWaitsWhileTooManyJobsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(2)
		var j journal
		release := make(chan struct{})
		for i := range 3 { // one runs and two wait
			q.EnqueueWait(j.block(i, release))
			synctest.Wait()
		}
		assert.True(t, waits(func() { q.EnqueueWait(j.block(3, release)) }, func() { release <- struct{}{} }))
		release <- struct{}{}
		synctest.Wait()
		assert.False(t, waits(func() { q.EnqueueWait(j.block(4, release)) }, func() {}))
		assert.False(t, waits(func() { q.EnqueueNow(j.block(5, release)) }, func() {}), "EnqueueNow does not wait")
		close(release)
		synctest.Wait()
		assert.Equal(t, []int{0, 1, 2, 3, 4, 5}, j.all())
		q.EnqueueNow(j.entry(6))
		synctest.Wait()
		assert.Len(t, j.all(), 7, "EnqueueNow starts the job")
	})
}

// A sizedJob waits for release, unless that is nil.
type sizedJob struct {
	bytes   int64
	release <-chan struct{}
}

func newSizedQueue(maxBytes int64, budget *executor.ByteBudget, ended <-chan struct{}) *executor.SerialQueue[sizedJob] {
	return &executor.SerialQueue[sizedJob]{
		Owner: &owner[sizedJob]{
			run: func(job sizedJob) {
				if job.release != nil {
					<-job.release
				}
			},
			size:  func(job sizedJob) int64 { return job.bytes },
			ended: ended,
		},
		Config: &executor.Config{MaxWaiting: 100, MaxBytes: maxBytes, Budget: budget, Pool: new(executor.Pool)},
	}
}

func TestSerialQueue_EnqueueWaitsForBytesOfTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newSizedQueue(100, &executor.ByteBudget{MaxBytes: 1000}, nil)
		release := make(chan struct{})
		q.EnqueueWait(sizedJob{500, release})
		synctest.Wait() // it runs, and does not count
		q.EnqueueWait(sizedJob{99, release})
		q.EnqueueWait(sizedJob{99, nil})
		empty := func() { q.EnqueueWait(sizedJob{0, nil}) }
		assert.True(t, waits(empty, func() { release <- struct{}{} }), "198 bytes wait")
		assert.False(t, waits(empty, func() {}), "99 bytes wait")
		close(release)
		synctest.Wait()
		assert.False(t, waits(func() { q.EnqueueWait(sizedJob{500, nil}) }, func() {}), "an empty queue accepts any job")
		synctest.Wait()
	})
}

func TestSerialQueue_EnqueueWaitsForTheSharedBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		budget := &executor.ByteBudget{MaxBytes: 100}
		large, small := newSizedQueue(1000, budget, nil), newSizedQueue(1000, budget, nil)
		releaseLarge, releaseSmall := make(chan struct{}), make(chan struct{})
		large.EnqueueWait(sizedJob{10, releaseLarge})
		synctest.Wait()
		for range 3 { // the first of these is not counted
			large.EnqueueWait(sizedJob{50, releaseLarge})
		}
		small.EnqueueWait(sizedJob{10, releaseSmall})
		synctest.Wait()
		assert.False(t, waits(func() { small.EnqueueWait(sizedJob{10, nil}) }, func() {}), "nothing waits in this queue")
		assert.True(t, waits(func() { small.EnqueueWait(sizedJob{1, nil}) }, func() {
			releaseLarge <- struct{}{} // the next job starts, and the budget has room for 50 bytes
		}))
		assert.True(t, waits(func() {
			small.EnqueueWait(sizedJob{60, nil})
			small.EnqueueWait(sizedJob{1, nil})
		}, func() { close(releaseSmall) }), "jobs of this queue free the budget, too")
		close(releaseLarge)
		synctest.Wait()
	})
}

// TestSerialQueue_ReturnsWhatItTakesFromTheBudget runs jobs of random sizes in queues that share
// a budget. At the end, a queue can use all of it.
func TestSerialQueue_ReturnsWhatItTakesFromTheBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		budget := &executor.ByteBudget{MaxBytes: 200}
		var producers sync.WaitGroup
		for range 4 {
			q := newSizedQueue(150, budget, nil)
			producers.Go(func() {
				for i := range 500 {
					q.EnqueueWait(sizedJob{int64(i * 37 % 90), nil})
				}
			})
		}
		producers.Wait()
		synctest.Wait()
		q := newSizedQueue(1000, budget, nil)
		release := make(chan struct{})
		q.EnqueueWait(sizedJob{1, release})
		synctest.Wait()
		assert.False(t, waits(func() {
			q.EnqueueWait(sizedJob{1, nil})
			q.EnqueueWait(sizedJob{199, nil}) // 199 of 200 are in use
			q.EnqueueWait(sizedJob{1, nil})
		}, func() { close(release) }), "the budget is free")
		assert.True(t, waits(func() { q.EnqueueWait(sizedJob{0, nil}) }, func() { close(release) }))
		synctest.Wait()
	})
}

func TestSerialQueue_EndedStopsWaitingForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, budget := range map[string]int64{"bytes of the queue": 1000, "the budget": 10} {
			ended, release := make(chan struct{}), make(chan struct{})
			q := newSizedQueue(30, &executor.ByteBudget{MaxBytes: budget}, ended)
			for range 3 {
				q.EnqueueWait(sizedJob{20, release})
				synctest.Wait()
			}
			assert.True(t, waits(func() { q.EnqueueWait(sizedJob{0, nil}) }, func() { close(ended) }), name)
			close(release)
			synctest.Wait()
		}
	})
}
