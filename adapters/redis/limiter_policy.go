package redis

import (
	"fmt"
	"strconv"

	"github.com/penstock-go/penstock/internal/batch"
	"github.com/penstock-go/penstock/limit"
)

var (
	_ limit.PolicySetter[limit.Policy] = (*Limiter)(nil)
	_ limit.Describer                  = (*Limiter)(nil)
)

// A bucketPolicy is a policy as the scripts take it. A call uses one from its beginning to its
// end, so a change of the policy needs no lock.
type bucketPolicy struct {
	*batch.Policy

	args [3]any // of the scripts: units per microsecond, units of a full bucket, suffix
}

// newBucketPolicy returns a policy that follows another, or the first one.
func newBucketPolicy(policy limit.Policy, previous *batch.Policy) *bucketPolicy {
	p := batch.NewPolicy(policy, previous)
	return &bucketPolicy{p, [3]any{
		strconv.FormatInt(p.PerMicro(), 10),
		strconv.FormatInt(p.Full(), 10),
		fmt.Sprintf("/%d.%d.%d", p.PerMicro(), p.PerToken(), policy.Capacity),
	}}
}

// scriptUnits bounds the units of a cost above the capacity, which Lua cannot count exactly.
func (p *bucketPolicy) scriptUnits(units int64) int64 { return min(units, p.Full()+1) }

// SetPolicy replaces the numbers of the limiter's policy in this process. The policy must have
// the limiter's name; an unnamed policy cannot change, because its numbers are the name of its
// buckets. Calls in progress use the old numbers.
func (l *Limiter) SetPolicy(policy limit.Policy) error {
	if err := batch.CheckChange(l.name, policy); err != nil {
		return fmt.Errorf("redis: %w", err)
	}
	l.changes.Lock()
	defer l.changes.Unlock()
	l.policy.Store(newBucketPolicy(policy, l.policy.Load().Policy))
	return nil
}

// Describe returns the capacity and the refill of the limiter's policy.
func (l *Limiter) Describe() []limit.Description {
	return []limit.Description{l.policy.Load().Description(l.name)}
}
