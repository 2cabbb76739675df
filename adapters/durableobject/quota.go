package durableobject

import (
	"context"
	"fmt"
	"time"

	"github.com/penstock-go/penstock/internal/batch"
	"github.com/penstock-go/penstock/internal/keyname"
	"github.com/penstock-go/penstock/limit"
)

// A Quota is a [limit.Limiter] that enforces a [limit.QuotaPolicy] in Durable Objects, so that
// processes everywhere share it. Its decisions equal those of a quota in memory, on the clock of
// the object and the calendar of this process: it is an error if their clocks differ by more than a
// period. Requests, denials without one, and other errors are as those of a [Limiter].
//
// Processes whose policies have the same name share records, even if their numbers differ, as
// during a rolling deployment or after SetPolicy. A different Max is compared with the same count.
// If periods or locations differ, what was taken counts until the last of the periods in which it
// was taken has ended. So from the first to the last token of a key that a process grants in one of
// its periods, all processes grant at most the Max of that process. In any interval, they grant at
// most the largest Max, and as many again at each start of a period of one of the policies.
//
// If the object's clock goes back to the period before the one in which a key was last used, the
// latter continues until its end: no quota is granted twice, and no key is denied for longer. If
// the clock goes back further, what the key has used counts in the period that the clock went to.
// If the clock goes forward to another period, its quota is granted. A Quota is safe for concurrent
// use.
type Quota struct {
	*counts
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
// connect to the Worker.
func NewQuota(client *Client, policy limit.QuotaPolicy) *Quota {
	if err := policy.Validate(); err != nil {
		panic(err.Error())
	}
	q := &Quota{clock: time.Now}
	q.counts = newCounts(client, "quota", keyname.OfQuota(policy), q.countPolicy(policy), (*limit.Take).ValidateQuota)
	return q
}

func (q *Quota) countPolicy(policy limit.QuotaPolicy) *countPolicy {
	calendar := batch.NewCalendar(policy)
	return &countPolicy{batch.NewQuotaPolicy(policy), func(key *limit.Key) []int64 {
		b := calendar.Periods(key, q.clock()).Bounds
		return []int64{policy.Max, b[0], b[1], b[2], b[3], b[4]}
	}}
}

// SetPolicy replaces the numbers of the quota's policy in this process. The policy must have the
// quota's name; an unnamed policy cannot change, because its numbers are the name of its records.
// Calls in progress use the old numbers.
func (q *Quota) SetPolicy(policy limit.QuotaPolicy) error {
	if err := policy.Validate(); err != nil {
		return fmt.Errorf("durableobject: %w", err)
	}
	return q.setPolicy(q.countPolicy(policy))
}

// Take takes tokens of key. After tokens have returned, other processes may deny the key for up to
// a second more.
func (q *Quota) Take(ctx context.Context, key limit.Key, take limit.Take) (limit.Decision, error) {
	d, _, err := q.take(ctx, &key, &take)
	return d, err
}
