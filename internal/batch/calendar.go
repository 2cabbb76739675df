package batch

import (
	"sync/atomic"
	"time"

	"github.com/penstock-go/penstock/limit"
)

// A Calendar finds the periods of a quota around a time. It is safe for concurrent use.
type Calendar struct {
	policy  limit.QuotaPolicy
	current atomic.Pointer[Periods] // those of keys without periods of their own
}

// Periods are those around the one that contains a time.
type Periods struct {
	// Bounds are when the previous, the current and the next two periods begin, and when the last
	// one ends, in microseconds since 1970. The clock of a store may be a period ahead, and a call
	// that may wait needs the period after that.
	Bounds [5]int64

	start, end time.Time // of the current one
}

// NewCalendar returns the calendar of a valid policy.
func NewCalendar(policy limit.QuotaPolicy) *Calendar { return &Calendar{policy: policy} }

// Periods returns the periods of a key around a time.
func (c *Calendar) Periods(key *limit.Key, now time.Time) *Periods {
	if c.policy.Start != nil {
		return c.periods(*key, now)
	}
	p := c.current.Load()
	if p == nil || now.Before(p.start) || !now.Before(p.end) {
		p = c.periods(limit.Key{}, now)
		c.current.Store(p)
	}
	return p
}

func (c *Calendar) periods(key limit.Key, now time.Time) *Periods {
	start, end := c.policy.Bounds(key, now)
	previous, _ := c.policy.Bounds(key, start.Add(-1))
	_, afterNext := c.policy.Bounds(key, end)
	_, last := c.policy.Bounds(key, afterNext)
	return &Periods{
		Bounds: [5]int64{previous.UnixMicro(), start.UnixMicro(), end.UnixMicro(), afterNext.UnixMicro(), last.UnixMicro()},
		start:  start,
		end:    end,
	}
}
