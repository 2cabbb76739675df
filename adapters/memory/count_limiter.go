package memory

import (
	"context"
	"fmt"
	"time"

	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/adapter"
)

// A CountLimiter is a limiter in this process that counts what keys have taken, by a policy of type P:
// a sliding window ([NewSlidingLog], [NewSlidingCounter]) or a quota ([NewQuota]). It is a
// [limit.Limiter], [adapter.Checker], [limit.Blocker], [adapter.Describer] and [limit.PolicySetter], and safe
// for concurrent use.
type CountLimiter[P any] struct {
	counted
	take      func(limit.Key, limit.Take) limit.Decision
	setPolicy func(P) error
}

var (
	_ adapter.InProcess                      = (*CountLimiter[limit.WindowPolicy])(nil)
	_ adapter.Checker                        = (*CountLimiter[limit.WindowPolicy])(nil)
	_ limit.Blocker                          = (*CountLimiter[limit.WindowPolicy])(nil)
	_ adapter.Describer                      = (*CountLimiter[limit.WindowPolicy])(nil)
	_ limit.PolicySetter[limit.WindowPolicy] = (*CountLimiter[limit.WindowPolicy])(nil)
)

// Take takes tokens of key. It ignores its context, because it never waits.
func (l *CountLimiter[P]) Take(_ context.Context, key limit.Key, take limit.Take) (limit.Decision, error) {
	if err := l.check(take); err != nil {
		return limit.Decision{}, fmt.Errorf("memory: %w", err)
	}
	return l.take(key, take), nil
}

// SetPolicy replaces the numbers of the limiter's policy, which keeps its name. Calls in progress use
// the old ones.
func (l *CountLimiter[P]) SetPolicy(policy P) error { return l.setPolicy(policy) }

// counted is what limiters have in common that keep a record for each key.
type counted struct {
	check    func(limit.Take) error
	describe func() limit.Description
	records  records
}

// records are a recordTable of any kind.
type records interface {
	reset(key *limit.Key)
	block(key *limit.Key, d time.Duration) error
	stats() adapter.Stats
}

// InProcess marks a limiter that decides in this process.
func (c *counted) InProcess() {}

// Check returns an error if the limiter cannot do a Take.
func (c *counted) Check(take limit.Take) error { return c.check(take) }

// Reset removes what counts for key, and ends a block and a penalty.
func (c *counted) Reset(_ context.Context, key limit.Key) error {
	c.records.reset(&key)
	return nil
}

// Block denies key for d; after that, nothing counts.
func (c *counted) Block(_ context.Context, key limit.Key, d time.Duration) error {
	return c.records.block(&key, d)
}

// Describe returns the maximum of the policy, and the time for which tokens count.
func (c *counted) Describe() []limit.Description { return []limit.Description{c.describe()} }

// Stats returns how many keys there are, and how many were evicted or overflowed. It locks each
// of 64 shards for a moment.
func (c *counted) Stats() adapter.Stats { return c.records.stats() }
