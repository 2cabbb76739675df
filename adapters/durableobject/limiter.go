package durableobject

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
// A Limiter is no [limit.Batcher], because the keys of one call may be in several objects:
// [limit.AllOf] and [limit.ConsumeAll] charge one bucket after the other, and undo that if one
// denies.
type Limiter struct {
	client *Client
	name   string // of the policy; may be empty
	prefix string
	policy atomic.Pointer[bucketPolicy]

	changes sync.Mutex // held by SetPolicy

	seed   maphash.Seed
	calls  *batch.Batcher[bucketRequest, batch.Reply]
	blocks *batch.Batcher[blockRequest, struct{}]
	now    func() time.Duration
}

// A bucketRequest is a call about one bucket.
type bucketRequest struct {
	policy *bucketPolicy
	key    string
	take   batch.Take
}

type bucketCall = batch.Call[bucketRequest, batch.Reply]

// NewLimiter returns a limiter. It panics if the policy is not valid or the client is nil. It does
// not connect to the Worker.
func NewLimiter(client *Client, policy limit.Policy) *Limiter {
	if client == nil {
		panic("durableobject: NewLimiter needs a client")
	}
	epoch := time.Now()
	l := &Limiter{
		client: client,
		name:   policy.Name,
		prefix: client.prefix + keyname.ASCII(keyname.OfPolicy(policy)),
		seed:   maphash.MakeSeed(),
		now:    func() time.Duration { return time.Since(epoch) },
	}
	l.policy.Store(newBucketPolicy(policy, nil))
	l.calls = batch.New("durableobject: limiter", l.exec, true)
	l.blocks = batch.New("durableobject: limiter", l.execBlocks, true)
	return l
}

// Take takes tokens from key's bucket. After tokens have returned, other processes may deny the key
// for up to a second more.
func (l *Limiter) Take(ctx context.Context, key limit.Key, take limit.Take) (limit.Decision, error) {
	p := l.policy.Load()
	if err := take.ValidateWithoutLease(); err != nil {
		return limit.Decision{}, fmt.Errorf("durableobject: %w", err)
	}
	return p.Take(key.Hash(l.seed), &take, l.now, func(what batch.Take) (batch.Reply, error) {
		c := &bucketCall{Request: bucketRequest{p, l.keyName(&key), what}}
		err := l.calls.Do(ctx, c)
		return c.Response, err
	})
}

// Check returns an error if the limiter cannot do a Take: one with a Lease.
func (l *Limiter) Check(take limit.Take) error { return take.ValidateWithoutLease() }

// RemembersDenial returns the denial of a Take if this process knows it without asking the Worker.
func (l *Limiter) RemembersDenial(key limit.Key, take limit.Take) (limit.Decision, bool) {
	return l.policy.Load().Remembered(key.Hash(l.seed), &take, l.now())
}

func (l *Limiter) keyName(key *limit.Key) string {
	return keyname.JoinASCII(l.prefix, keyname.Parts(key))
}

// exec sends calls in one request for each policy: there are several only after SetPolicy. It may
// reorder calls.
func (l *Limiter) exec(ctx context.Context, calls []*bucketCall) {
	for len(calls) > 0 {
		same := 0
		for i, c := range calls {
			if c.Request.policy == calls[0].Request.policy {
				calls[i], calls[same] = calls[same], c
				same++
			}
		}
		l.execPolicy(ctx, calls[0].Request.policy, calls[:same])
		calls = calls[same:]
	}
}

func (l *Limiter) execPolicy(ctx context.Context, p *bucketPolicy, calls []*bucketCall) {
	sent := l.now()
	states, err := l.client.limit(ctx, p, calls)
	received := l.now()
	for i, c := range calls {
		if c.Err = err; err == nil {
			c.Response, c.Err = batch.Reply{State: states[i].state, Sent: sent, Received: received}, states[i].err
		}
	}
}
