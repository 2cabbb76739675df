package memory

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/penstock-go/penstock/limit"
)

// A Quota is a [limit.Limiter] that enforces a [limit.QuotaPolicy] in this process, by the clock and
// the calendar of this machine.
//
//   - A cost is allowed if it and the tokens that were taken in the current period are at most
//     Max. The first moment of a period belongs to it, its end to the next one.
//   - RetryAfter of a denied cost and ResetAfter are the time until the next period, exact to a
//     microsecond. ResetAfter is 0 if no tokens were taken.
//   - Refund returns tokens of the current period.
//   - The tokens of a key that are granted in any interval are at most Max, and as many again at each
//     start of a period.
//
// If the clock goes back to the period before the one in which a key was last used, the latter
// continues until its end: no quota is granted twice, and no key is denied for longer. If the clock
// goes back further, what the key has used counts in the period that the clock went to. If the
// clock goes forward to another period, its quota is granted.
//
// It keeps up to 1,048,576 keys, each in about 70 bytes, and evicts those whose period has ended. If it
// cannot evict any, new keys of a shard share one record. Two of n keys share a record with a
// probability below n²/2⁶⁵.
type Quota struct {
	policy  limit.QuotaPolicy
	current atomic.Pointer[quotaPeriod] // a recent period
	records *recordTable[quotaCount, *quotaCount]
}

var (
	_ limit.InProcess = (*Quota)(nil)
	_ limit.Refunder  = (*Quota)(nil)
	_ limit.Describer = (*Quota)(nil)
)

// NewQuota returns a quota. It panics if the policy is not valid.
func NewQuota(policy limit.QuotaPolicy) *Quota {
	return newQuota(policy, func() int64 { return time.Now().UnixMicro() })
}

// newQuota returns a quota with a clock in microseconds since 1970.
func newQuota(policy limit.QuotaPolicy, clock func() int64) *Quota {
	if err := policy.Validate(); err != nil {
		panic(err.Error())
	}
	return &Quota{policy: policy, records: newRecordTable[quotaCount](defaultMaxKeys, clock)}
}

// InProcess marks a limiter that decides in this process.
func (q *Quota) InProcess() {}

// Consume takes cost tokens of key, or none of them. It ignores its context, because it never waits.
func (q *Quota) Consume(_ context.Context, key limit.Key, cost int64) (d limit.Decision, err error) {
	if cost < 0 {
		return limit.Decision{}, fmt.Errorf("memory: cost is %d; it must not be negative", cost)
	}
	decide := func(r *quotaCount, now int64) {
		r.advance(now, q.period(now))
		d = r.consume(now, cost, q.policy.Max)
	}
	if cost == 0 || cost > q.policy.Max {
		q.records.read(&key, decide)
	} else {
		q.records.change(&key, decide)
	}
	return d, nil
}

// Refund returns tokens of key's current period.
func (q *Quota) Refund(_ context.Context, key limit.Key, tokens int64) error {
	if tokens < 0 {
		return fmt.Errorf("memory: refund is %d; it must not be negative", tokens)
	}
	if tokens > 0 {
		q.records.change(&key, func(r *quotaCount, now int64) {
			r.advance(now, q.period(now))
			r.used -= min(tokens, r.used)
		})
	}
	return nil
}

// Reset returns all tokens of key.
func (q *Quota) Reset(_ context.Context, key limit.Key) error {
	q.records.reset(&key)
	return nil
}

// Describe returns the quota's Max and the length of its period: an hour, 24 hours or 31 days.
func (q *Quota) Describe() []limit.Description {
	return []limit.Description{q.policy.Description()}
}

// Stats returns how many keys there are, and how many were evicted or overflowed. It locks each
// of 64 shards for a moment.
func (q *Quota) Stats() limit.Stats { return q.records.stats() }

// A quotaPeriod is a period in microseconds since 1970, without its end.
type quotaPeriod struct{ start, end int64 }

// period returns the period that contains a time.
func (q *Quota) period(now int64) quotaPeriod {
	if p := q.current.Load(); p != nil && p.start <= now && now < p.end {
		return *p
	}
	start, end := q.policy.Bounds(time.UnixMicro(now))
	p := quotaPeriod{start.UnixMicro(), end.UnixMicro()}
	q.current.Store(&p)
	return p
}

// A quotaCount is the record of a key: the tokens that were taken in a period.
type quotaCount struct {
	period quotaPeriod
	used   int64
}

func (r *quotaCount) idle(now int64) bool { return r.used == 0 || r.period.end <= now }

func (r *quotaCount) clone() quotaCount { return *r }

// advance makes the period that contains the present the record's, unless the clock went back
// to it from the next one.
func (r *quotaCount) advance(now int64, current quotaPeriod) {
	switch {
	case r.period.end <= now:
		*r = quotaCount{period: current}
	case current.end < r.period.start:
		r.period = current
	}
}

// consume takes cost tokens, or none of them.
func (r *quotaCount) consume(now, cost, maximum int64) limit.Decision {
	d := limit.Decision{Limit: maximum}
	untilNext := micros(r.period.end - now)
	switch {
	case cost > maximum:
		d.RetryAfter = limit.Never
	case cost <= maximum-r.used:
		d.Allowed = true
		r.used += cost
	default:
		d.RetryAfter = untilNext
	}
	if r.used > 0 {
		d.ResetAfter = untilNext
	}
	d.Remaining = maximum - r.used
	return d
}
