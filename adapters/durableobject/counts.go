package durableobject

import (
	"fmt"
	"slices"
	"time"

	"github.com/penstock-go/penstock/internal/batch"
)

// recordPart returns what the Worker does with the record of a window, a quota or a cooldown.
func (r *records) recordPart(request *batch.Request) part {
	what, cost := &request.Record, request.Record.Cost
	if request.Never { // a take that is denied
		cost = request.Numbers[0] + 1
	}
	numbers := append(slices.Clip(request.Numbers), cost)
	switch l := what.Lease; {
	case what.What == batch.Settle:
		numbers = append(numbers, settlementNumbers(l)...)
	case l.ID != 0:
		numbers = append(numbers, what.Stamp, l.ID, l.Length.Microseconds())
	default:
		numbers = append(numbers, what.Stamp)
	}
	return r.newPart(&request.Key, what.What, numbers...)
}

// outcomeNoPeriod is the outcome of a reply about a quota whose process has another time than the
// object, which is the stamp.
const outcomeNoPeriod = 5

// countReply returns a reply that the Worker describes by numbers.
func countReply(numbers []int64, tick time.Duration) (batch.RecordReply, error) {
	if len(numbers) != batch.RecordNumbers {
		return batch.RecordReply{}, replyErrorf("%d numbers about a key; it must return %d", len(numbers), batch.RecordNumbers)
	}
	const maxMicros = int64(100 * 365 * 24 * time.Hour / time.Microsecond)
	for i, n := range numbers[:batch.RecordNumbers-1] {
		if isTime := i >= 2 && i <= 5; n < 0 || isTime && n > maxMicros {
			return batch.RecordReply{}, replyErrorf("%d about a key", numbers)
		}
	}
	reply := batch.NewRecordReply(numbers)
	reply.Tick = tick
	switch {
	case reply.Outcome == outcomeNoPeriod:
		return batch.RecordReply{}, fmt.Errorf("durableobject: limiter: the time of the Durable Object is %d, and the clock of this process differs by more than a period; set it", reply.Stamp)
	case reply.Outcome > outcomeNoPeriod, reply.Outcome > batch.OutcomeAllowed && reply.RetryAfter == 0 && reply.Outcome != batch.OutcomeInPenalty:
		return batch.RecordReply{}, replyErrorf("%d about a key", numbers)
	}
	return reply, nil
}
