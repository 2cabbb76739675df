package postgres

import (
	"context"
	"fmt"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-go/penstock/internal/batch"
	"github.com/penstock-go/penstock/internal/keyname"
	"github.com/penstock-go/penstock/limit"
)

// A Limiter is a [limit.Limiter] whose buckets are in PostgreSQL, so that many processes share
// them. Its decisions equal those of a limiter in memory, on the clock of the server. See [Limits]
// for what all limiters of this package have in common.
//
// A bucket that is known to hold too little denies without a round trip, for at most a second; the
// RetryAfter of such a denial does not include what other processes have taken meanwhile.
//
// Limiters whose policies have the same name share buckets, in one process and in many. A bucket
// contains the numbers of the policy that last changed it, and a limiter with other numbers
// converts it; the ends of its leases then return nothing. Therefore processes with different
// numbers, such as during a rolling deployment or after SetPolicy, grant a key in any interval at
// most the largest capacity plus what the largest refill returns in that interval. The numbers of a
// policy replace a missing name, so unnamed policies with different numbers have separate buckets.
//
// A bucket is a row of about 200 bytes, and 80 for each of its leases and for the marks of up to 16
// receipts, which every call for its key writes. The row is removed after the bucket is full and its last lease has ended. A Limiter is
// safe for concurrent use.
type Limiter struct {
	limits  *Limits
	name    string // of the policy; may be empty
	keys    limitKeys
	seed    maphash.Seed
	policy  atomic.Pointer[batch.Policy]
	changes sync.Mutex // held by SetPolicy
}

var (
	_ limit.Blocker                    = (*Limiter)(nil)
	_ limit.Rememberer                 = (*Limiter)(nil)
	_ limit.Batcher                    = (*Limiter)(nil)
	_ limit.Describer                  = (*Limiter)(nil)
	_ limit.PolicySetter[limit.Policy] = (*Limiter)(nil)
)

// NewLimiter returns a limiter. It panics if the policy is not valid.
func (l *Limits) NewLimiter(policy limit.Policy) *Limiter {
	b := &Limiter{limits: l, name: policy.Name, keys: l.keysOf("limit", keyname.OfPolicy(policy)), seed: maphash.MakeSeed()}
	b.policy.Store(batch.NewPolicy(policy, nil))
	return b
}

// SetPolicy replaces the numbers of the limiter's policy in this process. The policy must have the
// limiter's name; an unnamed policy cannot change, because its numbers are the name of its buckets.
// Calls in progress use the old numbers.
func (b *Limiter) SetPolicy(policy limit.Policy) error {
	if err := batch.CheckChange(b.name, policy); err != nil {
		return fmt.Errorf("postgres: %w", err)
	}
	b.changes.Lock()
	defer b.changes.Unlock()
	b.policy.Store(batch.NewPolicy(policy, b.policy.Load()))
	return nil
}

// Describe returns the capacity and the refill of the limiter's policy.
func (b *Limiter) Describe() []limit.Description {
	return []limit.Description{b.policy.Load().Description(b.name)}
}

// Check returns an error if take is invalid.
func (b *Limiter) Check(take limit.Take) error { return take.Validate() }

// Take takes tokens from key's bucket. After tokens have returned, other processes may deny the key
// for up to a second more.
func (b *Limiter) Take(ctx context.Context, key limit.Key, take limit.Take) (limit.Decision, error) {
	return b.take(&key, &take, b.policy.Load(), func(call limitCall) (limitReply, error) {
		return b.limits.reply(ctx, call)
	})
}

// take executes a take by a policy, with what executes a call.
func (b *Limiter) take(key *limit.Key, take *limit.Take, p *batch.Policy, do func(limitCall) (limitReply, error)) (limit.Decision, error) {
	if err := take.Validate(); err != nil {
		return limit.Decision{}, fmt.Errorf("postgres: %w", err)
	}
	return p.Take(key.Hash(b.seed), take, b.limits.now, func(what batch.Take) (batch.Reply, error) {
		reply, err := do(b.keys.call(key, bucketArgs(p, take.Mode, what)))
		if err != nil {
			return batch.Reply{}, err
		}
		return batch.Reply{State: bucketState(&reply), Sent: reply.sent, Received: reply.received}, nil
	})
}

// RemembersDenial returns the denial of a Take if this process knows it without asking the server.
func (b *Limiter) RemembersDenial(key limit.Key, take limit.Take) (limit.Decision, bool) {
	return b.policy.Load().Remembered(key.Hash(b.seed), &take, b.limits.now())
}

// Reset fills key's bucket and ends a block. Other processes may deny the key for up to a second
// more.
func (b *Limiter) Reset(ctx context.Context, key limit.Key) error {
	return b.change(ctx, &key, limitArgs{limitBucket, opReset})
}

// Block denies key for d; after that its bucket is full.
func (b *Limiter) Block(ctx context.Context, key limit.Key, d time.Duration) error {
	if err := limit.CheckBlock(d); err != nil {
		return fmt.Errorf("postgres: %w", err)
	}
	return b.change(ctx, &key, limitArgs{0: limitBucket, 1: opBlock, 5: d.Microseconds()})
}

// change executes a call whose reply says nothing.
func (b *Limiter) change(ctx context.Context, key *limit.Key, args limitArgs) error {
	_, err := b.limits.do(ctx, b.keys.call(key, args))
	b.policy.Load().Invalidate(key.Hash(b.seed), b.limits.now())
	return err
}

// bucketArgs returns the arguments of limit_bucket.
func bucketArgs(p *batch.Policy, mode limit.Mode, what batch.Take) limitArgs {
	args := limitArgs{
		limitBucket, opTake, p.PerMicro(), p.PerToken(), p.Full() / p.PerToken(), what.Units, what.Lowest, what.Divisor, what.Since,
		what.Lease.ID, what.Lease.Length.Microseconds(), limit.MaxLeases, what.Lease.Excess,
	}
	switch {
	case what.Lease.IsMark():
		args[11] = limit.MaxMarks
	case mode == limit.Returning:
		args[1] = opRefund
	case mode == limit.Undoing:
		args[1] = opUndo
	case mode == limit.Settling && what.Lease.ID != 0:
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
