package postgres

import (
	"context"
	"sync/atomic"
	"time"
)

// A limitSweep removes expired records, one page after the other.
type limitSweep struct {
	running atomic.Bool
	next    atomic.Int64 // when the next step may begin, on the clock of the store
	after   []byte       // the last key of the page before; owned by the running step
}

const (
	sweepPage = 1000 // records that a step looks at

	// After a step, the next one begins after a pause, which is shorter where much has expired. A step
	// takes a few milliseconds.
	sweepPause      = time.Second
	sweepShortPause = 50 * time.Millisecond
	sweepErrorPause = 10 * time.Second

	sweepTimeout = 5 * time.Second
)

// sweepSoon starts a step of the sweep on a goroutine of its own, if one is due.
func (l *LimitStore) sweepSoon() {
	if l.now() < time.Duration(l.sweep.next.Load()) || !l.sweep.running.CompareAndSwap(false, true) {
		return
	}
	go func() {
		defer l.sweep.running.Store(false)
		ctx, cancel := context.WithTimeout(context.Background(), sweepTimeout)
		defer cancel()
		pause := l.sweepStep(ctx)
		l.sweep.next.Store(int64(l.now() + pause))
	}()
}

// sweepStep removes the expired records of one page, and returns the pause after it.
func (l *LimitStore) sweepStep(ctx context.Context) (pause time.Duration) {
	after := l.sweep.after
	if after == nil {
		after = []byte{}
	}
	var seen, removed int
	err := l.pool.QueryRow(ctx, l.sql.sweep, after, sweepPage).
		Scan(&l.sweep.after, &seen, &removed)
	switch {
	case err != nil:
		return sweepErrorPause
	case seen < sweepPage:
		l.sweep.after = nil // the next step begins at the first key
		return sweepPause
	case removed > sweepPage/4:
		return sweepShortPause
	default:
		return sweepPause
	}
}
