package ratelimit

import (
	"fmt"
	"time"

	"github.com/penstock-go/penstock/errors"
)

// A CooldownPolicy admits at most Max in any Window, and punishes who wants more:
// everything is refused for a Penalty then. Where a token bucket slows a client down, a
// cooldown tells it to stop.
type CooldownPolicy struct {
	Name    string        // keeps policies that share a store apart
	Max     int64         // in any window, from 1 to 1000
	Window  time.Duration // whole microseconds; what came a window ago does not count any more
	Penalty time.Duration // whole microseconds, at least 1: how long it lasts, or until the window has room if that is later
}

// maxCooldown bounds what is remembered of a key: when each of the last Max came.
const maxCooldown = 1000

// Validate returns an error that says what is wrong with the policy and what would be
// right. Constructors of limiters panic with it.
func (p CooldownPolicy) Validate() error {
	switch {
	case p.Max < 1 || p.Max > maxCooldown:
		return p.errorf("Max is %d; it must be from 1 to %d (for more, take a Policy)", p.Max, maxCooldown)
	case p.Window <= 0 || p.Window%time.Microsecond != 0:
		return p.errorf("Window is %v; it must be a whole number of microseconds, at least 1", p.Window)
	case p.Penalty <= 0 || p.Penalty%time.Microsecond != 0:
		return p.errorf("Penalty is %v; it must be a whole number of microseconds, at least 1", p.Penalty)
	case p.Window > maxCooldownTime || p.Penalty > maxCooldownTime:
		return p.errorf("Window and Penalty must be at most %v", maxCooldownTime)
	}
	return nil
}

const maxCooldownTime = 10 * 365 * 24 * time.Hour

func (p CooldownPolicy) errorf(format string, args ...any) error {
	text := fmt.Sprintf(format, args...)
	if p.Name != "" {
		text = fmt.Sprintf("cooldown %q: %s", p.Name, text)
	}
	return errors.New("ratelimit: " + text)
}

// A Penalty is what an audit hook is told when one starts.
type Penalty struct {
	Policy     CooldownPolicy
	Key        Key
	Count      int64         // in the window, with what was too much
	RetryAfter time.Duration // until it ends
}
