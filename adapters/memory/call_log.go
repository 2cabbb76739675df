package memory

import (
	"slices"
	"time"

	"github.com/penstock-go/penstock/limit"
)

// A logRules value is the numbers of a sliding-window log, or of a cooldown: a log with penalties. Times
// are in microseconds.
type logRules struct {
	numbers
	window, penalty int64 // penalty is 0 for a log
}

// A callLog is the record of a key: when its last calls were admitted, and the end of its penalty.
// Times are in microseconds since the limiter was created.
type callLog struct {
	ring        []int64 // the times, oldest first from index first on, and on from index 0 after the last
	first       int64
	count       int64
	windowEnds  int64 // when none of the calls is in the window
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

// advance removes the calls that are a window old or older.
func (p *logRules) advance(r *callLog, now int64) {
	for r.count > 0 && r.at(0) <= now-p.window {
		r.first = (r.first + 1) % int64(len(r.ring))
		r.count--
	}
	if r.count == 0 {
		r.ring, r.first = nil, 0
	}
}

// add adds calls at present, which the maximum allows. The ring grows with them.
func (r *callLog) add(now, calls int64, p *logRules) {
	if need := r.count + calls; need > int64(len(r.ring)) {
		larger := make([]int64, min(max(need, 2*int64(len(r.ring))), p.max))
		for i := range r.count {
			larger[i] = r.at(i)
		}
		r.ring, r.first = larger, 0
	}
	for range calls {
		r.ring[(r.first+r.count)%int64(len(r.ring))] = now
		r.count++
	}
	r.windowEnds = now + p.window
}

// giveBack removes calls. Those after one with a stamp move up.
func (p *logRules) giveBack(r *callLog, tokens int64, stamp *int64) {
	if stamp == nil {
		r.count -= min(tokens, r.count)
		return
	}
	kept := int64(0)
	for i := range r.count {
		at := r.at(i)
		if at == *stamp && tokens > 0 {
			tokens--
			continue
		}
		r.ring[(r.first+kept)%int64(len(r.ring))] = at
		kept++
	}
	r.count = kept
}

func (p *logRules) charge(*callLog, int64, int64) {}

// consume counts cost calls, or none of them.
func (p *logRules) consume(r *callLog, now, cost, _ int64) (d limit.Decision, stamp int64) {
	inPenalty := r.penaltyEnds > now
	d = limit.Decision{Limit: p.max}
	switch {
	case cost > p.max:
		d.RetryAfter = limit.Never
	case cost == 0:
		d.Allowed = true
	case inPenalty:
		d.Reason = limit.InCooldown
		d.RetryAfter = micros(r.admitsAt(cost, p) - now)
	case r.count+cost <= p.max:
		d.Allowed = true
		r.add(now, cost, p)
	case p.penalty > 0:
		d.Reason = limit.BurstExceeded
		r.penaltyEnds = now + p.penalty
		r.penaltyEnds = r.admitsAt(cost, p)
		d.RetryAfter = micros(r.penaltyEnds - now)
	default:
		d.RetryAfter = micros(r.admitsAt(cost, p) - now)
	}
	if r.penaltyEnds <= now {
		d.Remaining = p.max - r.count
	}
	resetAt := max(r.penaltyEnds, now)
	if r.count > 0 {
		resetAt = max(resetAt, r.at(r.count-1)+p.window)
	}
	d.ResetAfter = micros(resetAt - now)
	return d, now
}

// admitsAt returns when cost can be admitted: after the penalty, and once enough calls have left
// the window.
func (r *callLog) admitsAt(cost int64, p *logRules) int64 {
	excess := r.count + cost - p.max
	if excess <= 0 {
		return r.penaltyEnds
	}
	return max(r.penaltyEnds, r.at(excess-1)+p.window)
}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
