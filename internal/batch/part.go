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
