package memory

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-go/penstock/limit"
)

// maxLogKeys bounds the keys of logs and cooldowns, whose records may be large.
const maxLogKeys = 65_536

// NewSlidingLog returns a limiter that enforces a [limit.WindowPolicy] exactly, in this process:
// the tokens of a key that are granted in any half-open interval of the length Window are at most
// Max.
//
//   - A token that was taken at t counts until t plus Window, when it no longer does. A cost is
//     allowed if it and the tokens that count are at most Max.
//   - If no tokens are taken meanwhile, a denied cost is allowed after exactly RetryAfter, and not a
//     microsecond earlier.
//   - ResetAfter is the time until no token counts.
//   - A reservation ([limit.Take.MaxWait]) takes tokens of the time at which they can be spent, the
//     earliest one at which the interval before it has room. It is denied if more than twice Max
//     tokens would count.
//   - A charge counts as tokens of the present. Of more than twice Max tokens, the oldest are
//     forgotten, so that decisions are still exact.
//   - [limit.Refund] returns the newest tokens that count, [limit.Receipt.Undo] those of its receipt.
//
// After a change of the policy, tokens from before count in the window of the new policy. The
// tokens of a key that are granted in any interval are then at most the largest Max, plus the
// largest Max/Window times the length of the interval.
//
// It keeps up to 65,536 keys, each with 8 bytes for each of its last Max tokens, or of twice as
// many with reservations and charges, and evicts keys with an empty window. If it cannot evict any,
// new keys share one record. Two of n keys share a record with a probability below n²/2⁶⁵.
//
// NewSlidingLog panics if the policy is not valid for a log ([limit.WindowPolicy.ValidateLog]).
func NewSlidingLog(policy limit.WindowPolicy) *CountLimiter[limit.WindowPolicy] {
	return newSlidingLog(policy, microsecondsSince(time.Now()))
}

func newSlidingLog(policy limit.WindowPolicy, clock func() int64) *CountLimiter[limit.WindowPolicy] {
	if err := policy.ValidateLog(); err != nil {
		panic(err.Error())
	}
	l := &slidingLog{name: policy.Name, records: newRecordTable[callLog](maxLogKeys, clock)}
	l.rules.Store(newLogRules(numbers{max: policy.Max}, policy.Window, 0))
	return &CountLimiter[limit.WindowPolicy]{counted{limit.Take.ValidateWindow, l.describe, l.records}, l.take, l.setPolicy}
}

// microsecondsSince returns a clock that never goes backwards.
func microsecondsSince(epoch time.Time) func() int64 {
	return func() int64 { return time.Since(epoch).Microseconds() }
}

type slidingLog struct {
	name    string // of the policies
	rules   atomic.Pointer[logRules]
	changes sync.Mutex // serializes changes of the policy
	records *recordTable[callLog, *callLog]
}

func (l *slidingLog) take(key limit.Key, take limit.Take) limit.Decision {
	rules := l.rules.Load()
	return takeRecord(l.records, rules, rules.numbers, &key, &take, nil)
}

func (l *slidingLog) setPolicy(policy limit.WindowPolicy) error {
	l.changes.Lock()
	defer l.changes.Unlock()
	if err := checkPolicy(policy.ValidateLog(), policy.Name, l.name); err != nil {
		return err
	}
	old := l.rules.Load()
	if policy.Max == old.max && policy.Window == micros(old.window) {
		return nil
	}
	rules := newLogRules(numbers{policy.Max, old.version + 1}, policy.Window, 0)
	rules.follow(old, l.records.clock())
	l.rules.Store(rules)
	return nil
}

func (l *slidingLog) describe() limit.Description {
	rules := l.rules.Load()
	return limit.Description{Name: l.name, Limit: rules.max, Window: micros(rules.window)}
}
