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

//go:embed sliding_log.lua
var slidingLogLua string

// A SlidingLog is a [limit.Limiter] that enforces a [limit.WindowPolicy] exactly, in Redis, so that
// many processes share it. Its decisions equal those of a sliding-window log in memory, on the
// clock of the Redis server. A key that lacks tokens is denied without a round trip, for at most a
// second. After an error of ctx, it is unknown whether tokens were taken.
//
// Processes whose policies have the same name share records, even if their numbers differ, as
// during a rolling deployment or after SetPolicy. Each of them counts the tokens in its own window.
// The tokens of a key that they grant in any interval are at most the largest Max, plus the largest
// Max/Window times the length of the interval.
//
// If the server's clock goes backwards, a key's tokens move with it at the next call: they return
// at most a window later than otherwise. If the clock goes forward, tokens return early, at most
// Max of them.
//
// A key's record is a string under penstock:log:<policy>:<part>:<part>... of 28 bytes and 7 for
// each of its last Max tokens, up to a quarter more; of twice as many with reservations and
// charges. It expires when its window is empty. A SlidingLog is safe for concurrent use.
type SlidingLog struct {
	*records
}

var (
	_ limit.Checker                          = (*SlidingLog)(nil)
	_ limit.Blocker                          = (*SlidingLog)(nil)
	_ limit.Rememberer                       = (*SlidingLog)(nil)
	_ limit.Batcher                          = (*SlidingLog)(nil)
	_ limit.Describer                        = (*SlidingLog)(nil)
	_ limit.PolicySetter[limit.WindowPolicy] = (*SlidingLog)(nil)
)

// NewSlidingLog returns a sliding-window log. It panics if the policy is not valid for a log
// ([limit.WindowPolicy.ValidateLog]) or the client is nil. It does not connect to Redis.
func NewSlidingLog(client goredis.UniversalClient, policy limit.WindowPolicy) *SlidingLog {
	if err := policy.ValidateLog(); err != nil {
		panic(err.Error())
	}
	return &SlidingLog{newRecords(client, "log", keyname.OfWindow(policy), kindLog, logPolicy(policy), (*limit.Take).ValidateWindow)}
}

func logPolicy(p limit.WindowPolicy) *recordPolicy {
	args := []any{p.Max, p.Window.Microseconds(), 0}
	return &recordPolicy{RecordPolicy: batch.NewRecordPolicy(p.Description()), args: func(*limit.Key) ([]any, any) { return args, nil }}
}

// SetPolicy replaces the numbers of the log's policy in this process. The policy must have the
// log's name; an unnamed policy cannot change, because its numbers are the name of its records.
// Calls in progress use the old numbers.
func (l *SlidingLog) SetPolicy(policy limit.WindowPolicy) error {
	if err := policy.ValidateLog(); err != nil {
		return fmt.Errorf("redis: %w", err)
	}
	return l.setPolicy(logPolicy(policy))
}

// Take takes tokens of key. After tokens have returned, other processes may deny the key for up to a
// second more.
func (l *SlidingLog) Take(ctx context.Context, key limit.Key, take limit.Take) (limit.Decision, error) {
	d, _, err := l.take(ctx, &key, &take)
	return d, err
}

// RemembersDenial returns the denial of a Take if this process knows it without asking Redis.
func (l *SlidingLog) RemembersDenial(key limit.Key, take limit.Take) (limit.Decision, bool) {
	return l.remembers(&key, &take)
}

// Reset returns all tokens of key and ends a block. Other processes may deny the key for up to a second more.
func (l *SlidingLog) Reset(ctx context.Context, key limit.Key) error { return l.reset(ctx, key) }

// Block denies key for d; after that, nothing counts.
func (l *SlidingLog) Block(ctx context.Context, key limit.Key, d time.Duration) error {
	return l.block(ctx, &key, d)
}

// BatchesWith reports whether other is a limiter of this package with the same client. On a Cluster it
// returns false, because the keys may be on different nodes.
func (l *SlidingLog) BatchesWith(other limit.Limiter) bool { return batchesWith(l, other) }
