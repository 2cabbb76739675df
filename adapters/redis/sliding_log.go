package redis

import (
	_ "embed"

	goredis "github.com/redis/go-redis/v9"

	"github.com/penstock-go/penstock/internal/batch"
	"github.com/penstock-go/penstock/internal/keyname"
	"github.com/penstock-go/penstock/limit"
)

//go:embed sliding_log.lua
var slidingLogLua string

// NewSlidingLog returns a limiter that enforces a [limit.WindowPolicy] exactly, in Redis, so that
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
// charges. It expires when its window is empty.
//
// NewSlidingLog panics if the policy is not valid for a log ([limit.WindowPolicy.ValidateLog]) or the
// client is nil. It does not connect to Redis.
func NewSlidingLog(client goredis.UniversalClient, policy limit.WindowPolicy) *CountLimiter[limit.WindowPolicy] {
	r := newRecords(client, "log", keyname.OfWindow(policy), kindLog)
	return &CountLimiter[limit.WindowPolicy]{batch.NewLog("redis", r, policy), r}
}
