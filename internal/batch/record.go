package batch

import (
	"time"

	"github.com/penstock-go/penstock/limit"
)

// A RecordTake is what a store does for a [limit.Take] with the record of a key: what a window, a
// quota or a cooldown has counted.
type RecordTake struct {
	What string // one of the constants below
	Cost int64  // at most maxCost

	// Stamp is that of the tokens to undo, or the microseconds for which the call may wait.
	Stamp int64
	// Lease is the one to make or to settle.
	Lease Lease
}

// What a store does with a cost.
const (
	TakeAll  = "take" // takes all of it, or nothing
	Look     = "look" // decides as TakeAll, and changes nothing
	TakeUpTo = "upto" // takes as much as is there
	Charge   = "charge"
	Refund   = "refund"
	Undo     = "undo" // refunds what was taken with a stamp
	Settle   = "settle"
)

// maxCost is more tokens than any record counts. Stores count it exactly.
const maxCost = 1 << 52

// A RecordReply is what a store found.
type RecordReply struct {
	Outcome    int64
	Used       int64         // tokens that count, after the call
	RetryAfter time.Duration // until the cost can be spent; of a denial, until it can be allowed
	ResetAfter time.Duration // until no tokens count
	MoreAfter  time.Duration // of a denial, until the key has more tokens
	AllAfter   time.Duration // of a denial, until the key has all tokens
	Taken      int64
	Stamp      int64 // to what the tokens belong that were taken

	// Tick is the resolution of the store's clock, see [State].
	Tick           time.Duration
	Sent, Received time.Duration
}

// RecordNumbers is how many numbers describe a RecordReply.
const RecordNumbers = 8

// NewRecordReply returns the reply that a store describes by RecordNumbers numbers. Times are in
// microseconds.
func NewRecordReply(n []int64) RecordReply {
	micros := func(i int) time.Duration { return time.Duration(n[i]) * time.Microsecond }
	return RecordReply{
		Outcome: n[0], Used: n[1], RetryAfter: micros(2), ResetAfter: micros(3), MoreAfter: micros(4), AllAfter: micros(5),
		Taken: n[6], Stamp: n[7],
	}
}

// The outcomes of a RecordReply.
const (
	OutcomeAllowed       = 0
	OutcomePenaltyStarts = 1
	OutcomeInPenalty     = 2
	OutcomeDenied        = 3
	OutcomeBlocked       = 4
)

func (r *RecordReply) reason() limit.Reason {
	switch r.Outcome {
	case OutcomePenaltyStarts:
		return limit.BurstExceeded
	case OutcomeInPenalty:
		return limit.InCooldown
	case OutcomeBlocked:
		return limit.Blocked
	default:
		return limit.NoTokens
	}
}

// roundUp rounds a wait up to the store's clock, which shows whole ticks.
func (r *RecordReply) roundUp(wait time.Duration) time.Duration {
	if r.Tick <= time.Microsecond {
		return wait
	}
	return (wait + r.Tick - 1).Truncate(r.Tick)
}
