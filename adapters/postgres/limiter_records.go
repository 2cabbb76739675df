package postgres

import (
	"context"
	"fmt"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-go/penstock/internal/batch"
	"github.com/penstock-go/penstock/limit"
)

// A limitRecords value is what cooldowns, sliding windows and quotas have in common: a key has one
// record, and denials are remembered.
type limitRecords struct {
	limits  *Limits
	kind    int64 // limitCounter, limitLog or limitQuota
	keys    limitKeys
	check   func(*limit.Take) error
	seed    maphash.Seed
	policy  atomic.Pointer[limitRecordPolicy]
	changes sync.Mutex // serializes changes of the policy
}

// A limitRecordPolicy is a policy as the functions take it. A call uses one from its beginning to
// its end, so a change of the policy needs no lock.
type limitRecordPolicy struct {
	*batch.RecordPolicy

	// numbers returns the last arguments of the function of the kind.
	numbers func(*limit.Key) [5]int64
}

func newLimitRecords(l *Limits, kind int64, keys limitKeys, policy *limitRecordPolicy, check func(*limit.Take) error) *limitRecords {
	r := &limitRecords{limits: l, kind: kind, keys: keys, check: check, seed: maphash.MakeSeed()}
	r.policy.Store(policy)
	return r
}

// setPolicy replaces the policy by a valid one. Denials by the old one are forgotten.
func (r *limitRecords) setPolicy(policy *limitRecordPolicy) error {
	r.changes.Lock()
	defer r.changes.Unlock()
	old := r.policy.Load()
	if err := batch.CheckName(old.Description.Name, policy.Description.Name); err != nil {
		return fmt.Errorf("postgres: %w", err)
	}
	policy.RecordPolicy = policy.Following(old.RecordPolicy)
	r.policy.Store(policy)
	return nil
}

// Describe returns the maximum of the policy, and the time for which tokens count.
func (r *limitRecords) Describe() []limit.Description {
	return []limit.Description{r.policy.Load().Description}
}

// Check returns an error if the limiter cannot do a Take.
func (r *limitRecords) Check(take limit.Take) error { return r.check(&take) }

// take takes tokens of key. The reply is that of a take that was sent.
func (r *limitRecords) take(ctx context.Context, key *limit.Key, take *limit.Take) (limit.Decision, batch.RecordReply, error) {
	return r.takeBy(key, take, r.policy.Load(), func(call limitCall) (limitReply, error) {
		return r.limits.reply(ctx, call)
	})
}

// takeBy executes a take by a policy, with what executes a call.
func (r *limitRecords) takeBy(key *limit.Key, take *limit.Take, p *limitRecordPolicy, do func(limitCall) (limitReply, error)) (limit.Decision, batch.RecordReply, error) {
	if err := r.check(take); err != nil {
		return limit.Decision{}, batch.RecordReply{}, fmt.Errorf("postgres: %w", err)
	}
	return p.Take(key.Hash(r.seed), take, r.limits.now, func(what batch.RecordTake) (batch.RecordReply, error) {
		reply, err := do(r.call(key, p, what))
		if err != nil {
			return batch.RecordReply{}, err
		}
		return recordReply(&reply)
	})
}

// RemembersDenial returns the denial of a Take if this process knows it without asking the server.
func (r *limitRecords) RemembersDenial(key limit.Key, take limit.Take) (limit.Decision, bool) {
	return r.policy.Load().Remembered(key.Hash(r.seed), &take, r.limits.now())
}

// Reset forgets what counts for key and ends a block. Other processes may deny the key for up to a
// second more.
func (r *limitRecords) Reset(ctx context.Context, key limit.Key) error {
	return r.change(ctx, &key, limitArgs{r.kind, opReset})
}

// Block denies key for d; after that, nothing counts.
func (r *limitRecords) Block(ctx context.Context, key limit.Key, d time.Duration) error {
	if err := limit.CheckBlock(d); err != nil {
		return fmt.Errorf("postgres: %w", err)
	}
	return r.change(ctx, &key, limitArgs{0: r.kind, 1: opBlock, 5: d.Microseconds()})
}

// change executes a call whose reply says nothing.
func (r *limitRecords) change(ctx context.Context, key *limit.Key, args limitArgs) error {
	_, err := r.limits.do(ctx, r.keys.call(key, args))
	r.policy.Load().Invalidate(key.Hash(r.seed), r.limits.now())
	return err
}

// recordOperations are the operations by what a store does.
//
//nolint:gochecknoglobals // never changed
var recordOperations = map[string]int64{
	batch.TakeAll: opTake, batch.Look: opLook, batch.TakeUpTo: opTakeUpTo, batch.Charge: opCharge,
	batch.Refund: opRefund, batch.Undo: opUndo, batch.Settle: opSettle,
}

func (r *limitRecords) call(key *limit.Key, p *limitRecordPolicy, what batch.RecordTake) limitCall {
	args := limitArgs{
		r.kind, recordOperations[what.What], p.Max(), what.Cost, what.Stamp,
		what.Lease.ID, what.Lease.Length.Microseconds(), limit.MaxLeases, what.Lease.Excess,
	}
	if what.Lease.Returns {
		args[9] = 1
	}
	numbers := p.numbers(key)
	copy(args[10:], numbers[:])
	return r.keys.call(key, args)
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
