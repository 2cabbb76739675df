package redis

import (
	_ "embed"

	goredis "github.com/redis/go-redis/v9"

	"github.com/penstock-go/penstock/internal/batch"
	"github.com/penstock-go/penstock/internal/keyname"
	"github.com/penstock-go/penstock/limit"
)

//go:embed sliding_counter.lua
var slidingCounterLua string

// NewSlidingCounter returns a limiter that enforces a [limit.WindowPolicy] with two counts per
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
// that expires when nothing of it counts.
//
// NewSlidingCounter panics if the policy is not valid or the client is nil. It does not connect to
// Redis.
func NewSlidingCounter(client goredis.UniversalClient, policy limit.WindowPolicy) *CountLimiter[limit.WindowPolicy] {
	r := newRecords(client, "counter", keyname.OfWindow(policy), kindCounter)
	return &CountLimiter[limit.WindowPolicy]{batch.NewCounter("redis", r, policy), r}
}
