package memory

import (
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/adapter"
)

// A counterRules value is a policy of a sliding-window counter.
type counterRules struct {
	numbers
	policy limit.WindowPolicy
	window int64 // in milliseconds
}

func newCounterRules(p limit.WindowPolicy, version int64) *counterRules {
	return &counterRules{numbers: numbers{p.Max, version}, policy: p, window: p.Window.Milliseconds()}
}

// A windowCount is the record of a key. Its times are milliseconds since 1970. Every product of a
// count and the length is at most 2^52, because counts are at most twice the maximum.
type windowCount struct {
	start, length           int64 // of the current window; another policy may have had windows of that length
	previous, current, next int64 // tokens; those of the next window are reserved
	reservedAt              int64 // when the last reserved tokens can be spent
}

// emptyAt returns when nothing counts.
func (r *windowCount) emptyAt() int64 {
	switch {
	case r.next > 0:
		return r.start + 3*r.length
	case r.current > 0:
		return r.start + 2*r.length
	case r.previous > 0:
		return r.start + r.length
	default:
		return 0
	}
}

func (r *windowCount) idle(now int64) bool { return r.emptyAt()*1000 <= now }

func (r *windowCount) clone() windowCount { return *r }

// advance makes the window that contains a time in microseconds the current one.
func (p *counterRules) advance(r *windowCount, now int64) {
	tick := now / 1000
	for r.start+r.length <= tick && tick < r.emptyAt() {
		r.start += r.length
		r.previous, r.current, r.next = r.current, r.next, 0
	}
	if r.emptyAt() <= tick {
		*r = windowCount{start: tick - tick%p.window, length: p.window}
	}
}

// counted returns how many tokens of the previous and the current window count at a tick of the
// latter, rounded up.
func (r *windowCount) counted(tick int64) int64 {
	return (r.previous*(r.start+r.length-tick)+r.length-1)/r.length + r.current
}

// closed reports whether no token can be spent at a tick of the current window: while tokens of the
// next one are reserved, because those of the current one count in it, too, and by a policy with
// windows of another length while any are, because they would return at another rate.
func (p *counterRules) closed(r *windowCount, tick int64) bool {
	return r.next > 0 || tick < r.reservedAt && r.length != p.window
}

// consume takes cost tokens of the current or of the next window, or none of them, at a time in
// microseconds.
func (p *counterRules) consume(r *windowCount, now, cost, maxWait int64) (d limit.Decision, stamp int64) {
	tick := now / 1000
	counted := r.counted(tick)
	d = limit.Decision{Limit: p.max}
	switch {
	case cost > p.max:
		d.RetryAfter = limit.Never
	case cost == 0:
		d.Allowed = true
	case counted+cost <= p.max && !p.closed(r, tick):
		d.Allowed = true
		if r.length != p.window {
			// The tokens count as those of a window that has just ended: as many as before, and
			// they return at the rate of this policy.
			*r = windowCount{start: tick, length: p.window, previous: counted}
		}
		r.current += cost
		counted += cost
	default:
		at, reachedAt := p.reach(r, tick, cost, maxWait)
		if d.RetryAfter = micros(reachedAt - now); reachedAt > now {
			break
		}
		d.Allowed, d.RetryAfter = true, micros(at*1000-now)
		if at >= r.start+r.length {
			stamp = r.length
			r.next += cost
		} else {
			r.current += cost
		}
		r.reservedAt = max(r.reservedAt, at)
		counted = p.max
	}
	if emptyAt := r.emptyAt(); emptyAt > tick {
		d.ResetAfter = micros(emptyAt*1000 - now)
	}
	if !p.closed(r, tick) {
		d.Remaining = max(p.max-counted, 0)
	}
	return d, r.start + stamp
}

// fitsAt returns the first tick at which a cost fits: one of the current window, or of one of the
// three after it.
func (r *windowCount) fitsAt(tick, cost, maximum int64) int64 {
	room := maximum - cost
	inNext := room - r.next
	switch {
	case inNext < 0: // in the window after the next one, next is previous
		return r.start + 3*r.length - room*r.length/r.next
	case r.current > inNext: // in the next one, current is previous
		return r.start + 2*r.length - inNext*r.length/r.current
	case r.next > 0:
		return r.start + r.length
	case r.counted(tick) <= room:
		return tick
	default:
		return r.start + r.length - (room-r.current)*r.length/r.previous
	}
}

// reach returns the first tick at which a cost that cannot be spent at present can be, and the time
// in microseconds at which a call that may wait can take it: when the window before that of the
// tick has begun. No tokens are reserved in windows of another policy.
func (p *counterRules) reach(r *windowCount, tick, cost, maxWait int64) (at, reachedAt int64) {
	at = r.fitsAt(tick, cost, p.max)
	if r.length != p.window {
		at = max(at, r.reservedAt)
		return at, at * 1000
	}
	before := r.start + ((at-r.start)/r.length-1)*r.length
	return at, max(at*1000-maxWait, before*1000)
}

// charge counts as many tokens as the products permit.
func (p *counterRules) charge(r *windowCount, _, cost int64) {
	most := min(2*p.max, adapter.MaxDeficit/r.length)
	r.current = max(r.current, min(r.current+min(cost, most), most))
}

func (p *counterRules) giveBack(r *windowCount, _, tokens int64, stamp *int64) {
	for i, count := range []*int64{&r.next, &r.current, &r.previous} {
		if stamp == nil || *stamp == r.start+int64(1-i)*r.length {
			newest := min(tokens, *count)
			*count -= newest
			tokens -= newest
		}
	}
}
