package durableobject

import (
	"fmt"

	"github.com/penstock-go/penstock/internal/batch"
	"github.com/penstock-go/penstock/limit"
)

var (
	_ limit.PolicySetter = (*Limiter)(nil)
	_ limit.Describer    = (*Limiter)(nil)
)

// A bucketPolicy is a policy as the Worker takes it. A call uses one from its beginning to its end,
// so a change of the policy needs no lock.
type bucketPolicy struct {
	units   limit.Units
	request string            // beginning of a request, up to its calls
	denials batch.DenialCache // counts in units, so each policy needs its own
}

func newBucketPolicy(policy limit.Policy) *bucketPolicy {
	u := policy.Units()
	return &bucketPolicy{
		units:   u,
		request: fmt.Sprintf(`{"v":%d,"policy":[%d,%d,%d],"calls":[`, protocolVersion, u.PerMicro(), u.PerToken(), policy.Capacity),
	}
}

// SetPolicy replaces the numbers of the limiter's policy in this process. The policy must have the
// limiter's name; an unnamed policy cannot change, because its numbers are the name of its
// buckets. Calls in progress use the old numbers.
func (l *Limiter) SetPolicy(policy limit.Policy) error {
	if err := batch.CheckPolicy(l.name, policy); err != nil {
		return fmt.Errorf("durableobject: %w", err)
	}
	l.policy.Store(newBucketPolicy(policy))
	return nil
}

// Describe returns the capacity and the refill of the limiter's policy.
func (l *Limiter) Describe() []limit.Description {
	return []limit.Description{l.policy.Load().units.Description(l.name)}
}
