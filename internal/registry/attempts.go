package registry

import (
	"sync/atomic"
	"time"
)

// Attempts bound how many attempts fail at a [Rate]. Those that run count as failed: however long they
// take, and however many run together, no more fail than the rate allows, and those that succeed leave
// nothing behind. The zero Attempts have had none. They are safe for concurrent use.
type Attempts struct {
	failed  Bucket
	running atomic.Int64
}

// Begin begins an attempt, which must end with End, and returns 0. Otherwise it returns after how long the
// attempt may begin if all that run fail.
func (a *Attempts) Begin(r Rate, now time.Duration) (wait time.Duration) {
	running := a.running.Add(1)
	if wait = a.failed.lacks(r, now, int(running)); wait > 0 {
		a.running.Add(-1)
	}
	return wait
}

// End ends an attempt that has failed or not.
func (a *Attempts) End(r Rate, now time.Duration, failed bool) {
	if failed {
		a.failed.Owe(r, now, 1) // before it no longer runs, so that no other attempt begins in its place
	}
	a.running.Add(-1)
}

func (a *Attempts) isIdle(now time.Duration) bool {
	return a.running.Load() == 0 && a.failed.isFull(now)
}
