package durableobject

import (
	"context"
	"fmt"

	"github.com/penstock-go/penstock/internal/keyname"
	"github.com/penstock-go/penstock/limit"
)

// A SlidingLog is a [limit.Limiter] that enforces a [limit.WindowPolicy] exactly, in Durable
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
// Max of them. A SlidingLog is safe for concurrent use.
type SlidingLog struct {
	*counts
}

var (
	_ limit.Checker                          = (*SlidingLog)(nil)
	_ limit.Blocker                          = (*SlidingLog)(nil)
	_ limit.Rememberer                       = (*SlidingLog)(nil)
	_ limit.Batcher                          = (*SlidingLog)(nil)
	_ limit.Describer                        = (*SlidingLog)(nil)
	_ limit.PolicySetter[limit.WindowPolicy] = (*SlidingLog)(nil)
)

// NewSlidingLog returns a sliding-window log. It panics if the policy is not valid for a log
// ([limit.WindowPolicy.ValidateLog]) or the client is nil. It does not connect to the Worker.
func NewSlidingLog(client *Client, policy limit.WindowPolicy) *SlidingLog {
	if err := policy.ValidateLog(); err != nil {
		panic(err.Error())
	}
	return &SlidingLog{newCounts(client, "log", keyname.OfWindow(policy), logPolicy(policy), (*limit.Take).ValidateWindow)}
}

func logPolicy(p limit.WindowPolicy) *countPolicy {
	return newCountPolicy(p.Description(), p.Max, p.Window.Microseconds(), 0)
}

// SetPolicy replaces the numbers of the log's policy in this process. The policy must have the
// log's name; an unnamed policy cannot change, because its numbers are the name of its records.
// Calls in progress use the old numbers.
func (l *SlidingLog) SetPolicy(policy limit.WindowPolicy) error {
	if err := policy.ValidateLog(); err != nil {
		return fmt.Errorf("durableobject: %w", err)
	}
	return l.setPolicy(logPolicy(policy))
}

// Take takes tokens of key. After tokens have returned, other processes may deny the key for up to
// a second more.
func (l *SlidingLog) Take(ctx context.Context, key limit.Key, take limit.Take) (limit.Decision, error) {
	d, _, err := l.take(ctx, &key, &take)
	return d, err
}
