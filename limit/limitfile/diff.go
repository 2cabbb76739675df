package limitfile

import (
	"fmt"
	"math/big"
)

// A Change is the difference of one limit between two files.
type Change struct {
	Name     string
	Old, New string // the policies without their name; "" if the file has no such limit

	// How the rate and the capacity change, as a part of the old one: -0.5 if it is half as large,
	// and 0 if it is the same. They are 0 for a limit that only one of the files has. The capacity
	// of a sliding window or a quota is its maximum, and the rate that maximum per window or
	// period; a month has 31 days.
	Rate, Capacity float64
}

// Changes returns the differences to a later file, in the order of that file. Limits that it does
// not have come last.
func (p *Policies) Changes(later *Policies) (all []Change) {
	for _, now := range later.list {
		switch before := p.byName[now.name]; {
		case before == nil:
			all = append(all, Change{Name: now.name, New: now.text})
		case before.text != now.text:
			all = append(all, change(before, now))
		}
	}
	for _, before := range p.list {
		if later.byName[before.name] == nil {
			all = append(all, Change{Name: before.name, Old: before.text})
		}
	}
	return all
}

func change(before, now *policy) Change {
	oldCapacity, oldRefill, oldPer := before.numbers()
	capacity, refill, per := now.numbers()
	return Change{
		Name: now.name, Old: before.text, New: now.text,
		Rate:     relative(big.NewRat(oldRefill, int64(oldPer)), big.NewRat(refill, int64(per))),
		Capacity: relative(big.NewRat(oldCapacity, 1), big.NewRat(capacity, 1)),
	}
}

// relative is exact, so that it returns 0 only for equal numbers.
func relative(before, now *big.Rat) float64 {
	difference := new(big.Rat).Sub(now, before)
	f, _ := difference.Quo(difference, before).Float64()
	return f
}

// Describe returns a relative change of a [Change] as text, such as "-50 %" or "same".
func Describe(relative float64) string {
	switch {
	case relative == 0:
		return "same"
	case relative >= -0.005 && relative <= 0.005:
		return fmt.Sprintf("%+.2g %%", relative*100)
	default:
		return fmt.Sprintf("%+.0f %%", relative*100)
	}
}
