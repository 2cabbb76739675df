package outbound

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A MemoryBudget is a [Budget] in this process. It forgets a route that was not used for
// an hour. It is safe for concurrent use.
type MemoryBudget struct {
	options BudgetOptions
	epoch   time.Time // every time.Duration below is measured from here

	mu         sync.Mutex // guards everything below
	routes     map[string]*routeState
	sweepAt    time.Duration
	lastID     uint64          // of a request
	pauseUntil time.Duration   // of all routes
	global     []budgetRequest // the requests that count against the global limit
}

var _ Budget = (*MemoryBudget)(nil)

// A routeState is what is known about a route and its current window.
type routeState struct {
	limit      int64         // Unlimited; 0 if unknown
	limitUntil time.Duration // when Unlimited expires
	usedAt     time.Duration

	opened     uint64 // ID of the request that opened the window; 0 if there is no window
	countedMax int64  // the limit that remaining was counted from
	remaining  int64
	endsAt     time.Duration // latest possible end of the window
	endKnown   bool          // a response to a request of this window has reported its end
	latestEnd  time.Duration // the latest end that any response has reported
	inFlight   []budgetRequest
}

// A budgetRequest is an acquired request that still counts.
type budgetRequest struct {
	id    uint64
	until time.Duration // when it stops counting
}

const (
	sweepInterval = time.Minute
	routeTTL      = time.Hour
	minPoll       = 5 * time.Millisecond
	maxPoll       = 250 * time.Millisecond
)

// NewMemoryBudget returns a MemoryBudget that knows nothing about any route. If opts is nil, the defaults
// apply. It panics if an option is invalid.
func NewMemoryBudget(opts *BudgetOptions) *MemoryBudget {
	return &MemoryBudget{options: opts.WithDefaults(), epoch: time.Now(), routes: map[string]*routeState{}}
}

// TryAcquire implements [Budget]. It never blocks, ignores its context and returns no
// error.
func (b *MemoryBudget) TryAcquire(_ context.Context, route string) (Grant, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Since(b.epoch)
	if wait := b.waitForGlobal(now); wait > 0 {
		return Grant{Wait: wait}, nil
	}
	grant := b.tryAcquireLocked(now, route)
	if grant.Wait == 0 && b.options.GlobalLimit > 0 {
		b.global = append(b.global, budgetRequest{b.lastID, now + b.options.Lease})
	}
	return grant, nil
}

// TryAcquireShared implements [Budget]. It never blocks, ignores its context and returns
// no error.
func (b *MemoryBudget) TryAcquireShared(_ context.Context, name string) (Grant, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.tryAcquireLocked(time.Since(b.epoch), name), nil
}

func (b *MemoryBudget) tryAcquireLocked(now time.Duration, route string) Grant {
	if wait := b.pauseUntil - now; wait > 0 {
		return Grant{Wait: wait}
	}
	r := b.route(route, now)
	id := b.lastID + 1
	if r.limit >= 0 || r.isClosed(now) {
		if wait := r.tryAcquire(now, id, b.options.Lease); wait > 0 {
			return Grant{Wait: wait}
		}
		r.inFlight = append(r.inFlight, budgetRequest{id, now + b.options.Lease})
	}
	b.lastID = id
	return Grant{ID: fmt.Sprint(r.opened, " ", id)}
}

// route returns the state of a route, and removes unused routes once per sweepInterval.
func (b *MemoryBudget) route(name string, now time.Duration) *routeState {
	if now >= b.sweepAt {
		b.sweepAt = now + sweepInterval
		for name, r := range b.routes {
			if now-r.usedAt > routeTTL && r.endsAt <= now && r.latestEnd <= now {
				delete(b.routes, name)
			}
		}
	}
	r := b.routes[name]
	if r == nil {
		r = &routeState{}
		b.routes[name] = r
	}
	if r.limit < 0 && r.limitUntil <= now {
		r.limit = 0
	}
	r.usedAt = now
	return r
}

// waitForGlobal returns 0 if the global limit permits a request. A request counts from
// TryAcquire until GlobalPer after its response. The response comes after the request has
// reached the API, so the request counts for at least GlobalPer after its arrival. Therefore
// all requests that arrive within one GlobalPer count at the same time when the last of them
// is acquired, wherever the API's own windows begin.
func (b *MemoryBudget) waitForGlobal(now time.Duration) time.Duration {
	o := &b.options
	if o.GlobalLimit == 0 {
		return 0
	}
	b.global = dropExpired(b.global, now)
	if int64(len(b.global)) < o.GlobalLimit {
		return 0
	}
	first := slices.MinFunc(b.global, func(a, b budgetRequest) int { return cmp.Compare(a.until, b.until) })
	return min(first.until-now, o.GlobalPer)
}

// isClosed reports whether a response has closed the route. This can happen to a route without
// a limit too.
func (r *routeState) isClosed(now time.Duration) bool {
	return r.endKnown && r.remaining == 0 && now < r.endsAt
}

// dropExpired removes the requests that no longer count.
func dropExpired(requests []budgetRequest, now time.Duration) []budgetRequest {
	return slices.DeleteFunc(requests, func(r budgetRequest) bool { return r.until <= now })
}

// tryAcquire returns 0 if the window permits the request, or how long to wait.
func (r *routeState) tryAcquire(now time.Duration, id uint64, lease time.Duration) time.Duration {
	r.inFlight = dropExpired(r.inFlight, now)
	if r.opened != 0 && now < r.endsAt {
		switch {
		case r.remaining > 0:
			r.remaining--
			return 0
		case r.endKnown:
			return r.endsAt - now
		default:
			return min(r.endsAt-now, r.pollDelay(now, lease))
		}
	}
	// This request opens a window. Requests still in flight may arrive in it, so they count.
	limit := max(r.limit, 1)
	remaining := limit - int64(len(r.inFlight)) - 1
	if remaining < 0 {
		return r.pollDelay(now, lease)
	}
	r.opened, r.countedMax, r.remaining, r.endKnown = id, limit, remaining, false
	r.endsAt = now + lease
	return 0
}

// pollDelay is how long to wait for a response that may arrive at any time. It grows with the
// time that the oldest request in flight has taken.
func (r *routeState) pollDelay(now, lease time.Duration) time.Duration {
	if len(r.inFlight) == 0 {
		return maxPoll
	}
	leaseLeft := r.inFlight[0].until - now
	elapsed := lease - leaseLeft
	return min(leaseLeft, min(max(elapsed/2, minPoll), maxPoll))
}

// Update implements [Budget]. It ignores its context. It returns an error if the grant
// is not one that TryAcquire has returned.
func (b *MemoryBudget) Update(_ context.Context, route string, grant Grant, status Status) error {
	openedText, idText, _ := strings.Cut(grant.ID, " ")
	opened, err1 := strconv.ParseUint(openedText, 10, 64)
	id, err2 := strconv.ParseUint(idText, 10, 64)
	if err1 != nil || err2 != nil {
		return fmt.Errorf("outbound: the grant %q is invalid; it must be one that TryAcquire returned", grant.ID)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Since(b.epoch)
	b.updateGlobal(now, id, status)
	r := b.route(route, now)
	r.learnLimit(status.Limit, now)
	count := len(r.inFlight)
	r.inFlight = slices.DeleteFunc(r.inFlight, func(q budgetRequest) bool { return q.id == id })
	r.update(now, opened, id, len(r.inFlight) < count, status)
	return nil
}

// updateGlobal applies a response to the limits that all routes share.
func (b *MemoryBudget) updateGlobal(now time.Duration, id uint64, status Status) {
	for i := range b.global {
		if b.global[i].id == id {
			b.global[i].until = now + b.options.GlobalPer
			if status.Unsent {
				b.global[i].until = now
			}
		}
	}
	if status.Global {
		b.pauseUntil = max(b.pauseUntil, now+status.RetryAfter)
	}
}

// learnLimit accepts Unlimited only while no response has reported a limit: one response
// without headers must not remove a limit.
func (r *routeState) learnLimit(limit int64, now time.Duration) {
	switch {
	case limit > 0:
		r.limit = limit
	case limit < 0 && r.limit <= 0:
		r.limit, r.limitUntil = limit, now+routeTTL
	}
}

// update applies a response to the window. opened identifies the window in which the request
// was acquired.
func (r *routeState) update(now time.Duration, opened, id uint64, wasInFlight bool, status Status) {
	endsAt := time.Duration(0)
	if status.ResetAfter > 0 {
		endsAt = now + status.ResetAfter
	}
	closes := status.RetryAfter > 0 && !status.Global
	if closes {
		endsAt = max(endsAt, now+status.RetryAfter)
	}
	r.latestEnd = max(r.latestEnd, endsAt)
	isOpen := r.opened != 0 && now < r.endsAt
	isCurrent := isOpen && r.opened == opened
	switch {
	case isCurrent:
		r.count(wasInFlight, status)
	case !isOpen && endsAt > now: // the response reveals a window of the API that is still open
		r.opened, r.endKnown, r.endsAt = id, true, endsAt
		r.countedMax = max(status.Limit, 1)
		r.remaining = max(min(status.Remaining, r.countedMax)-int64(len(r.inFlight)), 0)
	}
	if closes {
		r.remaining = 0
	}
	if endsAt == 0 {
		return
	}
	if isCurrent && !r.endKnown {
		r.endKnown, r.endsAt = true, 0 // until here, endsAt was the end of the first lease
	}
	r.endsAt = max(r.endsAt, r.latestEnd)
}

// count applies a response to a request of the current window to the remaining requests.
func (r *routeState) count(wasInFlight bool, status Status) {
	switch {
	case status.Limit > 0:
		r.remaining += status.Limit - r.countedMax
		r.countedMax = status.Limit
		r.remaining = max(min(r.remaining, status.Remaining), 0)
	case wasInFlight && (status.Unsent || r.limit == 0 && (status.Global || status.RetryAfter == 0)):
		r.remaining++ // while the limit is unknown, each response permits the next request
	}
}
