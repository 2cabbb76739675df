package ratelimit

import (
	"fmt"
	"math"
	"time"

	"github.com/penstock-go/penstock/errors"
)

// A Policy is how much may be spent: a bucket holds Capacity tokens and gets
// Refill of them back every Per, one by one.
type Policy struct {
	Name     string        // keeps policies that share a store apart
	Capacity int64         // tokens in a full bucket, at least 1: what may be spent at once
	Refill   int64         // tokens that come back every Per, at least 1
	Per      time.Duration // whole microseconds; 0 means one second
}

// PerSecond is n tokens a second, and n at once.
func PerSecond(n int64) Policy { return Policy{Capacity: n, Refill: n, Per: time.Second} }

// PerMinute is n tokens a minute, and n at once.
func PerMinute(n int64) Policy { return Policy{Capacity: n, Refill: n, Per: time.Minute} }

// PerHour is n tokens an hour, and n at once.
func PerHour(n int64) Policy { return Policy{Capacity: n, Refill: n, Per: time.Hour} }

// Per is n tokens every d, and n at once: never n+1 at once, after whatever pause.
func Per(n int64, d time.Duration) Policy { return Policy{Capacity: n, Refill: n, Per: d} }

// Burst returns the policy with another capacity.
func (p Policy) Burst(capacity int64) Policy {
	p.Capacity = capacity
	return p
}

// Named returns the policy with a name.
func (p Policy) Named(name string) Policy {
	p.Name = name
	return p
}

// Validate returns an error that says what is wrong with the policy and what
// would be right. Constructors of limiters panic with it.
func (p Policy) Validate() error {
	switch {
	case p.Capacity < 1:
		return p.errorf("Capacity is %d; it must be at least 1", p.Capacity)
	case p.Refill < 1:
		return p.errorf("Refill is %d; it must be at least 1 (for slower rates, lengthen Per)", p.Refill)
	case p.Per < 0 || p.Per%time.Microsecond != 0:
		return p.errorf("Per is %v; it must be a whole number of microseconds, or 0 for one second", p.Per)
	}
	u, micros := p.units(), p.per().Microseconds()
	switch {
	case p.Refill/micros > maxPerMicro:
		return p.errorf("%d tokens every %v are too many; it must be at most %d every microsecond", p.Refill, p.per(), maxPerMicro)
	case u.perToken > maxFull-u.perMicro:
		return p.errorf("Per is %v; with %d tokens it must be shorter", p.per(), p.Refill)
	case u.perMicro > maxPerMicro:
		return p.errorf("%d tokens every %v cannot be kept exactly; choose a rounder rate%s", p.Refill, p.per(), p.rounder())
	case p.Capacity > (maxFull-u.perMicro)/u.perToken:
		return p.errorf("Capacity is %d; with %d tokens every %v it must be at most %d",
			p.Capacity, p.Refill, p.per(), (maxFull-u.perMicro)/u.perToken)
	}
	return nil
}

func (p Policy) errorf(format string, args ...any) error {
	text := fmt.Sprintf(format, args...)
	if p.Name != "" {
		text = fmt.Sprintf("policy %q: %s", p.Name, text)
	}
	return errors.New("ratelimit: " + text)
}

func (p Policy) per() time.Duration {
	if p.Per == 0 {
		return time.Second
	}
	return p.Per
}

// rounder suggests a rate that can be kept exactly: one of two digits, or of one.
func (p Policy) rounder() string {
	for _, most := range []int64{100, 10} {
		unit := int64(1)
		for p.Refill/unit >= most {
			unit *= 10
		}
		rounded := Policy{Refill: p.Refill / unit * unit, Per: p.Per}
		if rounded.units().perMicro <= maxPerMicro {
			return fmt.Sprintf(", such as %d", rounded.Refill)
		}
	}
	return ""
}

// Bounds of exact arithmetic.
const (
	// maxFull is what a full bucket and one microsecond's refill may be in units,
	// so that stores which count in doubles, as Redis scripts do, are exact too.
	maxFull = 1 << 51
	// maxPerMicro keeps a time of 30 years, in units, below 2^63.
	maxPerMicro = 9000
)

// Units is a policy in whole numbers, for adapters. A token is split into as many
// units as make the refill of a microsecond a whole number of them; so nothing
// is ever rounded but the Decision.
type Units struct {
	perMicro int64 // units that flow in every microsecond
	perToken int64 // units of a token
	full     int64 // units in a full bucket
	capacity int64
}

// Units returns the policy in whole numbers. It panics if the policy is not
// valid.
func (p Policy) Units() Units {
	if err := p.Validate(); err != nil {
		panic(err.Error())
	}
	return p.units()
}

func (p Policy) units() Units {
	micros := p.per().Microseconds()
	g := gcd(p.Refill, micros)
	u := Units{perMicro: p.Refill / g, perToken: micros / g, capacity: p.Capacity}
	u.full = p.Capacity * u.perToken
	return u
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// PerMicro returns how many units flow into a bucket in a microsecond.
func (u Units) PerMicro() int64 { return u.perMicro }

// Full returns how many units a full bucket holds.
func (u Units) Full() int64 { return u.full }

// Need returns how many units a cost takes. A cost above the capacity takes more
// than a full bucket holds. The cost must not be negative.
func (u Units) Need(cost int64) int64 {
	if cost > u.capacity {
		return math.MaxInt64
	}
	return cost * u.perToken
}

// Back returns how many units a refund gives back. That of more tokens than a bucket can owe
// is cut, so that it is exact in doubles too. The refund must not be negative.
func (u Units) Back(tokens int64) int64 {
	return min(tokens, 2*maxFull/u.perToken) * u.perToken
}

// Decide returns the Decision about a need where a bucket holds have units, or owes them
// to reservations if that is negative.
func (u Units) Decide(have, need int64) Decision {
	d := Decision{Allowed: need <= max(have, 0), Limit: u.capacity}
	switch {
	case d.Allowed:
		have -= need
	case need > u.full:
		d.RetryAfter = Never
	default:
		d.RetryAfter = u.wait(need - have)
	}
	d.Remaining = max(have, 0) / u.perToken
	d.ResetAfter = u.wait(u.full - have)
	return d
}

// Reserve returns the Decision about a need that may be met later.
func (u Units) Reserve(have, need int64, maxWait time.Duration) Decision {
	d := u.Decide(have, need)
	switch {
	case d.Allowed, d.RetryAfter == Never:
		return d
	case d.RetryAfter <= maxWait:
		d.Allowed, d.Remaining = true, 0
		d.ResetAfter = u.wait(u.full - have + need)
	default:
		d.RetryAfter -= maxWait.Truncate(time.Microsecond) // what adapters know of it
	}
	return d
}

// Blocked returns the Decision about a need while a block lasts.
func (u Units) Blocked(left time.Duration, need int64) Decision {
	d := Decision{Limit: u.capacity, RetryAfter: left, ResetAfter: left, Reason: Blocked}
	if need > u.full {
		d.RetryAfter = Never
	}
	return d
}

// Bounds of what is done to buckets by hand.
const (
	maxReserve = time.Hour
	maxBlock   = 365 * 24 * time.Hour
)

// CheckReserve returns an error if a Reserve makes no sense. It is for adapters.
func CheckReserve(cost int64, maxWait time.Duration) error {
	switch {
	case cost < 0:
		return fmt.Errorf("cost is %d; it must not be negative", cost)
	case maxWait < 0 || maxWait > maxReserve:
		return fmt.Errorf("maxWait is %v; it must be from 0 to %v", maxWait, maxReserve)
	}
	return nil
}

// CheckBlock returns an error if a Block makes no sense. It is for adapters.
func CheckBlock(d time.Duration) error {
	if d < time.Microsecond || d > maxBlock {
		return fmt.Errorf("a block of %v; it must be from 1µs to %v", d, maxBlock)
	}
	return nil
}

// wait returns how long units take to flow in.
func (u Units) wait(units int64) time.Duration {
	if u.perMicro == 1 { // true of most policies, and a division is a tenth of a decision
		return time.Duration(units) * time.Microsecond
	}
	return time.Duration((units+u.perMicro-1)/u.perMicro) * time.Microsecond
}
