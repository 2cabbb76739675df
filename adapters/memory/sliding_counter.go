package memory

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-go/penstock/limit"
)

// NewSlidingCounter returns a limiter that enforces a [limit.WindowPolicy] with two counts per key,
// in this process. It counts the tokens of fixed windows, and those of the previous window in part,
// as if they had been taken evenly. A cost is allowed if
//
//	previous × (Window − elapsed) / Window + current + cost ≤ Max
//
// where elapsed is the time since the current window began. The arithmetic is exact. Windows begin
// at whole multiples of Window since 1970 UTC, and time advances in whole milliseconds.
//
//   - Remaining is the largest cost that is allowed.
//   - If no tokens are taken meanwhile, a denied cost is allowed after exactly RetryAfter, and not a
//     millisecond earlier.
//   - ResetAfter is the time until nothing counts: the end of the next window, or of this one if no
//     tokens were taken in it.
//   - A reservation ([limit.Take.MaxWait]) takes tokens of the current window or of the next one,
//     and never of a later one. While tokens of the next window are reserved, all calls are denied
//     until then, or reserve too.
//   - A charge counts in the current window, up to twice Max; what exceeds that is forgotten.
//   - [limit.Refund] returns the newest tokens: first those of the next window, and last those of
//     the previous one. [limit.Receipt.Undo] returns those of the window of its receipt.
//   - The tokens of a key that are granted in any interval are at most Max, plus Max/Window times
//     the length of the interval, rounded up to milliseconds. A token bucket has the same bound.
//
// After a change of the policy, that is the largest Max, plus the largest Max/Window times the
// length. If Window changes, a key has its old windows until a cost is allowed at once; until then,
// no call reserves. Its new windows begin with that call, until nothing counts.
//
// It keeps up to 1,048,576 keys, each in about 90 bytes, and evicts those for which nothing counts.
// If it cannot evict any, new keys of a shard share one record. Two of n keys share a record with a
// probability below n²/2⁶⁵.
//
// NewSlidingCounter panics if the policy is not valid.
func NewSlidingCounter(policy limit.WindowPolicy) *CountLimiter[limit.WindowPolicy] {
	epoch := time.Now()
	since, offset := microsecondsSince(epoch), epoch.UnixMicro()
	return newSlidingCounter(policy, func() int64 { return offset + since() })
}

// newSlidingCounter returns a counter with a clock in microseconds since 1970.
func newSlidingCounter(policy limit.WindowPolicy, clock func() int64) *CountLimiter[limit.WindowPolicy] {
	if err := policy.Validate(); err != nil {
		panic(err.Error())
	}
	c := &slidingCounter{records: newRecordTable[windowCount](defaultMaxKeys, clock)}
	c.rules.Store(newCounterRules(policy, 0))
	return &CountLimiter[limit.WindowPolicy]{counted{limit.Take.ValidateWindow, c.describe, c.records}, c.take, c.setPolicy}
}

type slidingCounter struct {
	rules   atomic.Pointer[counterRules]
	changes sync.Mutex // serializes changes of the policy
	records *recordTable[windowCount, *windowCount]
}

func (c *slidingCounter) take(key limit.Key, take limit.Take) limit.Decision {
	rules := c.rules.Load()
	return takeRecord(c.records, rules, rules.numbers, &key, &take, nil)
}

func (c *slidingCounter) setPolicy(policy limit.WindowPolicy) error {
	c.changes.Lock()
	defer c.changes.Unlock()
	old := c.rules.Load()
	if err := checkPolicy(policy.Validate(), policy.Name, old.policy.Name); err != nil {
		return err
	}
	if policy != old.policy {
		c.rules.Store(newCounterRules(policy, old.version+1))
	}
	return nil
}

func (c *slidingCounter) describe() limit.Description { return c.rules.Load().policy.Description() }
