package durableobject

import (
	"github.com/penstock-go/penstock/internal/batch"
	"github.com/penstock-go/penstock/internal/keyname"
	"github.com/penstock-go/penstock/limit"
)

// NewSlidingCounter returns a limiter that enforces a [limit.WindowPolicy] with two counts per
// key, in Durable Objects, so that processes everywhere share it. Its decisions equal those of a
// sliding-window counter in memory, which describes them, on the clock of the object. Requests,
// denials without one, and errors are as those of a [Limiter].
//
// Processes whose policies have the same name share records, even if their numbers differ, as
// during a rolling deployment or after SetPolicy. The tokens of a key that they grant in any
// interval are at most the largest Max, plus the largest Max/Window times the length of the
// interval, rounded up to milliseconds. If windows differ, the record has the window of the policy
// that took tokens last; those of the key then begin with that call, until its record has expired.
// No call reserves in windows of another length: it is denied until its cost is allowed at once.
//
// If the object's clock goes backwards, a key's windows move with it at the next call: tokens
// return at most two windows later than otherwise. If the clock goes forward, tokens return early,
// at most Max of them.
//
// NewSlidingCounter panics if the policy is not valid or the client is nil. It does not connect to
// the Worker.
func NewSlidingCounter(client *Client, policy limit.WindowPolicy) *CountLimiter[limit.WindowPolicy] {
	store := newRecords(client, "counter", keyname.OfWindow(policy))
	return &CountLimiter[limit.WindowPolicy]{batch.NewCounter("durableobject", store, policy), store}
}
