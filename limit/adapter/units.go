package adapter

import (
	"math"
	"math/bits"
	"time"

	"github.com/penstock-go/penstock/limit"
)

// Units is the policy of a token bucket in whole numbers. A token is divided into equal units, small
// enough that a whole number of them returns every microsecond. So the state of a bucket is exact, and
// only the numbers of a Decision are rounded. Stores that count in float64, such as Redis scripts, are
// exact too: a full bucket holds at most 2^51 units.
type Units struct {
	perMicro int64 // units that return every microsecond
	perToken int64 // units of a token
	full     int64 // units in a full bucket
	capacity int64 // tokens in a full bucket
}

// UnitsOf returns a policy in whole numbers. It panics if the policy is not valid.
func UnitsOf(p limit.Policy) Units {
	if err := p.Validate(); err != nil {
		panic(err.Error())
	}
	perMicro, perToken := p.LowestTerms()
	return Units{perMicro: perMicro, perToken: perToken, full: p.Capacity * perToken, capacity: p.Capacity}
}

// PerMicro returns how many units return to a bucket every microsecond.
func (u Units) PerMicro() int64 { return u.perMicro }

// Full returns how many units a full bucket holds.
func (u Units) Full() int64 { return u.full }

// CostUnits returns the units of a cost in tokens, which must not be negative. The units of a
// cost above the capacity are more than a full bucket holds.
func (u Units) CostUnits(cost int64) int64 {
	if cost > u.capacity {
		return math.MaxInt64
	}
	return cost * u.perToken
}

// RefundUnits returns the units of a refund in tokens, which must not be negative. A refund of
// more tokens than the largest deficit of a bucket is reduced, so that it is exact in float64 too.
func (u Units) RefundUnits(tokens int64) int64 {
	return min(tokens, MaxDeficit/u.perToken) * u.perToken
}

// DebtUnits returns the units of a charge in tokens, which must not be negative: at most MaxDeficit.
func (u Units) DebtUnits(tokens int64) int64 {
	return min(tokens, MaxDeficit/u.perToken) * u.perToken
}

// UndoUnits returns how many units a receipt of tokens returns a time after the bucket held them: none
// that have returned meanwhile. The time may be negative.
func (u Units) UndoUnits(tokens int64, since time.Duration) int64 {
	return max(u.RefundUnits(tokens)-max(since.Microseconds(), 0)*u.perMicro, 0)
}

// Decision returns the Decision about a cost of costUnits at a bucket that holds have units.
// A negative have is a deficit, the result of reservations.
func (u Units) Decision(have, costUnits int64) (d limit.Decision) {
	u.Decide(have, costUnits, &d)
	return d
}

// Decide sets d, which must be zero, to what Decision returns. A Decision is large, and copying it takes a
// noticeable part of a call in one process.
func (u *Units) Decide(have, costUnits int64, d *limit.Decision) {
	d.Allowed, d.Limit = costUnits <= max(have, 0), u.capacity
	switch {
	case d.Allowed:
		have -= costUnits
	case costUnits > u.full:
		d.RetryAfter = limit.Never
	default:
		d.RetryAfter = u.wait(costUnits - have)
	}
	if have >= u.perToken { // not after most denials, and a division takes a tenth of a decision's time
		d.Remaining = have / u.perToken
	}
	d.ResetAfter = u.wait(u.full - have)
}

// KeepDecision returns the Decision about a cost of costUnits that must leave keepUnits.
func (u Units) KeepDecision(have, costUnits, keepUnits int64) limit.Decision {
	if costUnits > u.full || keepUnits > u.full-costUnits {
		d := u.Decision(have, math.MaxInt64)
		d.RetryAfter = limit.Never
		return d
	}
	d := u.Decision(have, costUnits+keepUnits)
	if d.Allowed {
		return u.Decision(have, costUnits)
	}
	return d
}

// WholeTokens returns how many tokens a bucket that holds have units can grant.
func (u Units) WholeTokens(have int64) int64 { return max(have, 0) / u.perToken }

// Window returns how long an empty bucket takes to fill.
func (u Units) Window() time.Duration { return u.wait(u.full) }

// Description describes a token bucket of the policy with these units.
func (u Units) Description(name string) limit.Description {
	return limit.Description{
		Name: name, Limit: u.capacity, Window: u.Window(),
		Refill: u.perMicro, Per: time.Duration(u.perToken) * time.Microsecond,
	}
}

// PerToken returns how many units a token is.
func (u Units) PerToken() int64 { return u.perToken }

// FromUnits returns how many units of u a bucket lacks that lacks missing units of old, rounded
// up: a change of the policy never creates tokens. The result is at most 2^52, more than any
// bucket holds; of a larger deficit, such as 1,300,000 tokens of which one returns per hour, the
// rest is forgotten.
func (u Units) FromUnits(missing int64, old Units) int64 {
	high, low := bits.Mul64(uint64(missing), uint64(u.perToken))
	if high >= uint64(old.perToken) {
		return MaxDeficit
	}
	quotient, rest := bits.Div64(high, low, uint64(old.perToken))
	if rest > 0 {
		quotient++
	}
	return int64(min(quotient, MaxDeficit))
}

// RefillsFasterThan reports whether a bucket of u fills with more tokens per time than one of
// old.
func (u Units) RefillsFasterThan(old Units) bool {
	high, low := bits.Mul64(uint64(u.perMicro), uint64(old.perToken))
	oldHigh, oldLow := bits.Mul64(uint64(old.perMicro), uint64(u.perToken))
	return high > oldHigh || high == oldHigh && low > oldLow
}

// ReserveDecision returns the Decision about a cost of costUnits that may wait for maxWait.
func (u Units) ReserveDecision(have, costUnits int64, maxWait time.Duration) limit.Decision {
	d := u.Decision(have, costUnits)
	switch {
	case d.Allowed, d.RetryAfter == limit.Never:
		return d
	case d.RetryAfter <= maxWait:
		d.Allowed, d.Remaining = true, 0
		d.ResetAfter = u.wait(u.full - have + costUnits)
	default:
		d.RetryAfter -= maxWait.Truncate(time.Microsecond) // adapters count in microseconds
	}
	return d
}

// BlockedDecision returns the Decision about a cost of costUnits at a bucket that stays
// blocked for left.
func (u Units) BlockedDecision(left time.Duration, costUnits int64) limit.Decision {
	d := limit.Decision{Limit: u.capacity, RetryAfter: left, ResetAfter: left, Reason: limit.Blocked}
	if costUnits > u.full {
		d.RetryAfter = limit.Never
	}
	return d
}

// wait returns how long units take to return.
func (u Units) wait(units int64) time.Duration {
	if u.perMicro == 1 { // most policies; the division would take a tenth of a decision's time
		return time.Duration(units) * time.Microsecond
	}
	return time.Duration((units+u.perMicro-1)/u.perMicro) * time.Microsecond
}
