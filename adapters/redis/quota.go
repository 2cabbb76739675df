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

//go:embed quota.lua
var quotaLua string

// A Quota is a [limit.Limiter] that enforces a [limit.QuotaPolicy] in Redis, so that many processes
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
// differs from that of the process that took it. A Quota is safe for concurrent use.
type Quota struct {
	*records
	clock func() time.Time
}

var (
	_ limit.Checker                         = (*Quota)(nil)
	_ limit.Blocker                         = (*Quota)(nil)
	_ limit.Rememberer                      = (*Quota)(nil)
	_ limit.Batcher                         = (*Quota)(nil)
	_ limit.Describer                       = (*Quota)(nil)
	_ limit.PolicySetter[limit.QuotaPolicy] = (*Quota)(nil)
)

// NewQuota returns a quota. It panics if the policy is not valid or the client is nil. It does not
// connect to Redis.
func NewQuota(client goredis.UniversalClient, policy limit.QuotaPolicy) *Quota {
	if err := policy.Validate(); err != nil {
		panic(err.Error())
	}
	q := &Quota{clock: time.Now}
	q.records = newRecords(client, "quota", keyname.OfQuota(policy), kindQuota, q.recordPolicy(policy), (*limit.Take).ValidateQuota)
	return q
}

func (q *Quota) recordPolicy(policy limit.QuotaPolicy) *recordPolicy {
	calendar := batch.NewCalendar(policy)
	return &recordPolicy{
		RecordPolicy: batch.NewQuotaPolicy(policy),
		args: func(key *limit.Key) ([]any, any) {
			bounds := calendar.Periods(key, q.clock()).Bounds
			return []any{policy.Max, bounds[0], bounds[1], bounds[2], bounds[3]}, bounds[4]
		},
	}
}

// SetPolicy replaces the numbers of the quota's policy in this process. The policy must have the
// quota's name; an unnamed policy cannot change, because its numbers are the name of its records.
// Calls in progress use the old numbers.
func (q *Quota) SetPolicy(policy limit.QuotaPolicy) error {
	if err := policy.Validate(); err != nil {
		return fmt.Errorf("redis: %w", err)
	}
	return q.setPolicy(q.recordPolicy(policy))
}

// Take takes tokens of key. After tokens have returned, other processes may deny the key for up to a
// second more.
func (q *Quota) Take(ctx context.Context, key limit.Key, take limit.Take) (limit.Decision, error) {
	d, _, err := q.take(ctx, &key, &take)
	return d, err
}

// RemembersDenial returns the denial of a Take if this process knows it without asking Redis.
func (q *Quota) RemembersDenial(key limit.Key, take limit.Take) (limit.Decision, bool) {
	return q.remembers(&key, &take)
}

// Reset returns all tokens of key and ends a block. Other processes may deny the key for up to a second more.
func (q *Quota) Reset(ctx context.Context, key limit.Key) error { return q.reset(ctx, key) }

// Block denies key for d; after that, nothing counts.
func (q *Quota) Block(ctx context.Context, key limit.Key, d time.Duration) error {
	return q.block(ctx, &key, d)
}

// BatchesWith reports whether other is a limiter of this package with the same client. On a Cluster it
// returns false, because the keys may be on different nodes.
func (q *Quota) BatchesWith(other limit.Limiter) bool { return batchesWith(q, other) }
