package batch

import "github.com/penstock-go/penstock/limit"

// A Take takes the largest multiple of Divisor that is at most Units and leaves a balance of at
// least Lowest. Every call that takes tokens is a Take.
type Take struct {
	Units   int64
	Lowest  int64 // negative for a deficit
	Divisor int64 // at least 1
}

// TakeAll returns a Take of all units or none. A cost above the capacity takes none.
func TakeAll(units, lowest int64, u *limit.Units) Take {
	if units > u.Full() {
		units = 0
	}
	return Take{units, lowest, max(units, 1)}
}

// TakeKeeping returns a Take of all units or none that leaves keepUnits, and the units that a bucket
// needs for it. A sum above the capacity is never allowed and takes none.
func TakeKeeping(units, keepUnits int64, u *limit.Units) (t Take, needUnits int64) {
	if exceeds(units, keepUnits, u) {
		return TakeAll(0, 0, u), u.Full() + 1
	}
	return TakeAll(units, keepUnits, u), units + keepUnits
}

// exceeds reports whether a sum of units is above the capacity. The sum may overflow.
func exceeds(units, keepUnits int64, u *limit.Units) bool {
	return units > u.Full() || keepUnits > u.Full()-units
}

// Taken returns what the call takes from a bucket.
func (t Take) Taken(s State) int64 {
	if s.BlockedFor > 0 || s.Units <= t.Lowest {
		return 0
	}
	return min(t.Units, (s.Units-t.Lowest)/t.Divisor*t.Divisor)
}
