package memory

import (
	"slices"
	"sort"
	"time"

	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/adapter"
)

// A logRules value is the numbers of a sliding-window log, or of a cooldown: a log with penalties. Times
// are in microseconds.
type logRules struct {
	numbers
	window, penalty int64 // penalty is 0 for a log

	// Records keep the calls that any recent policy counts.
	keep        int64 // the largest maximum of those policies
	retain      int64 // their longest window
	retainUntil int64 // when nothing of the other policies counts; 0 without others
}

func newLogRules(n numbers, window, penalty time.Duration) *logRules {
	return &logRules{numbers: n, window: window.Microseconds(), penalty: penalty.Microseconds(), keep: n.max, retain: window.Microseconds()}
}

func (p *logRules) follow(old *logRules, now int64) {
	keep, retain, until := old.max, old.window, now+adapter.MaxReserve.Microseconds()+old.window
	if now < old.retainUntil {
		keep, retain, until = old.keep, old.retain, max(until, old.retainUntil)
	}
	p.keep, p.retain, p.retainUntil = max(p.keep, keep), max(p.retain, retain), until
}

// A callLog is the record of a key: when its last calls could be spent, and the end of its penalty.
// Times are in microseconds since the limiter was created. Those of reservations are in the future.
type callLog struct {
	ring        []int64 // the times, oldest first from index first on, and on from index 0 after the last
	first       int64
	count       int64
	windowEnds  int64 // when none of the calls counts
	penaltyEnds int64
}

func (r *callLog) idle(now int64) bool { return r.windowEnds <= now && r.penaltyEnds <= now }

func (r *callLog) clone() callLog {
	c := *r
	c.ring = slices.Clone(r.ring)
	return c
}

// at returns the time of a call; the oldest one has index 0.
func (r *callLog) at(i int64) int64 { return r.ring[(r.first+i)%int64(len(r.ring))] }

func (r *callLog) set(i, at int64) { r.ring[(r.first+i)%int64(len(r.ring))] = at }

// advance removes the calls that no policy counts.
func (p *logRules) advance(r *callLog, now int64) {
	window := p.window
	if now < p.retainUntil {
		window = p.retain
	}
	for r.count > 0 && r.at(0) <= now-window {
		r.drop(1)
	}
	if r.count == 0 {
		r.ring, r.first = nil, 0
	}
}

func (r *callLog) drop(calls int64) {
	r.first = (r.first + calls) % int64(len(r.ring))
	r.count -= calls
}

// outside returns how many calls of a record do not count: all but the newest of the window, up to
// twice the maximum.
func (p *logRules) outside(r *callLog, now int64) int64 {
	outside := max(r.count-2*p.max, 0)
	if now >= p.retainUntil {
		return outside
	}
	return max(outside, r.until(now-p.window))
}

// until returns how many calls were at a time or before.
func (r *callLog) until(at int64) int64 {
	return int64(sort.Search(int(r.count), func(i int) bool { return r.at(int64(i)) > at }))
}

// add adds calls at a time, and removes the oldest ones if there are too many. The ring grows with
// them.
func (r *callLog) add(at, calls int64, p *logRules) {
	later := int64(0) // calls of reservations
	if r.count > 0 && r.at(r.count-1) > at {
		later = r.count - r.until(at)
	}
	calls = min(calls, 2*p.keep-later)
	if excess := r.count + calls - 2*p.keep; excess > 0 {
		r.drop(excess)
	}
	if need := r.count + calls; need > int64(len(r.ring)) {
		r.grow(need, p)
	}
	r.count += calls
	for i := r.count - 1; i >= r.count-later; i-- {
		r.set(i, r.at(i-calls))
	}
	for i := range calls {
		r.set(r.count-later-calls+i, at)
	}
	r.windowEnds = max(r.windowEnds, at+p.retain)
}

// grow makes room for more calls. Only reservations, charges and changes of the policy need more
// than the maximum.
func (r *callLog) grow(need int64, p *logRules) {
	most := p.max
	if need > most {
		most = 2 * p.keep
	}
	larger := make([]int64, min(max(need, 2*int64(len(r.ring))), most))
	for i := range r.count {
		larger[i] = r.at(i)
	}
	r.ring, r.first = larger, 0
}

// giveBack removes calls that count. Those after one with a stamp move up.
func (p *logRules) giveBack(r *callLog, now, tokens int64, stamp *int64) {
	outside := p.outside(r, now)
	if stamp == nil {
		r.count -= min(tokens, r.count-outside)
		return
	}
	kept := outside
	for i := outside; i < r.count; i++ {
		at := r.at(i)
		if at == *stamp && tokens > 0 {
			tokens--
			continue
		}
		r.set(kept, at)
		kept++
	}
	r.count = kept
}

func (p *logRules) charge(r *callLog, now, cost int64) { r.add(now, min(cost, 2*p.max), p) }

// consume counts cost calls, or none of them.
func (p *logRules) consume(r *callLog, now, cost, maxWait int64) (d limit.Decision, stamp int64) {
	outside := p.outside(r, now)
	count := r.count - outside
	d, stamp = limit.Decision{Limit: p.max}, now
	switch {
	case cost > p.max:
		d.RetryAfter = limit.Never
	case cost == 0:
		d.Allowed = true
	case r.penaltyEnds > now:
		d.Reason = limit.InCooldown
		d.RetryAfter = micros(p.admitsAt(r, outside, cost) - now)
	case count+cost <= p.max:
		d.Allowed = true
	case p.penalty > 0:
		d.Reason = limit.BurstExceeded
		r.penaltyEnds = now + p.penalty
		r.penaltyEnds = p.admitsAt(r, outside, cost)
		d.RetryAfter = micros(r.penaltyEnds - now)
	default:
		// A log with reservations has at most twice as many calls as the maximum.
		at := p.admitsAt(r, outside, cost)
		reachedAt := max(at-maxWait, p.leavesAt(r, outside, count+cost-2*p.max))
		if d.RetryAfter = micros(reachedAt - now); reachedAt <= now {
			d.Allowed, d.RetryAfter, stamp = true, micros(at-now), at
		}
	}
	if d.Allowed && cost > 0 {
		r.add(stamp, cost, p)
		count += cost
	}
	if r.penaltyEnds <= now {
		d.Remaining = max(p.max-count, 0)
	}
	resetAt := max(r.penaltyEnds, now)
	if r.count > 0 {
		resetAt = max(resetAt, r.at(r.count-1)+p.window)
	}
	d.ResetAfter = micros(resetAt - now)
	return d, stamp
}

// admitsAt returns when cost can be admitted: after the penalty, and once enough calls have left
// the window.
func (p *logRules) admitsAt(r *callLog, outside, cost int64) int64 {
	return max(r.penaltyEnds, p.leavesAt(r, outside, r.count-outside+cost-p.max))
}

// leavesAt returns when the oldest calls that count have left the window.
func (p *logRules) leavesAt(r *callLog, outside, calls int64) int64 {
	if calls <= 0 {
		return 0
	}
	return r.at(outside+calls-1) + p.window
}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
