package batch

import (
	"time"

	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/adapter"
)

// A State is the state of a bucket when the store read its clock.
type State struct {
	Units      int64         // held; negative after reservations, as a deficit
	BlockedFor time.Duration // if more than 0, the bucket is blocked that long, and Units has no meaning

	// Tick is the resolution of the store's clock, which it rounds down: a wait ends when the
	// clock next shows a whole Tick. 0 stands for a microsecond, in which buckets count.
	Tick time.Duration

	// At is the reading in microseconds since 1970; 0 if the store has not returned it.
	At int64

	// LeaseEnds is the time until the first lease ends that is not settled, which may return tokens; 0
	// if the bucket has none. LeasesFull says that it can have no more until then.
	LeaseEnds  time.Duration
	LeasesFull bool

	passed time.Duration // since the reading, less than Tick
}

// decision returns the Decision about a cost of costUnits at a bucket in this state.
func (s State) decision(costUnits int64, u *adapter.Units) limit.Decision {
	if s.BlockedFor > 0 {
		return s.roundUp(u.BlockedDecision(s.BlockedFor, costUnits))
	}
	return s.roundUp(u.Decision(s.Units, costUnits))
}

// reserveDecision returns the Decision about a cost of costUnits that may wait for maxWait.
func (s State) reserveDecision(costUnits int64, maxWait time.Duration, u *adapter.Units) limit.Decision {
	if s.BlockedFor > 0 {
		return s.decision(costUnits, u)
	}
	return s.roundUp(u.ReserveDecision(s.Units, costUnits, maxWait))
}

// keepDecision returns the Decision about a cost of costUnits that must leave keepUnits.
func (s State) keepDecision(costUnits, keepUnits int64, u *adapter.Units) limit.Decision {
	if s.BlockedFor == 0 {
		return s.roundUp(u.KeepDecision(s.Units, costUnits, keepUnits))
	}
	d := s.decision(costUnits, u)
	if exceeds(costUnits, keepUnits, u) {
		d.RetryAfter = limit.Never
	}
	return d
}

// roundUp rounds the waits of a decision up to the store's clock.
func (s State) roundUp(d limit.Decision) limit.Decision {
	if s.isCoarse() {
		d.RetryAfter, d.ResetAfter = s.roundUpWait(d.RetryAfter), s.roundUpWait(d.ResetAfter)
	}
	return d
}

func (s State) roundUpWait(wait time.Duration) time.Duration {
	if wait == 0 || wait == limit.Never {
		return wait
	}
	wait += s.Tick - 1
	return wait - wait%s.Tick - s.passed
}

// after returns the state a time later, if no call changes the bucket. The store's clock has
// advanced by at least the whole ticks of that time.
func (s State) after(age time.Duration, u *adapter.Units) State {
	if s.isCoarse() {
		s.passed = age % s.Tick
		age -= s.passed
	}
	if s.BlockedFor > 0 {
		s.BlockedFor -= age
		return s
	}
	s.Units = unitsAfter(s.Units, age, u)
	s.LeaseEnds -= min(age, s.LeaseEnds)
	return s
}

func (s State) isCoarse() bool { return s.Tick > time.Microsecond }

// unitsAfter returns what a bucket holds after a time without calls.
func unitsAfter(have int64, age time.Duration, u *adapter.Units) int64 {
	return min(have+age.Microseconds()*u.PerMicro(), u.Full())
}
