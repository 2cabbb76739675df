package redis

import (
	"context"
	_ "embed"
	"fmt"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/penstock-go/penstock/internal/batch"
	"github.com/penstock-go/penstock/internal/keyname"
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
// Processes whose policies have the same name share records, even if their numbers differ, as
// during a rolling deployment or after SetPolicy. The tokens of a key that they grant in any
// interval are at most the largest Max, plus the largest Max/Window times the length of the
// interval, rounded up to milliseconds. If windows differ, the record has the window of the policy
// that took tokens last; those of the key then begin with that call, until its record has expired.
// No call reserves in windows of another length: it is denied until its cost is allowed at once.
//
// If the server's clock goes backwards, a key's windows move with it at the next call: tokens return
// at most two windows later than otherwise. If the clock goes forward, tokens return early, at
// most Max of them.
//
// A key's record is a string of about 50 bytes under penstock:counter:<policy>:<part>:<part>...
// that expires when nothing of it counts. A SlidingCounter is safe for concurrent use.
type SlidingCounter struct {
	*records
}

var (
	_ limit.Checker                          = (*SlidingCounter)(nil)
	_ limit.Blocker                          = (*SlidingCounter)(nil)
	_ limit.Rememberer                       = (*SlidingCounter)(nil)
	_ limit.Batcher                          = (*SlidingCounter)(nil)
	_ limit.Describer                        = (*SlidingCounter)(nil)
	_ limit.PolicySetter[limit.WindowPolicy] = (*SlidingCounter)(nil)
)

// NewSlidingCounter returns a sliding-window counter. It panics if the policy is not valid or the
// client is nil. It does not connect to Redis.
func NewSlidingCounter(client goredis.UniversalClient, policy limit.WindowPolicy) *SlidingCounter {
	if err := policy.Validate(); err != nil {
		panic(err.Error())
	}
	return &SlidingCounter{newRecords(client, "counter", keyname.OfWindow(policy), kindCounter, counterPolicy(policy), (*limit.Take).ValidateWindow)}
}

func counterPolicy(p limit.WindowPolicy) *recordPolicy {
	args := []any{p.Max, p.Window.Milliseconds()}
	return &recordPolicy{RecordPolicy: batch.NewRecordPolicy(p.Description()), args: func(*limit.Key) ([]any, any) { return args, nil }}
}

// SetPolicy replaces the numbers of the counter's policy in this process. The policy must have the
// counter's name; an unnamed policy cannot change, because its numbers are the name of its records.
// Calls in progress use the old numbers.
func (c *SlidingCounter) SetPolicy(policy limit.WindowPolicy) error {
	if err := policy.Validate(); err != nil {
		return fmt.Errorf("redis: %w", err)
	}
	return c.setPolicy(counterPolicy(policy))
}

// Take takes tokens of key. After tokens have returned, other processes may deny the key for up to a
// second more.
func (c *SlidingCounter) Take(ctx context.Context, key limit.Key, take limit.Take) (limit.Decision, error) {
	d, _, err := c.take(ctx, &key, &take)
	return d, err
}

// RemembersDenial returns the denial of a Take if this process knows it without asking Redis.
func (c *SlidingCounter) RemembersDenial(key limit.Key, take limit.Take) (limit.Decision, bool) {
	return c.remembers(&key, &take)
}

// Reset returns all tokens of key and ends a block. Other processes may deny the key for up to a second more.
func (c *SlidingCounter) Reset(ctx context.Context, key limit.Key) error { return c.reset(ctx, key) }

// Block denies key for d; after that, nothing counts.
func (c *SlidingCounter) Block(ctx context.Context, key limit.Key, d time.Duration) error {
	return c.block(ctx, &key, d)
}

// BatchesWith reports whether other is a limiter of this package with the same client. On a Cluster it
// returns false, because the keys may be on different nodes.
func (c *SlidingCounter) BatchesWith(other limit.Limiter) bool { return batchesWith(c, other) }
