package redis

import (
	_ "embed"

	goredis "github.com/redis/go-redis/v9"

	"github.com/penstock-go/penstock/internal/batch"
	"github.com/penstock-go/penstock/internal/keyname"
	"github.com/penstock-go/penstock/limit"
)

//go:embed quota.lua
var quotaLua string

// NewQuota returns a limiter that enforces a [limit.QuotaPolicy] in Redis, so that many processes
// share it. Its decisions equal those of a quota in memory, on the clock of the Redis server and the
// calendar of this process: it is an error if their clocks differ by more than a period. A key that
// has used its quota is denied without a round trip, for at most a second. After an error of ctx,
// it is unknown whether tokens were taken.
//
// Processes whose policies have the same name share records, even if their numbers differ, as
// during a rolling deployment or after SetPolicy. A different Max is compared with the same count.
// If periods or locations differ, what was taken counts until the last of the periods in which it
// was taken has ended. So from the first to the last token of a key that a process grants in one of
// its periods, all processes grant at most the Max of that process. In any interval, they grant at
// most the largest Max, and as many again at each start of a period of one of the policies.
//
// If the server's clock goes back to the period before the one in which a key was last used, the
// latter continues until its end: no quota is granted twice, and no key is denied for longer. If
// the clock goes back further, what the key has used counts in the period that the clock went to.
// If the clock goes forward to another period, its quota is granted.
//
// A key's record is a string of about 40 bytes, or 65 with reservations, under
// penstock:quota:<policy>:<part>:<part>... that expires with its last period and its last lease, each of
// which adds about 80 bytes. The end of a lease returns nothing to a process whose Max or period
// differs from that of the process that took it.
//
// NewQuota panics if the policy is not valid or the client is nil. It does not connect to Redis.
func NewQuota(client goredis.UniversalClient, policy limit.QuotaPolicy) *CountLimiter[limit.QuotaPolicy] {
	r := newRecords(client, "quota", keyname.OfQuota(policy), kindQuota)
	return &CountLimiter[limit.QuotaPolicy]{batch.NewQuota("redis", r, policy), r}
}
