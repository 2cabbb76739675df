package redis

import (
	"context"
	_ "embed"

	goredis "github.com/redis/go-redis/v9"

	"github.com/penstock-go/penstock/limit"
)

//go:embed sliding_counter.lua
var slidingCounterLua string

// A SlidingCounter is a [limit.Limiter] that enforces a [limit.WindowPolicy] with two counts per
// key, in Redis, so that many processes share it. Its decisions equal those of a sliding-window
// counter in memory, which describes them, on the clock of the Redis server. A key that lacks
// tokens is denied without a round trip, for at most a second. After an error of ctx, it is
// unknown whether tokens were taken.
//
// Processes whose policies have the same name share records, also if their numbers differ, as
// during a rolling deployment. The tokens of a key that they grant in any interval are at most the
// largest Max, plus the largest Max/Window times the length of the interval, rounded up to
// milliseconds. If windows differ, the record has the window of the policy that took tokens
// last; those of the key then begin with that call, until its record has expired.
//
// If the server's clock goes backwards, a key's windows move with it at the next call: tokens return
// at most two windows later than otherwise. If the clock goes forward, tokens return early, at
// most Max of them.
//
// A key's record is a string of about 50 bytes under penstock:counter:<policy>:<part>:<part>...
// that expires when nothing of it counts. A SlidingCounter is safe for concurrent use.
type SlidingCounter struct {
	records
	policy limit.WindowPolicy
}

var (
	_ limit.Refunder  = (*SlidingCounter)(nil)
	_ limit.Describer = (*SlidingCounter)(nil)
)

// NewSlidingCounter returns a sliding-window counter. It panics if the policy is not valid or the
// client is nil. It does not connect to Redis.
func NewSlidingCounter(client goredis.UniversalClient, policy limit.WindowPolicy) *SlidingCounter {
	if err := policy.Validate(); err != nil {
		panic(err.Error())
	}
	args := []any{policy.Max, policy.Window.Milliseconds()}
	return &SlidingCounter{
		records: newRecords(client, "counter", windowName(policy), slidingCounterLua, policy.Max, func() []any { return args }),
		policy:  policy,
	}
}

// Consume takes cost tokens of key, or none of them.
func (c *SlidingCounter) Consume(ctx context.Context, key limit.Key, cost int64) (limit.Decision, error) {
	d, _, err := c.consume(ctx, key, cost)
	return d, err
}

// Refund returns tokens of key, those of the current window first. Other processes may deny the key
// for up to a second more.
func (c *SlidingCounter) Refund(ctx context.Context, key limit.Key, tokens int64) error {
	return c.refund(ctx, key, tokens)
}

// Reset returns all tokens of key. Other processes may deny the key for up to a second more.
func (c *SlidingCounter) Reset(ctx context.Context, key limit.Key) error { return c.reset(ctx, key) }

// Describe returns the counter's Max and Window.
func (c *SlidingCounter) Describe() []limit.Description {
	return []limit.Description{c.policy.Description()}
}
