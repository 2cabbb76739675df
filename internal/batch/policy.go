package batch

import (
	"fmt"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/adapter"
	"github.com/penstock-go/penstock/limit/mode"
)

// A Policy decides about token buckets in a store, and remembers denials, so that a client that
// floods causes no round trips. It is safe for concurrent use.
type Policy struct {
	adapter.Units

	denials denialCache // counts in units, so each policy needs its own
	version int64       // how often the limiter's policy has changed
}

// NewPolicy returns a policy, which must be valid. It follows previous, which is nil for that of a new
// limiter.
func NewPolicy(policy limit.Policy, previous *Policy) *Policy {
	p := &Policy{Units: adapter.UnitsOf(policy)}
	if previous == nil {
		return p
	}
	if p.version = previous.version; p.Units != previous.Units {
		p.version++
	}
	return p
}

// WithoutMemory returns the policy without remembered denials, such as for a call in a transaction, whose
// outcome may be undone.
func (p *Policy) WithoutMemory() *Policy { return &Policy{Units: p.Units, version: p.version} }

// Take decides about a valid take from the bucket with a hash. It asks the store, by call, unless a
// denial is remembered.
func (p *Policy) Take(hash uint64, take *limit.Take, now func() time.Duration, call func(Take) (Reply, error)) (limit.Decision, error) {
	switch {
	case take.Mode >= mode.Charging:
		return limit.Decision{}, p.change(hash, take, now, call)
	case take.Mode == mode.Partial && take.Cost == 0:
		take = &limit.Take{}
	}
	if d, ok := p.Remembered(hash, take, now()); ok {
		return d, nil
	}
	what := p.Taking(take)
	reply, err := call(what)
	if err != nil {
		return limit.Decision{}, err
	}
	after := reply.State
	after.Units -= what.taken(after)
	p.denials.learn(hash, after, p.need(take), reply.Sent, reply.Received)
	return what.Lease.Complete(p.Decide(take, reply.State)), nil
}

// change executes a take that is never denied.
func (p *Policy) change(hash uint64, take *limit.Take, now func() time.Duration, call func(Take) (Reply, error)) error {
	what := Take{Divisor: 1}
	switch take.Mode {
	case mode.Charging, mode.Settling:
		what = p.settling(take)
	case mode.Returning:
		what.Units = -p.RefundUnits(take.Cost)
	case mode.Undoing:
		receipt := take.Undone()
		if receipt.Version != p.version {
			return nil
		}
		what.Units, what.Since = -p.RefundUnits(receipt.Tokens), receipt.Stamp
	}
	if what.Units == 0 && what.Lease.ID == 0 {
		return nil
	}
	reply, err := call(what)
	if take.Mode != mode.Charging {
		p.Invalidate(hash, now())
	} else if err == nil {
		after := reply.State
		after.Units -= what.taken(after)
		p.denials.learn(hash, after, what.Units, reply.Sent, reply.Received)
	}
	return err
}

// Taking returns what a store does for a take that can be denied.
func (p *Policy) Taking(take *limit.Take) Take {
	costUnits, token := p.CostUnits(take.Cost), p.PerToken()
	switch {
	case take.Mode == mode.Looking:
		return Take{Divisor: 1}
	case take.Mode == mode.Partial:
		return Take{Units: min(costUnits, p.Full()), Divisor: token, Lease: newMark(take)}
	case take.Keep > 0:
		keepUnits := p.CostUnits(take.Keep)
		if exceeds(costUnits, keepUnits, &p.Units) {
			return Take{Divisor: 1}
		}
		what := takeAll(costUnits, keepUnits, &p.Units)
		what.Lease = newMark(take)
		return what
	default:
		what := takeAll(costUnits, -p.Ahead(take.MaxWait), &p.Units)
		if what.Lease = newMark(take); take.Lease > 0 {
			what.Lease = NewLease(take)
		}
		return what
	}
}

// Ahead returns the units that return within maxWait.
func (p *Policy) Ahead(maxWait time.Duration) int64 { return maxWait.Microseconds() * p.PerMicro() }

// need returns the units that a bucket must hold for a take, more than it can hold if none suffice.
func (p *Policy) need(take *limit.Take) int64 {
	costUnits := p.CostUnits(take.Cost)
	switch {
	case take.Mode == mode.Partial:
		return p.PerToken()
	case take.Keep == 0:
		return costUnits
	}
	keepUnits := p.CostUnits(take.Keep)
	if exceeds(costUnits, keepUnits, &p.Units) {
		return p.Full() + 1
	}
	return costUnits + keepUnits
}

// Decide returns the Decision about a take that can be denied, from a bucket in a state.
func (p *Policy) Decide(take *limit.Take, s State) limit.Decision {
	cost := take.Cost
	if take.Mode == mode.Partial {
		granted := int64(0)
		if s.BlockedFor == 0 {
			granted = min(cost, p.WholeTokens(s.Units))
		}
		d := p.receive(take, s, granted, s.decision(p.CostUnits(max(granted, 1)), &p.Units))
		d.Granted = granted
		return d
	}
	var d limit.Decision
	switch costUnits := p.CostUnits(cost); {
	case take.MaxWait > 0:
		d = s.reserveDecision(costUnits, take.MaxWait, &p.Units)
	case take.Keep > 0:
		d = s.keepDecision(costUnits, p.CostUnits(take.Keep), &p.Units)
	case take.Lease > 0:
		d = s.leaseDecision(costUnits, &p.Units)
	default:
		d = s.decision(costUnits, &p.Units)
	}
	return p.receive(take, s, cost, d)
}

// receive adds the receipt to a Decision, if the take wants one.
func (p *Policy) receive(take *limit.Take, s State, tokens int64, d limit.Decision) limit.Decision {
	if take.Receipt && d.Allowed && tokens > 0 && take.Mode != mode.Looking {
		d.Receipt = limit.Receipt{Tokens: tokens, Stamp: s.At, Version: p.version}
	}
	return d
}

// Remembered returns the denial of a take if it is known without the store.
func (p *Policy) Remembered(hash uint64, take *limit.Take, now time.Duration) (limit.Decision, bool) {
	if take.Mode >= mode.Charging {
		return limit.Decision{}, false
	}
	state, ok := p.denials.denies(hash, now, p.need(take), p.Ahead(take.MaxWait), &p.Units)
	if !ok {
		return limit.Decision{}, false
	}
	return p.Decide(take, state), true
}

// Invalidate forgets a bucket that the caller has filled or blocked, and ignores replies that are on
// their way.
func (p *Policy) Invalidate(hash uint64, now time.Duration) { p.denials.states.Invalidate(hash, now) }

// checkName returns an error unless a policy may replace another one by their names, which may be
// empty: the name, or the numbers without one, name what the store has.
func checkName(old, name string) error {
	switch {
	case old == "":
		return errors.New("the policy has no name, so its numbers name its keys in the store; give it a name to change it")
	case name != old:
		return fmt.Errorf("the policy is named %q; SetPolicy needs one named %q", name, old)
	default:
		return nil
	}
}
