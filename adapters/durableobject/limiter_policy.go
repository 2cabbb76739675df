package durableobject

import (
	"fmt"

	"github.com/penstock-go/penstock/internal/batch"
	"github.com/penstock-go/penstock/limit"
)

var (
	_ limit.PolicySetter[limit.Policy] = (*Limiter)(nil)
	_ limit.Describer                  = (*Limiter)(nil)
	_ limit.Rememberer                 = (*Limiter)(nil)
)

// A bucketPolicy is a policy as the Worker takes it. A call uses one from its beginning to its end,
// so a change of the policy needs no lock.
type bucketPolicy struct {
	*batch.Policy

	request string // beginning of a request, up to its calls
}

// newBucketPolicy returns a policy that follows another, or the first one.
func newBucketPolicy(policy limit.Policy, previous *batch.Policy) *bucketPolicy {
	p := batch.NewPolicy(policy, previous)
	return &bucketPolicy{p, fmt.Sprintf(`{"v":%d,"policy":[%d,%d,%d],"calls":[`, protocolVersion, p.PerMicro(), p.PerToken(), policy.Capacity)}
}

// SetPolicy replaces the numbers of the limiter's policy in this process. The policy must have the
// limiter's name; an unnamed policy cannot change, because its numbers are the name of its
// buckets. Calls in progress use the old numbers.
func (l *Limiter) SetPolicy(policy limit.Policy) error {
	if err := batch.CheckChange(l.name, policy); err != nil {
		return fmt.Errorf("durableobject: %w", err)
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
