package memory

import (
	"context"
	"fmt"
	"time"

	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/adapter"
	"github.com/penstock-go/penstock/limit/mode"
)

// A Cooldown is a [limit.Limiter] that enforces a [limit.CooldownPolicy] in this process. Its
// decisions have Max as Limit, and a Reason that says whether the call starts a penalty or
// meets one. A cost counts as that many calls; a cost above Max is denied with
// [limit.Never] and starts no penalty. [limit.Receipt.Undo] removes the calls of a receipt from the window,
// and ends no penalty.
//
// It keeps up to 65,536 keys, each with 8 bytes for each of its last Max calls, and evicts keys
// without calls in the window and without penalty. If it cannot evict any, new keys share one
// record. Two of n keys share a record with a probability below n²/2⁶⁵.
type Cooldown struct {
	counted
	policy    limit.CooldownPolicy
	rules     *logRules
	onPenalty func(limit.Penalty)
	records   *recordTable[callLog, *callLog]
}

var (
	_ adapter.InProcess = (*Cooldown)(nil)
	_ adapter.Checker   = (*Cooldown)(nil)
	_ limit.Blocker     = (*Cooldown)(nil)
	_ adapter.Describer = (*Cooldown)(nil)
)

// NewCooldown returns a cooldown. It calls onPenalty, which may be nil and must return soon,
// once for every penalty that starts. NewCooldown panics if the policy is not valid.
func NewCooldown(policy limit.CooldownPolicy, onPenalty func(limit.Penalty)) *Cooldown {
	return newCooldown(policy, onPenalty, microsecondsSince(time.Now()))
}

func newCooldown(policy limit.CooldownPolicy, onPenalty func(limit.Penalty), clock func() int64) *Cooldown {
	if err := policy.Validate(); err != nil {
		panic(err.Error())
	}
	c := &Cooldown{
		policy:    policy,
		rules:     newLogRules(numbers{max: policy.Max}, policy.Window, policy.Penalty),
		onPenalty: onPenalty,
		records:   newRecordTable[callLog](maxLogKeys, clock),
	}
	c.counted = counted{limit.Take.ValidateCooldown, policy.Description, c.records}
	return c
}

// Take counts as many calls of key as take has cost, or none of them. It ignores its context,
// because it never waits.
func (c *Cooldown) Take(_ context.Context, key limit.Key, take limit.Take) (limit.Decision, error) {
	if err := c.check(take); err != nil {
		return limit.Decision{}, fmt.Errorf("memory: %w", err)
	}
	var count int64
	d := takeRecord(c.records, c.rules, c.rules.numbers, &key, &take, func(r *callLog) { count = r.count })
	if d.Reason == limit.BurstExceeded && take.Mode != mode.Looking && c.onPenalty != nil {
		c.onPenalty(limit.Penalty{Policy: c.policy, Key: key, Count: count + take.Cost, RetryAfter: d.RetryAfter})
	}
	return d, nil
}

// Count returns how many admitted calls of key are in the window that ends at present.
func (c *Cooldown) Count(_ context.Context, key limit.Key) (count int64, err error) {
	c.records.read(&key, func(r *callLog, now int64) {
		c.rules.advance(r, now)
		count = r.count
	})
	return count, nil
}

// ResetAll removes the records of all keys.
func (c *Cooldown) ResetAll(context.Context) error {
	c.records.resetAll()
	return nil
}
