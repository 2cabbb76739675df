package memory

import (
	"context"
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
//   - [limit.Refund] returns tokens of the current period, [limit.Undo] those of the period of its receipt.
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
	rules   *quotaRules
	records *recordTable[quotaCount, *quotaCount]
}

var (
	_ limit.InProcess = (*Quota)(nil)
	_ limit.Checker   = (*Quota)(nil)
	_ limit.Blocker   = (*Quota)(nil)
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
	return &Quota{policy: policy, rules: &quotaRules{policy: policy}, records: newRecordTable[quotaCount](defaultMaxKeys, clock)}
}

// InProcess marks a limiter that decides in this process.
func (q *Quota) InProcess() {}

// Take takes tokens of key. It ignores its context, because it never waits.
func (q *Quota) Take(_ context.Context, key limit.Key, take limit.Take) (limit.Decision, error) {
	rules := q.rules
	if q.policy.Start != nil {
		rules = &quotaRules{policy: q.policy, key: key}
	}
	return takeRecord(q.records, rules, q.policy.Max, &key, &take, nil)
}

// Check returns an error if a quota cannot do a Take: with Keep, MaxWait or the mode Charging.
func (q *Quota) Check(take limit.Take) error { return take.ValidateWindow() }

// Reset returns all tokens of key and ends a block.
func (q *Quota) Reset(_ context.Context, key limit.Key) error {
	q.records.reset(&key)
	return nil
}

// Block denies key for d; after that, nothing counts.
func (q *Quota) Block(_ context.Context, key limit.Key, d time.Duration) error {
	return q.records.block(&key, d)
}

// Describe returns the quota's Max and the length of its period: an hour, 24 hours, 7 or 31 days.
func (q *Quota) Describe() []limit.Description {
	return []limit.Description{q.policy.Description()}
}

// Stats returns how many keys there are, and how many were evicted or overflowed. It locks each
// of 64 shards for a moment.
func (q *Quota) Stats() limit.Stats { return q.records.stats() }

// A quotaPeriod is a period in microseconds since 1970, without its end.
type quotaPeriod struct{ start, end int64 }

type quotaRules struct {
	policy  limit.QuotaPolicy
	key     limit.Key                   // whose periods these are, if keys have periods of their own
	current atomic.Pointer[quotaPeriod] // a recent period
}

// period returns the period that contains a time.
func (q *quotaRules) period(now int64) quotaPeriod {
	if p := q.current.Load(); p != nil && p.start <= now && now < p.end {
		return *p
	}
	start, end := q.policy.Bounds(q.key, time.UnixMicro(now))
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
func (q *quotaRules) advance(r *quotaCount, now int64) {
	if r.period.start <= now && now < r.period.end {
		return
	}
	current := q.period(now)
	switch {
	case r.period.end <= now:
		*r = quotaCount{period: current}
	case current.end < r.period.start:
		r.period = current
	}
}

// stamp returns the start of the period.
func (q *quotaRules) stamp(r *quotaCount, _ int64) int64 { return r.period.start }

func (q *quotaRules) giveBack(r *quotaCount, tokens int64, stamp *int64) {
	if stamp == nil || *stamp == r.period.start {
		r.used -= min(tokens, r.used)
	}
}

// consume takes cost tokens, or none of them.
func (q *quotaRules) consume(r *quotaCount, now, cost int64) limit.Decision {
	d := limit.Decision{Limit: q.policy.Max}
	untilNext := micros(r.period.end - now)
	switch {
	case cost > q.policy.Max:
		d.RetryAfter = limit.Never
	case cost <= q.policy.Max-r.used:
		d.Allowed = true
		r.used += cost
	default:
		d.RetryAfter = untilNext
	}
	if r.used > 0 {
		d.ResetAfter = untilNext
	}
	d.Remaining = q.policy.Max - r.used
	return d
}
