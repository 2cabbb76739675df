package memory

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/mode"
)

// NewQuota returns a limiter that enforces a [limit.QuotaPolicy] in this process, by the clock and
// the calendar of this machine.
//
//   - A cost is allowed if it and the tokens that were taken in the current period are at most
//     Max. The first moment of a period belongs to it, its end to the next one.
//   - RetryAfter of a denied cost and ResetAfter are the time until a period starts, exact to a
//     microsecond. ResetAfter is 0 if no tokens were taken.
//   - A reservation ([limit.Take.MaxWait]) takes tokens of the next period, and never of a later
//     one. While tokens of the next period are reserved, all calls are denied until then, or
//     reserve too.
//   - A charge counts until its period ends, however large it is: what exceeds Max does not carry
//     over to the next one.
//   - The end of a lease and a settlement ([limit.Take.Lease]) return tokens in the period in which they
//     were taken, and no longer in the next one. What a settlement takes counts in its own period.
//   - [limit.Refund] returns the newest tokens: first those that are reserved. [limit.Receipt.Undo] returns
//     those of the period of its receipt.
//   - The tokens of a key that are granted in any interval are at most Max, and as many again at each
//     start of a period.
//
// After a change of the policy, another Max is compared with the same count. If the period or the
// location changes, what was taken counts until the last of the periods in which it was taken has
// ended.
//
// If the clock goes back to the period before the one in which a key was last used, the latter
// continues until its end: no quota is granted twice, and no key is denied for longer. If the clock
// goes back further, what the key has used counts in the period that the clock went to. If the
// clock goes forward to another period, its quota is granted.
//
// It keeps up to 1,048,576 keys, each in about 120 bytes, and evicts those whose period has ended. If it
// cannot evict any, new keys of a shard share one record. Two of n keys share a record with a
// probability below n²/2⁶⁵.
//
// NewQuota panics if the policy is not valid.
func NewQuota(policy limit.QuotaPolicy) *CountLimiter[limit.QuotaPolicy] {
	return newQuota(policy, func() int64 { return time.Now().UnixMicro() })
}

// newQuota returns a quota with a clock in microseconds since 1970.
func newQuota(policy limit.QuotaPolicy, clock func() int64) *CountLimiter[limit.QuotaPolicy] {
	if err := policy.Validate(); err != nil {
		panic(err.Error())
	}
	q := &quota{records: newRecordTable[quotaCount](defaultMaxKeys, clock)}
	q.rules.Store(&quotaRules{numbers: numbers{max: policy.Max}, policy: policy})
	return &CountLimiter[limit.QuotaPolicy]{counted{limit.Take.ValidateQuota, q.describe, q.records}, q.take, q.setPolicy}
}

type quota struct {
	rules   atomic.Pointer[quotaRules]
	changes sync.Mutex // serializes changes of the policy
	records *recordTable[quotaCount, *quotaCount]
}

func (q *quota) take(key limit.Key, take limit.Take) limit.Decision {
	rules := q.rules.Load()
	if rules.policy.Start != nil {
		rules = &quotaRules{numbers: rules.numbers, policy: rules.policy, key: key}
	}
	switch {
	case take.Mode == mode.Settling:
		q.settle(rules, &key, take.Undone(), take.Cost)
		return limit.Decision{}
	case take.Lease > 0 && 0 < take.Cost && take.Cost <= rules.max:
		return q.takeLeased(rules, &key, &take)
	default:
		return takeRecord(q.records, rules, rules.numbers, &key, &take, nil)
	}
}

func (q *quota) setPolicy(policy limit.QuotaPolicy) error {
	q.changes.Lock()
	defer q.changes.Unlock()
	old := q.rules.Load()
	if err := checkPolicy(policy.Validate(), policy.Name, old.policy.Name); err != nil {
		return err
	}
	version := old.version
	if !isSameQuota(policy, old.policy) {
		version++
	}
	q.rules.Store(&quotaRules{numbers: numbers{policy.Max, version}, policy: policy})
	return nil
}

// isSameQuota compares two policies, whose zones are those of their names. Functions cannot be compared.
func isSameQuota(a, b limit.QuotaPolicy) bool {
	return a.Start == nil && b.Start == nil &&
		a.Max == b.Max && a.Period == b.Period && a.Location.String() == b.Location.String()
}

func (q *quota) describe() limit.Description { return q.rules.Load().policy.Description() }
