package limit

import (
	"fmt"
	"time"

	"github.com/penstock-go/penstock/errors"
)

// Bounds of exact arithmetic.
const (
	// maxFull bounds the units of a full bucket plus one microsecond's refill, so that
	// stores that count in float64, such as Redis scripts, are exact too.
	maxFull = 1 << 51
	// maxPerMicro keeps a time of 30 years, in units, below 2^63.
	maxPerMicro = 9000
)

// A Policy describes a token bucket: it holds up to Capacity tokens, and Refill tokens return
// every Per, one by one. The zero Policy is not valid.
type Policy struct {
	Name     string        // separates policies that share a store
	Capacity int64         // tokens in a full bucket, at least 1; the most that can be spent at once
	Refill   int64         // tokens that return every Per, at least 1
	Per      time.Duration // whole microseconds; if 0, one second
}

// PerSecond returns a policy of n tokens per second, and at most n at once.
func PerSecond(n int64) Policy { return Policy{Capacity: n, Refill: n, Per: time.Second} }

// PerMinute returns a policy of n tokens per minute, and at most n at once.
func PerMinute(n int64) Policy { return Policy{Capacity: n, Refill: n, Per: time.Minute} }

// PerHour returns a policy of n tokens per hour, and at most n at once.
func PerHour(n int64) Policy { return Policy{Capacity: n, Refill: n, Per: time.Hour} }

// Per returns a policy of n tokens every d, and at most n at once.
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

// Validate returns an error that says what is wrong with the policy and what would be right.
// Constructors of limiters panic with it.
func (p Policy) Validate() error {
	switch {
	case p.Capacity < 1:
		return p.errorf("Capacity is %d; it must be at least 1", p.Capacity)
	case p.Refill < 1:
		return p.errorf("Refill is %d; it must be at least 1 (for slower rates, lengthen Per)", p.Refill)
	case p.Per < 0 || p.Per%time.Microsecond != 0:
		return p.errorf("Per is %v; it must be a whole number of microseconds, or 0 for one second", p.Per)
	}
	micros := p.per().Microseconds()
	perMicro, perToken := p.LowestTerms()
	switch {
	case p.Refill/micros > maxPerMicro:
		return p.errorf("%d tokens every %v are too many; it must be at most %d every microsecond", p.Refill, p.per(), maxPerMicro)
	case perToken > maxFull-perMicro:
		return p.errorf("Per is %v; with %d tokens it must be shorter", p.per(), p.Refill)
	case perMicro > maxPerMicro:
		return p.errorf("%d tokens every %v cannot be counted exactly; choose a rounder rate%s", p.Refill, p.per(), p.rounder())
	case p.Capacity > (maxFull-perMicro)/perToken:
		return p.errorf("Capacity is %d; with %d tokens every %v it must be at most %d",
			p.Capacity, p.Refill, p.per(), (maxFull-perMicro)/perToken)
	}
	return nil
}

// LowestTerms returns the refill in lowest terms: so many tokens return in so many microseconds. The
// policy must be valid.
func (p Policy) LowestTerms() (tokens, micros int64) {
	micros = p.per().Microseconds()
	g := gcd(p.Refill, micros)
	return p.Refill / g, micros / g
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

func (p Policy) errorf(format string, args ...any) error {
	return policyErrorf("policy", p.Name, format, args...)
}

// policyErrorf returns an error about a policy of a kind, which it names unless name is empty.
func policyErrorf(kind, name, format string, args ...any) error {
	text := fmt.Sprintf(format, args...)
	if name != "" {
		text = fmt.Sprintf("%s %q: %s", kind, name, text)
	}
	return errors.New("limit: " + text)
}

func (p Policy) per() time.Duration {
	if p.Per == 0 {
		return time.Second
	}
	return p.Per
}

// rounder suggests a rate that can be counted exactly: one of two digits, or of one.
func (p Policy) rounder() string {
	for _, bound := range []int64{100, 10} {
		unit := int64(1)
		for p.Refill/unit >= bound {
			unit *= 10
		}
		rounded := Policy{Refill: p.Refill / unit * unit, Per: p.Per}
		if perMicro, _ := rounded.LowestTerms(); perMicro <= maxPerMicro {
			return fmt.Sprintf(", such as %d", rounded.Refill)
		}
	}
	return ""
}
