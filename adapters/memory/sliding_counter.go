package memory

import (
	"context"
	"fmt"
	"time"

	"github.com/penstock-go/penstock/limit"
)

// A SlidingCounter is a [limit.Limiter] that enforces a [limit.WindowPolicy] with two counts per key,
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
//   - [limit.Refund] returns tokens of the current window, and then of the previous one; [limit.Undo]
//     those of the window of its receipt.
//   - The tokens of a key that are granted in any interval are at most Max, plus Max/Window times
//     the length of the interval, rounded up to milliseconds. A token bucket has the same bound.
//
// It keeps up to 1,048,576 keys, each in about 70 bytes, and evicts those for which nothing counts. If
// it cannot evict any, new keys of a shard share one record. Two of n keys share a record with a
// probability below n²/2⁶⁵.
type SlidingCounter struct {
	policy  limit.WindowPolicy
	rules   counterRules
	records *recordTable[windowCount, *windowCount]
}

var (
	_ limit.InProcess = (*SlidingCounter)(nil)
	_ limit.Checker   = (*SlidingCounter)(nil)
	_ limit.Blocker   = (*SlidingCounter)(nil)
	_ limit.Describer = (*SlidingCounter)(nil)
)

// NewSlidingCounter returns a sliding-window counter. It panics if the policy is not valid.
func NewSlidingCounter(policy limit.WindowPolicy) *SlidingCounter {
	epoch := time.Now()
	since, offset := microsecondsSince(epoch), epoch.UnixMicro()
	return newSlidingCounter(policy, func() int64 { return offset + since() })
}

// newSlidingCounter returns a counter with a clock in microseconds since 1970.
func newSlidingCounter(policy limit.WindowPolicy, clock func() int64) *SlidingCounter {
	if err := policy.Validate(); err != nil {
		panic(err.Error())
	}
	return &SlidingCounter{
		policy:  policy,
		rules:   counterRules{numbers: numbers{max: policy.Max}, window: policy.Window.Milliseconds()},
		records: newRecordTable[windowCount](defaultMaxKeys, clock),
	}
}

// InProcess marks a limiter that decides in this process.
func (c *SlidingCounter) InProcess() {}

// Take takes tokens of key. It ignores its context, because it never waits.
func (c *SlidingCounter) Take(_ context.Context, key limit.Key, take limit.Take) (limit.Decision, error) {
	if err := take.ValidateCooldown(); err != nil {
		return limit.Decision{}, fmt.Errorf("memory: %w", err)
	}
	return takeRecord(c.records, &c.rules, c.rules.numbers, &key, &take, nil), nil
}

// Check returns an error if a counter cannot do a Take: with Keep, MaxWait or the mode Charging.
func (c *SlidingCounter) Check(take limit.Take) error { return take.ValidateCooldown() }

// Reset returns all tokens of key and ends a block.
func (c *SlidingCounter) Reset(_ context.Context, key limit.Key) error {
	c.records.reset(&key)
	return nil
}

// Block denies key for d; after that, nothing counts.
func (c *SlidingCounter) Block(_ context.Context, key limit.Key, d time.Duration) error {
	return c.records.block(&key, d)
}

// Describe returns the counter's Max and Window.
func (c *SlidingCounter) Describe() []limit.Description {
	return []limit.Description{c.policy.Description()}
}

// Stats returns how many keys there are, and how many were evicted or overflowed. It locks each
// of 64 shards for a moment.
func (c *SlidingCounter) Stats() limit.Stats { return c.records.stats() }

type counterRules struct {
	numbers
	window int64 // in milliseconds
}

// A windowCount is the record of a key. Its times are milliseconds since 1970. Every product of a
// count and a time is below 2^51, because counts are at most Max.
type windowCount struct {
	start             int64 // of the current window
	previous, current int64 // tokens
	end               int64 // when nothing counts
}

func (r *windowCount) idle(now int64) bool { return r.end*1000 <= now }

func (r *windowCount) clone() windowCount { return *r }

// advance makes the window that contains a time in microseconds the current one.
func (p *counterRules) advance(r *windowCount, now int64) {
	tick := now / 1000
	start := tick - tick%p.window
	switch start - r.start {
	case 0:
	case p.window:
		r.previous, r.current = r.current, 0
	default:
		r.previous, r.current = 0, 0
	}
	r.start = start
}

func (p *counterRules) charge(*windowCount, int64, int64) {}

// consume takes cost tokens, or none of them, at a time in microseconds.
func (p *counterRules) consume(r *windowCount, now, cost, _ int64) (d limit.Decision, stamp int64) {
	tick := now / 1000
	d = limit.Decision{Limit: p.max}
	left := r.start + p.window - tick
	switch {
	case cost > p.max:
		d.RetryAfter = limit.Never
	case cost == 0, r.previous*left <= (p.max-r.current-cost)*p.window:
		d.Allowed = true
		r.current += cost
	default:
		d.RetryAfter = micros(r.allowsAt(cost, p)*1000 - now)
	}
	if r.setEnd(p); !r.idle(now) {
		d.ResetAfter = micros(r.end*1000 - now)
	}
	d.Remaining = p.max - r.current - (r.previous*left+p.window-1)/p.window
	return d, r.start
}

// allowsAt returns the first tick at which a denied cost is allowed.
func (r *windowCount) allowsAt(cost int64, p *counterRules) int64 {
	room := p.max - cost
	if r.current > room { // not in this window; in the next one, current is previous
		return r.start + 2*p.window - room*p.window/r.current
	}
	return r.start + p.window - (room-r.current)*p.window/r.previous
}

func (p *counterRules) giveBack(r *windowCount, tokens int64, stamp *int64) {
	if stamp == nil || *stamp == r.start {
		newest := min(tokens, r.current)
		r.current -= newest
		tokens -= newest
	}
	if stamp == nil || *stamp == r.start-p.window {
		r.previous -= min(tokens, r.previous)
	}
	r.setEnd(p)
}

func (r *windowCount) setEnd(p *counterRules) {
	switch {
	case r.current > 0:
		r.end = r.start + 2*p.window
	case r.previous > 0:
		r.end = r.start + p.window
	default:
		r.end = 0
	}
}
