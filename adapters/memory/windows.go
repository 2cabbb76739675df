package memory

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/penstock-go/penstock/outbound"
)

// Windows are [outbound.Windows] in this process. A route that was not used for an hour
// is forgotten.
type Windows struct {
	options outbound.WindowsOptions
	epoch   time.Time

	mu      sync.Mutex
	routes  map[string]*window
	sweepAt time.Duration
	last    uint64        // request
	pause   time.Duration // of all routes, until then
	global  []request     // those that count against the global limit
}

var _ outbound.Windows = (*Windows)(nil)

// A window is what is known of a route. Times are since the epoch.
type window struct {
	limit    int64 // outbound.Unlimited; 0 if unknown
	limitTil time.Duration
	usedAt   time.Duration

	opened    uint64 // by which request; 0 if not yet
	assumed   int64  // the limit that remaining was counted from
	remaining int64
	ends      time.Duration // at the latest
	known     bool          // a response to one of its requests has said when it ends
	latest    time.Duration // that any response has said a window ends
	flying    []request     // those that are under way, by when their leases end
}

type request struct {
	id    uint64
	until time.Duration
}

const (
	sweepEvery   = time.Minute
	routeTime    = time.Hour
	leastAskTime = 5 * time.Millisecond
	mostAskTime  = 250 * time.Millisecond
)

// NewWindows returns windows of which nothing is known. It panics if an option makes no
// sense; nil is the zero value.
func NewWindows(opts *outbound.WindowsOptions) *Windows {
	return &Windows{options: opts.Filled(), epoch: time.Now(), routes: map[string]*window{}}
}

// Claim takes a request of a route's window, or says how long to wait. It ignores its
// context: it never waits.
func (w *Windows) Claim(_ context.Context, route string) (outbound.Claim, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Since(w.epoch)
	r := w.route(route, now)
	if wait := max(w.pause-now, w.waitForGlobal(now)); wait > 0 {
		return outbound.Claim{Wait: wait}, nil
	}
	id := w.last + 1
	if r.limit >= 0 || r.refuses(now) {
		if wait := r.claim(now, id, w.options.Lease); wait > 0 {
			return outbound.Claim{Wait: wait}, nil
		}
		r.flying = append(r.flying, request{id, now + w.options.Lease})
	}
	w.last = id
	if w.options.GlobalLimit > 0 {
		w.global = append(w.global, request{id, now + w.options.Lease})
	}
	return outbound.Claim{Ticket: fmt.Sprint(r.opened, " ", id)}, nil
}

func (w *Windows) route(name string, now time.Duration) *window {
	if now >= w.sweepAt {
		w.sweepAt = now + sweepEvery
		for name, r := range w.routes {
			if now-r.usedAt > routeTime && r.ends <= now && r.latest <= now {
				delete(w.routes, name)
			}
		}
	}
	r := w.routes[name]
	if r == nil {
		r = &window{}
		w.routes[name] = r
	}
	if r.limit < 0 && r.limitTil <= now {
		r.limit = 0
	}
	r.usedAt = now
	return r
}

// waitForGlobal returns 0 if the global limit has room. A request counts from its claim
// until GlobalPer after its response, which is never less than GlobalPer after it
// arrived. So all that arrive within GlobalPer of each other count when the last of them
// is claimed, wherever the API's own windows lie.
func (w *Windows) waitForGlobal(now time.Duration) time.Duration {
	o := &w.options
	if o.GlobalLimit == 0 {
		return 0
	}
	w.global = landed(w.global, now)
	if int64(len(w.global)) < o.GlobalLimit {
		return 0
	}
	soonest := slices.MinFunc(w.global, func(a, b request) int { return cmp.Compare(a.until, b.until) })
	return min(soonest.until-now, o.GlobalPer)
}

// refuses reports whether a response has closed the route, which it may though the route has
// no limit otherwise.
func (r *window) refuses(now time.Duration) bool {
	return r.known && r.remaining == 0 && now < r.ends
}

// landed drops the requests that do not count any more.
func landed(requests []request, now time.Duration) []request {
	return slices.DeleteFunc(requests, func(r request) bool { return r.until <= now })
}

// claim returns 0 if the window has taken the request.
func (r *window) claim(now time.Duration, id uint64, lease time.Duration) time.Duration {
	r.flying = landed(r.flying, now)
	if r.opened != 0 && now < r.ends {
		switch {
		case r.remaining > 0:
			r.remaining--
			return 0
		case r.known:
			return r.ends - now
		default:
			return min(r.ends-now, r.askAgain(now, lease))
		}
	}
	limit := max(r.limit, 1)
	remaining := limit - int64(len(r.flying)) - 1 // they may arrive in this window, too
	if remaining < 0 {
		return r.askAgain(now, lease)
	}
	r.opened, r.assumed, r.remaining, r.known = id, limit, remaining, false
	r.ends = now + lease
	return 0
}

// askAgain is how long to wait for a response, which may come at any time: the longer it
// has taken, the longer.
func (r *window) askAgain(now, lease time.Duration) time.Duration {
	if len(r.flying) == 0 {
		return mostAskTime
	}
	first := r.flying[0]
	taken := lease - (first.until - now)
	return min(first.until-now, min(max(taken/2, leastAskTime), mostAskTime))
}

// Update says what a response told. It ignores its context.
func (w *Windows) Update(_ context.Context, route string, claim outbound.Claim, told outbound.Status) error {
	before, after, _ := strings.Cut(claim.Ticket, " ")
	opened, err1 := strconv.ParseUint(before, 10, 64)
	id, err2 := strconv.ParseUint(after, 10, 64)
	if err1 != nil || err2 != nil {
		return fmt.Errorf("memory: ticket is %q; it must be one that Claim has returned", claim.Ticket)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Since(w.epoch)
	for i := range w.global {
		if w.global[i].id == id {
			w.global[i].until = now + w.options.GlobalPer
			if told.Unsent {
				w.global[i].until = now
			}
		}
	}
	if told.Global {
		w.pause = max(w.pause, now+told.RetryAfter)
	}
	r := w.route(route, now)
	r.learnLimit(told.Limit, now)
	flying := len(r.flying)
	r.flying = slices.DeleteFunc(r.flying, func(q request) bool { return q.id == id })
	r.update(now, opened, id, len(r.flying) < flying, told)
	return nil
}

// learnLimit believes a response without headers only if none ever had any.
func (r *window) learnLimit(limit int64, now time.Duration) {
	switch {
	case limit > 0:
		r.limit = limit
	case limit < 0 && r.limit <= 0:
		r.limit, r.limitTil = limit, now+routeTime
	}
}

func (r *window) update(now time.Duration, opened, id uint64, wasFlying bool, told outbound.Status) {
	ends := time.Duration(0)
	if told.ResetAfter > 0 {
		ends = now + told.ResetAfter
	}
	closes := told.RetryAfter > 0 && !told.Global
	if closes {
		ends = max(ends, now+told.RetryAfter)
	}
	r.latest = max(r.latest, ends)
	isOpen := r.opened != 0 && now < r.ends
	isCurrent := isOpen && r.opened == opened
	switch {
	case isCurrent:
		r.count(wasFlying, told)
	case !isOpen && ends > now: // the request counts in a window that was not known of
		r.opened, r.known, r.ends = id, true, ends
		r.assumed = max(told.Limit, 1)
		r.remaining = max(min(told.Remaining, r.assumed)-int64(len(r.flying)), 0)
	}
	if closes {
		r.remaining = 0
	}
	if ends == 0 {
		return
	}
	if isCurrent && !r.known {
		r.known, r.ends = true, 0 // the lease was a guess
	}
	r.ends = max(r.ends, r.latest)
}

// count is of a response to a request of this window.
func (r *window) count(wasFlying bool, told outbound.Status) {
	switch {
	case told.Limit > 0:
		r.remaining += told.Limit - r.assumed
		r.assumed = told.Limit
		r.remaining = max(min(r.remaining, told.Remaining), 0)
	case wasFlying && (told.Unsent || r.limit == 0 && (told.Global || told.RetryAfter == 0)):
		r.remaining++ // one at a time
	}
}
