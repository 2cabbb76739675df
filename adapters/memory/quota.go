package memory

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-go/penstock/limit"
)

// A Quota is a [limit.Limiter] that enforces a [limit.QuotaPolicy] in this process, by the clock and
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
//   - [limit.Refund] returns the newest tokens: first those that are reserved. [limit.Undo] returns
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
type Quota struct {
	rules   atomic.Pointer[quotaRules]
	changes sync.Mutex // serializes changes of the policy
	records *recordTable[quotaCount, *quotaCount]
}

var (
	_ limit.InProcess                       = (*Quota)(nil)
	_ limit.Checker                         = (*Quota)(nil)
	_ limit.Blocker                         = (*Quota)(nil)
	_ limit.Describer                       = (*Quota)(nil)
	_ limit.PolicySetter[limit.QuotaPolicy] = (*Quota)(nil)
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
	q := &Quota{records: newRecordTable[quotaCount](defaultMaxKeys, clock)}
	q.rules.Store(&quotaRules{numbers: numbers{max: policy.Max}, policy: policy})
	return q
}

// InProcess marks a limiter that decides in this process.
func (q *Quota) InProcess() {}

// Take takes tokens of key. It ignores its context, because it never waits.
func (q *Quota) Take(_ context.Context, key limit.Key, take limit.Take) (limit.Decision, error) {
	if err := take.ValidateQuota(); err != nil {
		return limit.Decision{}, fmt.Errorf("memory: %w", err)
	}
	rules := q.rules.Load()
	if rules.policy.Start != nil {
		rules = &quotaRules{numbers: rules.numbers, policy: rules.policy, key: key}
	}
	switch {
	case take.Mode == limit.Settling:
		q.settle(rules, &key, take.Undone(), take.Cost)
		return limit.Decision{}, nil
	case take.Lease > 0 && 0 < take.Cost && take.Cost <= rules.max:
		return q.takeLeased(rules, &key, &take), nil
	default:
		return takeRecord(q.records, rules, rules.numbers, &key, &take, nil), nil
	}
}

// Check returns an error if a quota cannot do a Take: with Keep.
func (q *Quota) Check(take limit.Take) error { return take.ValidateQuota() }

// Reset returns all tokens of key and ends a block.
func (q *Quota) Reset(_ context.Context, key limit.Key) error {
	q.records.reset(&key)
	return nil
}

// Block denies key for d; after that, nothing counts.
func (q *Quota) Block(_ context.Context, key limit.Key, d time.Duration) error {
	return q.records.block(&key, d)
}

// SetPolicy replaces the numbers of the quota's policy. Calls in progress use the old ones.
func (q *Quota) SetPolicy(policy limit.QuotaPolicy) error {
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

// Describe returns the quota's Max and the length of its period: an hour, 24 hours, 7 or 31 days.
func (q *Quota) Describe() []limit.Description {
	return []limit.Description{q.rules.Load().policy.Description()}
}

// Stats returns how many keys there are, and how many were evicted or overflowed. It locks each
// of 64 shards for a moment.
func (q *Quota) Stats() limit.Stats { return q.records.stats() }
