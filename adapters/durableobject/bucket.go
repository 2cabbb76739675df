package durableobject

import (
	"time"

	"github.com/penstock-go/penstock/internal/batch"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/mode"
)

// bucketPart returns what the Worker does with a bucket.
func (r *records) bucketPart(request *batch.Request) part {
	p, t := request.Policy, request.Bucket
	if request.Never { // a take that is denied
		t = batch.Take{Units: 1, Lowest: p.Full(), Divisor: 1}
	}
	numbers := []int64{p.PerMicro(), p.PerToken(), p.Full() / p.PerToken(), t.Units}
	if request.Mode == mode.Settling && t.Lease.ID != 0 {
		return r.newPart(&request.Key, batch.Settle, append(numbers, settlementNumbers(t.Lease)...)...)
	}
	numbers = append(numbers, t.Lowest, t.Divisor, t.Since)
	if t.Lease.Length > 0 {
		numbers = append(numbers, t.Lease.ID, t.Lease.Length.Microseconds())
	}
	return r.newPart(&request.Key, "take", numbers...)
}

// blockedReply marks a blocked bucket: the Worker returns it minus the microseconds until the block
// ends.
const blockedReply = -1 << 52

// bucketState returns the state of a bucket that the Worker describes by what it holds, the time, the
// microseconds until its first lease ends, and whether it can have no more leases.
func bucketState(p *batch.Policy, numbers []int64, tick time.Duration) (batch.State, error) {
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
