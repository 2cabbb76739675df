package durableobject

import (
	"github.com/penstock-go/penstock/internal/batch"
	"github.com/penstock-go/penstock/internal/keyname"
	"github.com/penstock-go/penstock/limit"
)

// NewQuota returns a limiter that enforces a [limit.QuotaPolicy] in Durable Objects, so that
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
// If the clock goes forward to another period, its quota is granted.
//
// NewQuota panics if the policy is not valid or the client is nil. It does not connect to the Worker.
func NewQuota(client *Client, policy limit.QuotaPolicy) *CountLimiter[limit.QuotaPolicy] {
	store := newRecords(client, "quota", keyname.OfQuota(policy))
	return &CountLimiter[limit.QuotaPolicy]{batch.NewQuota("durableobject", store, policy), store}
}
