package outbound

import (
	"sync"
	"time"
)

// backoffs lengthen the waits after rejections that do not say how long to wait. A route is forgotten an hour after
// its last rejection.
type backoffs struct {
	mu      sync.Mutex // guards everything below
	routes  map[string]backoff
	sweepAt time.Time
}

type backoff struct {
	wait time.Duration // of the last rejection
	at   time.Time     // of that
}

// rejected returns how long a route must wait after such a rejection of a request that was sent at a time. It is twice
// the previous wait, unless the request was on its way when that began.
func (b *backoffs) rejected(route string, sentAt time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	b.sweepLocked(now)
	r, known := b.routes[route]
	switch {
	case !known:
		r = backoff{defaultRetryAfter, now}
	case sentAt.After(r.at):
		r = backoff{min(2*r.wait, maxRetryAfter), now}
	}
	b.routes[route] = r
	return r.wait
}

// accepted ends the waits of a route if the request was sent after its last rejection.
func (b *backoffs) accepted(route string, sentAt time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r, known := b.routes[route]; known && sentAt.After(r.at) {
		delete(b.routes, route)
	}
}

// sweepLocked removes old rejections once per limitSweepInterval.
func (b *backoffs) sweepLocked(now time.Time) {
	if now.Before(b.sweepAt) {
		return
	}
	b.sweepAt = now.Add(limitSweepInterval)
	for name, r := range b.routes {
		if now.Sub(r.at) >= limitTTL {
			delete(b.routes, name)
		}
	}
}
