package memory

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/adapter"
)

// A quotaPeriod is a period in microseconds since 1970, without its end.
type quotaPeriod struct{ start, end int64 }

// A quotaRules value is a policy, and the periods of one key or of all.
type quotaRules struct {
	numbers
	policy  limit.QuotaPolicy
	key     limit.Key                   // whose periods these are, if keys have periods of their own
	current atomic.Pointer[quotaPeriod] // a recent period
}

func (q *quotaRules) period(now int64) quotaPeriod {
	if p := q.current.Load(); p != nil && p.start <= now && now < p.end {
		return *p
	}
	p := q.bounds(now)
	q.current.Store(&p)
	return p
}

func (q *quotaRules) bounds(at int64) quotaPeriod {
	start, end := q.policy.Bounds(q.key, time.UnixMicro(at))
	return quotaPeriod{start.UnixMicro(), end.UnixMicro()}
}

// A quotaCount is the record of a key: the tokens that were taken in a period, and those that are
// reserved in the next one, which begins when the period ends.
type quotaCount struct {
	period  quotaPeriod
	used    int64 // at most adapter.MaxDeficit
	next    int64
	nextEnd int64        // of the next period; 0 if nothing is reserved in it
	leases  []quotaLease // in the order of their ends

	settlements int64 // how many leases were settled
}

// emptyAt returns when nothing counts.
func (r *quotaCount) emptyAt() int64 {
	switch {
	case r.next > 0:
		return r.nextEnd
	case r.used > 0:
		return r.period.end
	default:
		return 0
	}
}

func (r *quotaCount) idle(now int64) bool {
	return r.emptyAt() <= now && (len(r.leases) == 0 || r.leases[len(r.leases)-1].ends <= now)
}

func (r *quotaCount) clone() quotaCount {
	copied := *r
	copied.leases = slices.Clone(r.leases)
	return copied
}

// advance makes the period that contains the present the record's, unless the clock went back
// to it from the next one.
func (q *quotaRules) advance(r *quotaCount, now int64) {
	q.endLeases(r, now)
	if r.next > 0 && r.period.end <= now {
		*r = quotaCount{period: quotaPeriod{r.period.end, r.nextEnd}, used: r.next, leases: r.leases, settlements: r.settlements}
	}
	if r.used+r.next > 0 && r.period.start <= now && now < r.period.end {
		return
	}
	current := q.period(now)
	switch {
	case r.emptyAt() <= now:
		*r = quotaCount{period: current, leases: r.leases, settlements: r.settlements}
	case current.end < r.period.start:
		*r = quotaCount{period: current, used: min(r.used+r.next, adapter.MaxDeficit), leases: r.leases, settlements: r.settlements}
	}
}

func (q *quotaRules) giveBack(r *quotaCount, _, tokens int64, stamp *int64) {
	if r.next > 0 && (stamp == nil || *stamp == r.period.end) {
		newest := min(tokens, r.next)
		r.next -= newest
		tokens -= newest
		if r.next == 0 {
			r.nextEnd = 0
		}
	}
	if stamp == nil || *stamp == r.period.start {
		r.used -= min(tokens, r.used)
	}
}

// consume takes cost tokens of the current or of the next period, or none of them.
func (q *quotaRules) consume(r *quotaCount, now, cost, maxWait int64) (d limit.Decision, stamp int64) {
	d, stamp = limit.Decision{Limit: q.max}, r.period.start
	switch wait := r.period.end - now; {
	case cost > q.max:
		d.RetryAfter = limit.Never
	case cost == 0:
		d.Allowed = true
	case r.next == 0 && cost <= q.max-r.used:
		d.Allowed = true
		q.add(r, now, cost)
	case cost > q.max-r.next: // not in the next period, and no call reserves in a later one
		d.RetryAfter = micros(max(wait, r.nextEnd-maxWait-now))
	case wait > maxWait:
		d.RetryAfter = micros(wait - maxWait)
	default:
		d.Allowed, d.RetryAfter, stamp = true, micros(wait), r.period.end
		r.next += cost
		r.nextEnd = max(r.nextEnd, q.bounds(r.period.end).end)
	}
	if emptyAt := r.emptyAt(); emptyAt > 0 {
		d.ResetAfter = micros(emptyAt - now)
	}
	if r.next == 0 {
		d.Remaining = max(q.max-r.used, 0)
	}
	return d, stamp
}

func (q *quotaRules) charge(r *quotaCount, now, cost int64) {
	q.add(r, now, min(cost, adapter.MaxDeficit-r.used))
}

// add counts tokens in the current period. If the policy has changed, they count until the period
// of the present policy ends, too, unless tokens are reserved from the end of the record's period
// on.
func (q *quotaRules) add(r *quotaCount, now, tokens int64) {
	r.used += tokens
	if q.version > 0 && r.next == 0 {
		r.period.end = max(r.period.end, q.period(now).end)
	}
}
