package durableobject

import (
	"context"
	"fmt"

	"github.com/penstock-go/penstock/internal/keyname"
	"github.com/penstock-go/penstock/limit"
)

// A SlidingCounter is a [limit.Limiter] that enforces a [limit.WindowPolicy] with two counts per
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
// at most Max of them. A SlidingCounter is safe for concurrent use.
type SlidingCounter struct {
	*counts
}

var (
	_ limit.Checker                          = (*SlidingCounter)(nil)
	_ limit.Blocker                          = (*SlidingCounter)(nil)
	_ limit.Rememberer                       = (*SlidingCounter)(nil)
	_ limit.Batcher                          = (*SlidingCounter)(nil)
	_ limit.Describer                        = (*SlidingCounter)(nil)
	_ limit.PolicySetter[limit.WindowPolicy] = (*SlidingCounter)(nil)
)

// NewSlidingCounter returns a sliding-window counter. It panics if the policy is not valid or the
// client is nil. It does not connect to the Worker.
func NewSlidingCounter(client *Client, policy limit.WindowPolicy) *SlidingCounter {
	if err := policy.Validate(); err != nil {
		panic(err.Error())
	}
	return &SlidingCounter{newCounts(client, "counter", keyname.OfWindow(policy), counterPolicy(policy), (*limit.Take).ValidateWindow)}
}

func counterPolicy(p limit.WindowPolicy) *countPolicy {
	return newCountPolicy(p.Description(), p.Max, p.Window.Milliseconds())
}

// SetPolicy replaces the numbers of the counter's policy in this process. The policy must have the
// counter's name; an unnamed policy cannot change, because its numbers are the name of its records.
// Calls in progress use the old numbers.
func (c *SlidingCounter) SetPolicy(policy limit.WindowPolicy) error {
	if err := policy.Validate(); err != nil {
		return fmt.Errorf("durableobject: %w", err)
	}
	return c.setPolicy(counterPolicy(policy))
}

// Take takes tokens of key. After tokens have returned, other processes may deny the key for up to
// a second more.
func (c *SlidingCounter) Take(ctx context.Context, key limit.Key, take limit.Take) (limit.Decision, error) {
	d, _, err := c.take(ctx, &key, &take)
	return d, err
}
