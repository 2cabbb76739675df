package batch

import (
	"time"

	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/mode"
)

// A RecordPolicy decides about windows, quotas and cooldowns in a store, and remembers denials, so
// that a client that floods causes no round trips. It is safe for concurrent use.
type RecordPolicy struct {
	Description limit.Description

	quota   limit.QuotaPolicy     // zero unless it is that of a quota
	version int64                 // how often the limiter's policy has changed
	denials Cache[[]recordDenial] // of a key, newest first
}

// NewRecordPolicy returns the policy of a window or a cooldown, by its description.
func NewRecordPolicy(description limit.Description) *RecordPolicy {
	return &RecordPolicy{Description: description}
}

// NewQuotaPolicy returns the policy of a quota.
func NewQuotaPolicy(policy limit.QuotaPolicy) *RecordPolicy {
	return &RecordPolicy{Description: policy.Description(), quota: policy}
}

// Following returns a new policy with the numbers of p, which replaces the previous one of a limiter.
func (p *RecordPolicy) Following(previous *RecordPolicy) *RecordPolicy {
	next := &RecordPolicy{Description: p.Description, quota: p.quota, version: previous.version}
	if p.Description != previous.Description || !sameCalendar(p.quota, previous.quota) {
		next.version++
	}
	return next
}

// sameCalendar reports whether two quotas have one, by the name of its zone. Functions cannot be compared.
func sameCalendar(a, b limit.QuotaPolicy) bool {
	return a.Start == nil && b.Start == nil && a.Location.String() == b.Location.String()
}

// WithoutMemory returns the policy without remembered denials, such as for a call in a transaction, whose
// outcome may be undone.
func (p *RecordPolicy) WithoutMemory() *RecordPolicy {
	return &RecordPolicy{Description: p.Description, quota: p.quota, version: p.version}
}

// A recordDenial is a Decision about all costs from least to most of calls that may wait for a
// time. It holds until the key has more tokens, a time after it was sent.
type recordDenial struct {
	least, most    int64
	maxWait        time.Duration
	decision       limit.Decision
	sent, received time.Duration
	lasts          time.Duration
}

// maxDenials bounds what is remembered of a key. Quotas and penalties deny all costs for the same
// time.
const maxDenials = 4

// Max returns how many tokens the policy allows at most.
func (p *RecordPolicy) Max() int64 { return p.Description.Limit }

// Take decides about a valid take from the record of a key with a hash. It asks the store, by call,
// unless a denial is remembered. The reply is that of a take that can be denied and was sent.
func (p *RecordPolicy) Take(hash uint64, take *limit.Take, now func() time.Duration, call func(RecordTake) (RecordReply, error)) (limit.Decision, RecordReply, error) {
	if take.Mode >= mode.Charging {
		return limit.Decision{}, RecordReply{}, p.change(hash, take, now, call)
	}
	if d, ok := p.Remembered(hash, take, now()); ok {
		return d, RecordReply{Outcome: OutcomeDenied}, nil
	}
	what := p.taking(take)
	reply, err := call(what)
	if err != nil {
		return limit.Decision{}, RecordReply{}, err
	}
	d := what.Lease.Complete(p.decide(&reply, take))
	if take.Mode != mode.Looking {
		p.learn(hash, take, &d, &reply, true)
	}
	return d, reply, nil
}

// change executes a take that is never denied.
func (p *RecordPolicy) change(hash uint64, take *limit.Take, now func() time.Duration, call func(RecordTake) (RecordReply, error)) error {
	what := RecordTake{What: Refund, Cost: min(take.Cost, maxCost)}
	switch take.Mode {
	case mode.Charging:
		what.What = Charge
	case mode.Settling:
		what = p.settling(take)
	case mode.Undoing:
		receipt := take.Undone()
		if receipt.Version != p.version {
			return nil
		}
		what = RecordTake{What: Undo, Cost: min(receipt.Tokens, maxCost), Stamp: receipt.Stamp}
	}
	if what.Cost == 0 && what.Lease.ID == 0 {
		return nil
	}
	_, err := call(what)
	p.Invalidate(hash, now())
	return err
}

// settling returns what a store does to settle a lease: it takes the Excess of the lease, or the Cost if
// the record does not have it. Of a take that took nothing, there is no lease.
func (p *RecordPolicy) settling(take *limit.Take) RecordTake {
	receipt := take.Undone()
	what := RecordTake{What: Charge, Cost: min(take.Cost, maxCost)}
	if receipt.Lease != 0 {
		excess := max(min(take.Cost-receipt.Tokens, maxCost), -maxCost)
		what.What, what.Lease = Settle, Lease{ID: receipt.Lease, Excess: excess, Returns: receipt.Version == p.version}
	}
	return what
}

// taking returns what a store does for a take that can be denied.
func (p *RecordPolicy) taking(take *limit.Take) RecordTake {
	what := RecordTake{What: TakeAll, Cost: min(take.Cost, maxCost), Stamp: take.MaxWait.Microseconds()}
	switch take.Mode {
	case mode.Looking:
		what.What = Look
	case mode.Partial:
		what.What = TakeUpTo
		return what
	}
	switch {
	case take.Cost > p.Max():
		what.Cost = 0 // it can never be allowed, starts no penalty, and is not counted
	case take.Cost > 0:
		what.Lease = NewLease(take)
	}
	return what
}

// needOf returns the tokens without which a take is denied.
func needOf(take *limit.Take) int64 {
	if take.Mode == mode.Partial {
		return min(take.Cost, 1)
	}
	return take.Cost
}

// Remembered returns the denial of a take if it is known without the store that the key still lacks
// the cost.
func (p *RecordPolicy) Remembered(hash uint64, take *limit.Take, now time.Duration) (limit.Decision, bool) {
	if take.Mode > mode.Partial {
		return limit.Decision{}, false
	}
	e, ok := p.denials.Get(hash, now)
	if !ok {
		return limit.Decision{}, false
	}
	cost := needOf(take)
	for _, known := range e.Value {
		age := now - known.received
		if cost < known.least || cost > known.most || now-known.sent >= known.lasts || age > CacheTime {
			continue
		}
		if take.MaxWait != known.maxWait && known.decision.Reason != limit.Blocked {
			continue
		}
		// RetryAfter counts from when the response arrived, so that it is long enough.
		d := known.decision
		d.RetryAfter -= age
		d.ResetAfter -= age
		if d.Reason == limit.BurstExceeded {
			d.Reason = limit.InCooldown
		}
		return d, true
	}
	return limit.Decision{}, false
}

// Invalidate forgets a key that the caller has reset or blocked, and ignores replies that are on
// their way.
func (p *RecordPolicy) Invalidate(hash uint64, now time.Duration) { p.denials.Invalidate(hash, now) }

// InvalidateAll is Invalidate for every key.
func (p *RecordPolicy) InvalidateAll(now time.Duration) { p.denials.InvalidateAll(now) }

// learn remembers what a take has left, after all limiters that decide about it have allowed it or
// not.
func (p *RecordPolicy) learn(hash uint64, take *limit.Take, d *limit.Decision, reply *RecordReply, allowed bool) {
	switch {
	case d.Allowed && allowed && take.Cost > 0:
		p.denials.Delete(hash) // a larger cost, which may be in the cache, is denied for longer
	case !d.Allowed && (take.Cost <= p.Max() || take.Mode == mode.Partial):
		p.learnDenial(hash, take, d, reply)
	}
}

// learnDenial remembers the denial of a take. The time until a cost can be allowed grows with the
// cost, so if it is that of the least cost that the key lacks, or of the largest, it is that of all
// in between. Of calls that may wait, the store returns the time of one cost only.
func (p *RecordPolicy) learnDenial(hash uint64, take *limit.Take, d *limit.Decision, reply *RecordReply) {
	cost, lasts := needOf(take), min(reply.MoreAfter, reply.RetryAfter)
	if reply.Tick > time.Microsecond {
		lasts -= reply.Tick // the store may have read its clock before the request was sent
	}
	newest := recordDenial{cost, cost, take.MaxWait, *d, reply.Sent, reply.Received, lasts}
	if take.MaxWait == 0 && reply.MoreAfter == reply.RetryAfter {
		newest.least = d.Remaining + 1
	}
	if take.MaxWait == 0 && reply.AllAfter == reply.RetryAfter {
		newest.most = p.Max()
	}
	if reply.Outcome == OutcomeBlocked {
		newest.least, newest.most = 0, p.Max()
	}
	all := []recordDenial{newest}
	if e, ok := p.denials.Get(hash, reply.Received); ok {
		all = append(all, e.Value[:min(len(e.Value), maxDenials-1)]...)
	}
	p.denials.Put(hash, all, reply.Sent, reply.Received)
}

// decide returns the Decision about a take that can be denied.
func (p *RecordPolicy) decide(reply *RecordReply, take *limit.Take) limit.Decision {
	cost := take.Cost
	if take.Mode == mode.Partial {
		cost = max(reply.Taken, min(cost, 1))
	}
	d := limit.Decision{
		Allowed:    cost == 0 && reply.Outcome != OutcomeBlocked || reply.Outcome == OutcomeAllowed,
		Limit:      p.Max(),
		ResetAfter: reply.roundUp(reply.ResetAfter),
	}
	if reply.Outcome == OutcomeAllowed || reply.Outcome == OutcomeDenied {
		d.Remaining = max(p.Max()-reply.Used, 0) // charges and other processes may exceed the maximum
	}
	switch {
	case cost > p.Max():
		d.Allowed, d.RetryAfter = false, limit.Never
		if reply.Outcome == OutcomeBlocked {
			d.Reason = limit.Blocked
		}
	case !d.Allowed:
		d.RetryAfter = reply.roundUp(reply.RetryAfter)
		d.Reason = reply.reason()
	case cost > 0:
		d.RetryAfter = reply.roundUp(reply.RetryAfter) // of a reservation
	}
	if take.Mode == mode.Partial {
		d.Granted = reply.Taken
	}
	if take.Receipt && take.Mode != mode.Looking && d.Allowed && cost > 0 {
		d.Receipt = limit.Receipt{Tokens: cost, Stamp: reply.Stamp, Version: p.version}
	}
	return d
}
