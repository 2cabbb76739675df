package batch

import (
	"time"

	"github.com/penstock-go/penstock/limit"
)

// A BucketPart is a take whole from one bucket, about which other limiters decide too.
type BucketPart struct {
	What Take // what the store does, unless it is never allowed

	policy *Policy
	hash   uint64
	take   limit.Take
	before State
}

// Part returns a valid take from the bucket with a hash, as a part of a joint one.
func (p *Policy) Part(hash uint64, take limit.Take) *BucketPart {
	return &BucketPart{What: p.Taking(&take), policy: p, hash: hash, take: take}
}

// IsNever reports whether the cost is above the capacity.
func (p *BucketPart) IsNever() bool { return p.policy.CostUnits(p.take.Cost) > p.policy.Full() }

// Decide returns the Decision of the limiter alone, from the state of the bucket before.
func (p *BucketPart) Decide(before State) limit.Decision {
	p.before = before
	return p.What.Lease.Complete(p.policy.Decide(&p.take, before))
}

// Learn remembers what the joint take has left of the bucket.
func (p *BucketPart) Learn(allowed bool, sent, received time.Duration) {
	after, costUnits := p.before, p.policy.CostUnits(p.take.Cost)
	if allowed {
		after.Units -= costUnits
	}
	p.policy.denials.learn(p.hash, after, costUnits, sent, received)
}

// A RecordPart is a take whole from one record, about which other limiters decide too.
type RecordPart struct {
	What RecordTake // what the store does, unless it is never allowed

	policy *RecordPolicy
	hash   uint64
	take   limit.Take
	reply  RecordReply
}

// Part returns a valid take from the record of a key with a hash, as a part of a joint one.
func (p *RecordPolicy) Part(hash uint64, take limit.Take) *RecordPart {
	return &RecordPart{What: p.taking(&take), policy: p, hash: hash, take: take}
}

// IsNever reports whether the cost is above the maximum.
func (p *RecordPart) IsNever() bool { return p.take.Cost > p.policy.Max() }

// Decide returns the Decision of the limiter alone. The reply describes the record before, if the
// joint take is denied.
func (p *RecordPart) Decide(reply RecordReply) limit.Decision {
	p.reply = reply
	return p.What.Lease.Complete(p.policy.decide(&reply, &p.take))
}

// Learn remembers what the joint take has left of the record, whose limiter has decided d alone.
func (p *RecordPart) Learn(d *limit.Decision, allowed bool, sent, received time.Duration) {
	p.reply.Sent, p.reply.Received = sent, received
	p.policy.learn(p.hash, &p.take, d, &p.reply, allowed)
}
