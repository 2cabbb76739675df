package batch

import "github.com/penstock-go/penstock/limit/adapter"

// A Take is what a store does for a [limit.Take]. It takes the largest multiple of Divisor that is
// at most Units and leaves a balance of at least Lowest. Negative Units are returned to the bucket. If
// they were taken at Since, they are undone: the low of the last mark until then bounds what returns.
// Without a mark, none return that have returned since Since. With a Lease, the store makes or settles one.
type Take struct {
	Units   int64
	Lowest  int64 // negative for a deficit
	Divisor int64 // at least 1
	Since   int64 // in microseconds since 1970, on the store's clock; 0 if nothing is undone
	Lease   Lease
}

// takeAll returns a Take of all units or none. A cost above the capacity takes none.
func takeAll(units, lowest int64, u *adapter.Units) Take {
	if units > u.Full() {
		units = 0
	}
	return Take{Units: units, Lowest: lowest, Divisor: max(units, 1)}
}

// exceeds reports whether a sum of units is above the capacity. The sum may overflow.
func exceeds(units, keepUnits int64, u *adapter.Units) bool {
	return units > u.Full() || keepUnits > u.Full()-units
}

// taken returns what the call takes from a bucket, if it returns nothing.
func (t Take) taken(s State) int64 {
	if s.BlockedFor > 0 || s.Units <= t.Lowest || t.Lease.ID != 0 && s.LeasesFull {
		return 0
	}
	return min(t.Units, (s.Units-t.Lowest)/t.Divisor*t.Divisor)
}
