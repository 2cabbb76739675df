// Package lease keeps the permits of semaphores in remote stores while their holders work: a
// permit is held by a lease, which its process renews.
package lease

import (
	"context"
	"sync"
	"time"
)

const (
	// Time is how long a dead process keeps its permits.
	Time = 10 * time.Second

	callTime = time.Second // bounds calls in the background
)

// A Holder changes one lease in its store.
type Holder interface {
	// Renew extends the lease. It returns when ctx is done at the latest; wait then returns
	// when the renewal has no effect any more.
	Renew(ctx context.Context) (wait func())

	// Release ends the lease. If it fails, the lease expires.
	Release(ctx context.Context)
}

// Start renews a lease every third of its length. The function that it returns releases the lease
// without waiting for the store; further calls do nothing.
func Start(h Holder, length time.Duration) (end func()) {
	l := &lease{holder: h, length: length}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.timer = time.AfterFunc(length/3, l.renew)
	return sync.OnceFunc(l.end)
}

// ReleaseAfter releases a lease after a call that may still be in flight and could undo the release.
func ReleaseAfter(wait func(), h Holder) {
	wait()
	release(h)
}

func release(h Holder) {
	ctx, cancel := context.WithTimeout(context.Background(), callTime)
	defer cancel()
	h.Release(ctx)
}

type lease struct {
	holder Holder
	length time.Duration

	mu    sync.Mutex
	timer *time.Timer // runs renew; each run schedules the next until the lease has ended
	ended bool
}

// renew renews the lease and schedules the next renewal. While the store does not answer, the
// lease may expire and another process may take the permit; the next renewal counts in addition.
func (l *lease) renew() {
	ctx, cancel := context.WithTimeout(context.Background(), callTime)
	defer cancel()
	wait := l.holder.Renew(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		go ReleaseAfter(wait, l.holder) // the renewal may have undone the release
		return
	}
	l.timer.Reset(l.length / 3)
}

func (l *lease) end() {
	l.mu.Lock()
	l.ended = true
	l.timer.Stop()
	l.mu.Unlock()
	go release(l.holder)
}
