package limit

import "time"

// A WindowPolicy admits at most Max in any Window, without the steady refill of a token bucket:
// what was admitted at one moment returns at one moment, a window later. Two limiters enforce it:
//
//   - A sliding-window log keeps the time of each of the last Max calls and is exact. Max must
//     be at most 1,000.
//   - A sliding-window counter keeps two numbers per key. It assumes that the calls of the
//     previous fixed window were spread evenly over it, so it admits up to twice Max in the
//     worst case of an interval as long as a window, and denies calls that a log would admit.
type WindowPolicy struct {
	Name   string        // separates policies that share a store
	Max    int64         // in any window, at least 1; for a counter, at most 2^51 divided by the milliseconds of Window
	Window time.Duration // whole milliseconds, at least 1; a call exactly one window ago does not count
}

// maxLog, which package adapter exports, bounds what a sliding-window log or a cooldown stores per key: the times of its last
// Max calls.
const maxLog = 1000

// Validate returns an error that says what is wrong with the policy and what would be right.
// Constructors of limiters panic with it.
func (p WindowPolicy) Validate() error {
	switch {
	case p.Max < 1:
		return p.errorf("Max is %d; it must be at least 1", p.Max)
	case p.Window < time.Millisecond || p.Window%time.Millisecond != 0:
		return p.errorf("Window is %v; it must be a whole number of milliseconds, at least 1", p.Window)
	case p.Window > maxWindow:
		return p.errorf("Window is %v; it must be at most %v", p.Window, maxWindow)
	case p.Max > maxFull/p.Window.Milliseconds():
		return p.errorf("Max is %d; with a Window of %v it must be at most %d", p.Max, p.Window, maxFull/p.Window.Milliseconds())
	}
	return nil
}

// ValidateLog returns the error of Validate, or one if Max is too large for a sliding-window log.
func (p WindowPolicy) ValidateLog() error {
	if err := p.Validate(); err != nil {
		return err
	}
	if p.Max > maxLog {
		return p.errorf("Max is %d; a log keeps at most %d calls (for more, use a sliding-window counter or a token bucket)", p.Max, maxLog)
	}
	return nil
}

// Description describes the policy.
func (p WindowPolicy) Description() Description {
	return Description{Name: p.Name, Limit: p.Max, Window: p.Window}
}

func (p WindowPolicy) errorf(format string, args ...any) error {
	return policyErrorf("window", p.Name, format, args...)
}
