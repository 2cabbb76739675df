package durableobject

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-go/penstock/internal/batch"
	"github.com/penstock-go/penstock/internal/keyname"
	"github.com/penstock-go/penstock/limit"
)

// A Limiter is a [limit.Limiter] whose buckets are in Durable Objects, so that processes
// everywhere share them. Its decisions equal those of a limiter in memory, on the clock of the
// object.
//
// A decision takes one request to the Worker; concurrent calls share requests. A bucket that is
// known to hold too little is denied without a request, for at most a second; the RetryAfter of
// such a denial does not include what other processes have taken meanwhile. A request takes at
// most a second and is never repeated. After an error, it is unknown whether tokens were taken.
// Only a complete reply of the Worker is a decision: errors of Cloudflare, such as status 429, are
// errors.
//
// The clock of an object has whole milliseconds. RetryAfter and ResetAfter are rounded up to
// them: waiting exactly RetryAfter is always enough. A key is granted up to a millisecond's refill
// early.
//
// Limiters whose policies have the same name share buckets, in one process and in many. A bucket
// contains the numbers of the policy that last changed it, and a limiter with other numbers
// converts it. Therefore processes with different numbers, such as during a rolling deployment or
// after SetPolicy, grant a key in any interval at most the largest capacity plus what the largest
// refill returns in that interval. The numbers of a policy replace a missing name, so unnamed
// policies with different numbers have separate buckets.
//
// The buckets survive restarts, evictions and moves of their objects. An object whose storage is
// deleted grants each key up to one capacity more.
//
// [limit.AllOf] of limiters with one client, of any kinds, takes one request.
type Limiter struct {
	records
	policyName string // may be empty
	policy     atomic.Pointer[bucketPolicy]

	changes sync.Mutex // held by SetPolicy
}

// NewLimiter returns a limiter. It panics if the policy is not valid or the client is nil. It does
// not connect to the Worker.
func NewLimiter(client *Client, policy limit.Policy) *Limiter {
	l := &Limiter{records: newRecords(client, "bucket", keyname.OfPolicy(policy)), policyName: policy.Name}
	l.policy.Store(newBucketPolicy(policy, nil))
	return l
}

// Take takes tokens from key's bucket. After tokens have returned, other processes may deny the key
// for up to a second more.
func (l *Limiter) Take(ctx context.Context, key limit.Key, take limit.Take) (limit.Decision, error) {
	p := l.policy.Load()
	if err := take.Validate(); err != nil {
		return limit.Decision{}, fmt.Errorf("durableobject: %w", err)
	}
	return p.Take(key.Hash(l.seed), &take, l.client.now, func(what batch.Take) (batch.Reply, error) {
		does := l.takePart(p, &key, what)
		if take.Mode == limit.Settling && what.Lease.ID != 0 {
			does = l.settlePart(p, &key, what)
		}
		r, err := l.client.do(ctx, []part{does})
		if err != nil {
			return batch.Reply{}, err
		}
		state, err := p.state(r.parts[0], r.tick)
		return batch.Reply{State: state, Sent: r.sent, Received: r.received}, err
	})
}

// RemembersDenial returns the denial of a Take if this process knows it without asking the Worker.
func (l *Limiter) RemembersDenial(key limit.Key, take limit.Take) (limit.Decision, bool) {
	return l.policy.Load().Remembered(key.Hash(l.seed), &take, l.client.now())
}

func (l *Limiter) takePart(p *bucketPolicy, key *limit.Key, t batch.Take) part {
	numbers := []int64{p.PerMicro(), p.PerToken(), p.capacity, t.Units, t.Lowest, t.Divisor, t.Since}
	if t.Lease.Length > 0 {
		numbers = append(numbers, t.Lease.ID, t.Lease.Length.Microseconds())
	}
	return l.newPart(key, "take", numbers...)
}

func (l *Limiter) settlePart(p *bucketPolicy, key *limit.Key, t batch.Take) part {
	numbers := []int64{p.PerMicro(), p.PerToken(), p.capacity, t.Units}
	return l.newPart(key, batch.Settle, append(numbers, settlementNumbers(t.Lease)...)...)
}

// settlementNumbers returns the last numbers of a part that settles a lease.
func settlementNumbers(l batch.Lease) []int64 {
	returns := int64(0)
	if l.Returns {
		returns = 1
	}
	return []int64{l.ID, l.Excess, returns}
}

// Reset fills key's bucket and ends a block. Other processes may deny the key for up to a second
// more.
func (l *Limiter) Reset(ctx context.Context, key limit.Key) error {
	err := l.reset(ctx, &key)
	l.invalidate(&key)
	return err
}

// Block denies key for d; after that its bucket is full.
func (l *Limiter) Block(ctx context.Context, key limit.Key, d time.Duration) error {
	err := l.block(ctx, &key, d)
	l.invalidate(&key)
	return err
}

// invalidate makes the next call for key ask the Worker.
func (l *Limiter) invalidate(key *limit.Key) {
	l.policy.Load().Invalidate(key.Hash(l.seed), l.client.now())
}
