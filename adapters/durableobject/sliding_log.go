package durableobject

import (
	"github.com/penstock-go/penstock/internal/batch"
	"github.com/penstock-go/penstock/internal/keyname"
	"github.com/penstock-go/penstock/limit"
)

// NewSlidingLog returns a limiter that enforces a [limit.WindowPolicy] exactly, in Durable
// Objects, so that processes everywhere share it. Its decisions equal those of a sliding-window log
// in memory, on the clock of the object, which has whole milliseconds: tokens may return up to a
// millisecond early, and waits are rounded up. Requests, denials without one, and errors are as
// those of a [Limiter].
//
// Processes whose policies have the same name share records, even if their numbers differ, as
// during a rolling deployment or after SetPolicy. Each of them counts the tokens in its own window.
// The tokens of a key that they grant in any interval are at most the largest Max, plus the largest
// Max/Window times the length of the interval.
//
// If the object's clock goes backwards, a key's tokens move with it at the next call: they return
// at most a window later than otherwise. If the clock goes forward, tokens return early, at most
// Max of them.
//
// NewSlidingLog panics if the policy is not valid for a log ([limit.WindowPolicy.ValidateLog]) or the
// client is nil. It does not connect to the Worker.
func NewSlidingLog(client *Client, policy limit.WindowPolicy) *CountLimiter[limit.WindowPolicy] {
	store := newRecords(client, "log", keyname.OfWindow(policy))
	return &CountLimiter[limit.WindowPolicy]{batch.NewLog("durableobject", store, policy), store}
}
