package limit

import "time"

// A CooldownPolicy admits at most Max in any Window and penalizes clients that exceed it: all
// their calls are denied for Penalty. A token bucket slows a client down; a cooldown stops it.
type CooldownPolicy struct {
	Name    string        // separates policies that share a store
	Max     int64         // in any window, from 1 to 1,000
	Window  time.Duration // whole microseconds, at least 1; a call exactly one window ago does not count
	Penalty time.Duration // whole microseconds, at least 1; a penalty also lasts until the window admits the call
}

// maxWindow bounds windows and penalties.
const maxWindow = 10 * 365 * 24 * time.Hour

// Validate returns an error that says what is wrong with the policy and what would be right.
// Constructors of limiters panic with it.
func (p CooldownPolicy) Validate() error {
	switch {
	case p.Max < 1 || p.Max > maxLog:
		return p.errorf("Max is %d; it must be from 1 to %d (for more, use a Policy)", p.Max, maxLog)
	case p.Window <= 0 || p.Window%time.Microsecond != 0:
		return p.errorf("Window is %v; it must be a whole number of microseconds, at least 1", p.Window)
	case p.Penalty <= 0 || p.Penalty%time.Microsecond != 0:
		return p.errorf("Penalty is %v; it must be a whole number of microseconds, at least 1", p.Penalty)
	case p.Window > maxWindow || p.Penalty > maxWindow:
		return p.errorf("Window and Penalty must be at most %v", maxWindow)
	}
	return nil
}

// Description describes the policy.
func (p CooldownPolicy) Description() Description {
	return Description{Name: p.Name, Limit: p.Max, Window: p.Window}
}

func (p CooldownPolicy) errorf(format string, args ...any) error {
	return policyErrorf("cooldown", p.Name, format, args...)
}

// A Penalty describes a penalty that starts, for audit logs.
type Penalty struct {
	Policy     CooldownPolicy
	Key        Key
	Count      int64         // calls in the window, including the one that exceeded it
	RetryAfter time.Duration // until the penalty ends
}
