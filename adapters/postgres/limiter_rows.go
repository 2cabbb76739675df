package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/penstock-go/penstock/internal/batch"
	"github.com/penstock-go/penstock/internal/keyname"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/adapter"
	"github.com/penstock-go/penstock/limit/mode"
)

// limitRows are the rows of a limiter: one for each key.
type limitRows struct {
	limits *LimitStore
	kind   int64 // limitBucket, limitCounter, limitLog or limitQuota
	keys   limitKeys
	clock  func() time.Time // of the calendar
}

// rowsOf returns the rows of a limiter of a kind. The name of the kind and that of the policy are parts
// of the names of its keys.
func (l *LimitStore) rowsOf(kind int64, kindName, policyName string) *limitRows {
	return &limitRows{l, kind, l.keysOf(kindName, policyName), time.Now}
}

// Now returns the time of a monotonic clock.
func (r *limitRows) Now() time.Duration { return r.limits.now() }

// Time returns the time of the calendar.
func (r *limitRows) Time() time.Time { return r.clock() }

// NamePrefix returns how the names of all rows begin.
func (r *limitRows) NamePrefix() string { return r.keys.prefix }

// Name returns the name of a key's row.
func (r *limitRows) Name(key *limit.Key) string {
	return keyname.Join(r.keys.prefix, keyname.Parts(key))
}

// SharesWith reports whether a store is in the same schema.
func (r *limitRows) SharesWith(other batch.Store) bool {
	o, ok := other.(*limitRows)
	return ok && r.limits.pool == o.limits.pool && r.limits.schema == o.limits.schema
}

// Do executes a request.
func (r *limitRows) Do(ctx context.Context, request *batch.Request) (batch.Reply, error) {
	reply, err := r.limits.reply(ctx, r.call(request))
	if err != nil {
		return batch.Reply{}, err
	}
	return replyTo(request, &reply)
}

// DoAll takes what all parts say, or nothing, in one round trip.
func (r *limitRows) DoAll(ctx context.Context, parts []batch.Part) ([]batch.Reply, error) {
	replies, err := r.limits.doAll(ctx, jointCalls(parts))
	if err != nil {
		return nil, err
	}
	return repliesTo(parts, replies)
}

// SetBlock removes what a key has taken, and blocks it unless d is 0.
func (r *limitRows) SetBlock(ctx context.Context, key *limit.Key, d time.Duration) error {
	_, err := r.limits.do(ctx, r.blockCall(key, d))
	return err
}

func (r *limitRows) blockCall(key *limit.Key, d time.Duration) limitCall {
	args := limitArgs{r.kind, opReset}
	if d > 0 {
		args = limitArgs{0: r.kind, 1: opBlock, 5: d.Microseconds()}
	}
	return r.keys.call(key, args)
}

func jointCalls(parts []batch.Part) []limitCall {
	calls := make([]limitCall, len(parts))
	for i, p := range parts {
		calls[i] = p.Store.(interface{ rows() *limitRows }).rows().call(p.Request)
	}
	return calls
}

func (r *limitRows) rows() *limitRows { return r }

// call returns the call of a request.
func (r *limitRows) call(request *batch.Request) limitCall {
	var args limitArgs
	if request.Policy != nil {
		args = bucketArgs(request)
	} else {
		args = r.recordArgs(request)
	}
	if request.Never {
		args[argNever] = 1
	}
	return r.keys.call(&request.Key, args)
}

// repliesTo returns what the replies about joint calls say.
func repliesTo(parts []batch.Part, replies []limitReply) (all []batch.Reply, err error) {
	all = make([]batch.Reply, len(parts))
	for i, p := range parts {
		if all[i], err = replyTo(p.Request, &replies[i]); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// replyTo returns what a reply says about a request.
func replyTo(request *batch.Request, reply *limitReply) (answer batch.Reply, err error) {
	answer.Sent, answer.Received = reply.sent, reply.received
	if request.Policy != nil {
		answer.State = bucketState(reply)
		return answer, nil
	}
	answer.Record, err = recordReply(reply)
	return answer, err
}

// bucketArgs returns the arguments of limit_bucket.
func bucketArgs(r *batch.Request) limitArgs {
	p, what := r.Policy, &r.Bucket
	args := limitArgs{
		limitBucket, opTake, p.PerMicro(), p.PerToken(), p.Full() / p.PerToken(), what.Units, what.Lowest, what.Divisor, what.Since,
		what.Lease.ID, what.Lease.Length.Microseconds(), adapter.MaxLeases, what.Lease.Excess,
	}
	switch {
	case what.Lease.IsMark():
		args[11] = adapter.MaxMarks
	case r.Mode == mode.Returning:
		args[1] = opRefund
	case r.Mode == mode.Undoing:
		args[1] = opUndo
	case r.Mode == mode.Settling && what.Lease.ID != 0:
		args[1] = opSettle
	}
	if what.Lease.Returns {
		args[13] = 1
	}
	return args
}

// bucketState returns the state of a bucket that limit_bucket describes.
func bucketState(reply *limitReply) batch.State {
	n := &reply.numbers
	if n[0] > 0 {
		return batch.State{BlockedFor: time.Duration(n[0]) * time.Microsecond, At: n[2]}
	}
	return batch.State{
		Units: n[1], At: n[2],
		LeaseEnds: time.Duration(n[3]) * time.Microsecond, LeasesFull: n[4] == 1,
	}
}

// recordOperations are the operations by what a store does.
//
//nolint:gochecknoglobals // never changed
var recordOperations = map[string]int64{
	batch.TakeAll: opTake, batch.Look: opLook, batch.TakeUpTo: opTakeUpTo, batch.Charge: opCharge,
	batch.Refund: opRefund, batch.Undo: opUndo, batch.Settle: opSettle,
}

// recordArgs returns the arguments of the function of a window, a quota or a cooldown.
func (r *limitRows) recordArgs(request *batch.Request) limitArgs {
	what := &request.Record
	args := limitArgs{
		r.kind, recordOperations[what.What], request.Numbers[0], what.Cost, what.Stamp,
		what.Lease.ID, what.Lease.Length.Microseconds(), adapter.MaxLeases, what.Lease.Excess,
	}
	if what.Lease.Returns {
		args[9] = 1
	}
	copy(args[10:], request.Numbers[1:])
	return args
}

// replyClock stands for a quota whose caller has a clock that differs by more than a period.
const replyClock = -2

func recordReply(reply *limitReply) (batch.RecordReply, error) {
	if reply.numbers[0] == replyClock {
		return batch.RecordReply{}, fmt.Errorf("postgres: quota: the server's time is %v, and the clock of this process differs by more than a period; set both clocks",
			time.UnixMicro(reply.numbers[1]).UTC())
	}
	r := batch.NewRecordReply(reply.numbers[:])
	r.Sent, r.Received = reply.sent, reply.received
	return r, nil
}
