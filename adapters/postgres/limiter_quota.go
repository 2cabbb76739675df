package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/penstock-go/penstock/internal/batch"
	"github.com/penstock-go/penstock/internal/keyname"
	"github.com/penstock-go/penstock/limit"
)

// A Quota is a [limit.Limiter] that enforces a [limit.QuotaPolicy] in PostgreSQL, so that many
// processes share it. Its decisions equal those of a quota in memory, on the clock of the server
// and the calendar of this process: it is an error if their clocks differ by more than a period. A
// key that has used its quota is denied without a round trip, for at most a second. See [Limits]
// for what all limiters of this package have in common, and [WithTx] for a quota that is charged if
// and only if a transaction commits.
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
// The end of a lease returns nothing to a process whose Max or period differs from that of the
// process that took it. A Quota is safe for concurrent use.
type Quota struct {
	*limitRecords
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

// NewQuota returns a quota. It panics if the policy is not valid.
func (l *Limits) NewQuota(policy limit.QuotaPolicy) *Quota {
	if err := policy.Validate(); err != nil {
		panic(err.Error())
	}
	q := &Quota{clock: time.Now}
	q.limitRecords = newLimitRecords(l, limitQuota, l.keysOf("quota", keyname.OfQuota(policy)), q.recordPolicy(policy), (*limit.Take).ValidateQuota)
	return q
}

func (q *Quota) recordPolicy(policy limit.QuotaPolicy) *limitRecordPolicy {
	calendar := batch.NewCalendar(policy)
	return &limitRecordPolicy{
		RecordPolicy: batch.NewQuotaPolicy(policy),
		numbers:      func(key *limit.Key) [5]int64 { return calendar.Periods(key, q.clock()).Bounds },
	}
}

// SetPolicy replaces the numbers of the quota's policy in this process. The policy must have the
// quota's name; an unnamed policy cannot change, because its numbers are the name of its records.
// Calls in progress use the old numbers.
func (q *Quota) SetPolicy(policy limit.QuotaPolicy) error {
	if err := policy.Validate(); err != nil {
		return fmt.Errorf("postgres: %w", err)
	}
	return q.setPolicy(q.recordPolicy(policy))
}

// Take takes tokens of key. After tokens have returned, other processes may deny the key for up to
// a second more.
func (q *Quota) Take(ctx context.Context, key limit.Key, take limit.Take) (limit.Decision, error) {
	d, _, err := q.take(ctx, &key, &take)
	return d, err
}
