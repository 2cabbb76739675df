package durableobject

import (
	"fmt"
	"time"

	"github.com/penstock-go/penstock/internal/batch"
	"github.com/penstock-go/penstock/limit"
)

var (
	_ limit.PolicySetter[limit.Policy] = (*Limiter)(nil)
	_ limit.Describer                  = (*Limiter)(nil)
	_ limit.Rememberer                 = (*Limiter)(nil)
	_ limit.Blocker                    = (*Limiter)(nil)
	_ limit.Batcher                    = (*Limiter)(nil)
)

// A bucketPolicy is a policy as the Worker takes it. A call uses one from its beginning to its end,
// so a change of the policy needs no lock.
type bucketPolicy struct {
	*batch.Policy

	capacity int64
}

// newBucketPolicy returns a policy that follows another, or the first one.
func newBucketPolicy(policy limit.Policy, previous *batch.Policy) *bucketPolicy {
	return &bucketPolicy{batch.NewPolicy(policy, previous), policy.Capacity}
}

// blockedReply marks a blocked bucket: the Worker returns it minus the microseconds until the block
// ends.
const blockedReply = -1 << 52

// state returns the state of a bucket that the Worker describes by what it holds, the time, the
// microseconds until its first lease ends, and whether it can have no more leases.
func (p *bucketPolicy) state(numbers []int64, tick time.Duration) (batch.State, error) {
	const maxBlockMicros = 366 * 24 * int64(time.Hour/time.Microsecond)
	if len(numbers) != 4 {
		return batch.State{}, replyErrorf("%d numbers about a bucket; it must return 4", len(numbers))
	}
	held, leaseEnds := numbers[0], time.Duration(numbers[2])*time.Microsecond
	switch {
	case held > p.Full(), held < blockedReply-maxBlockMicros:
		return batch.State{}, replyErrorf("%d units of a bucket that holds %d", held, p.Full())
	case numbers[2] < 0, numbers[2] > limit.MaxLease.Microseconds(), numbers[3] < 0, numbers[3] > 1:
		return batch.State{}, replyErrorf("%d about the leases of a bucket", numbers[2:])
	case held < blockedReply:
		return batch.State{BlockedFor: time.Duration(blockedReply-held) * time.Microsecond, Tick: tick, At: numbers[1]}, nil
	default:
		return batch.State{Units: held, Tick: tick, At: numbers[1], LeaseEnds: leaseEnds, LeasesFull: numbers[3] == 1}, nil
	}
}

// SetPolicy replaces the numbers of the limiter's policy in this process. The policy must have the
// limiter's name; an unnamed policy cannot change, because its numbers are the name of its
// buckets. Calls in progress use the old numbers.
func (l *Limiter) SetPolicy(policy limit.Policy) error {
	if err := batch.CheckChange(l.policyName, policy); err != nil {
		return fmt.Errorf("durableobject: %w", err)
	}
	l.changes.Lock()
	defer l.changes.Unlock()
	l.policy.Store(newBucketPolicy(policy, l.policy.Load().Policy))
	return nil
}

// Describe returns the capacity and the refill of the limiter's policy.
func (l *Limiter) Describe() []limit.Description {
	return []limit.Description{l.policy.Load().Description(l.policyName)}
}
