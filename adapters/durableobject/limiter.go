package durableobject

import (
	"context"
	"fmt"
	"hash/maphash"
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
// A Limiter is no [limit.BatchLimiter], because the keys of one call may be in several objects:
// [limit.AllOf] and [limit.ConsumeAll] charge one bucket after the other, and refund if one
// denies.
type Limiter struct {
	client *Client
	name   string // of the policy; may be empty
	prefix string
	policy atomic.Pointer[bucketPolicy]
	seed   maphash.Seed
	calls  *batch.Batcher[bucketRequest, bucketResponse]
	blocks *batch.Batcher[blockRequest, struct{}]
	now    func() time.Duration
}

// A bucketRequest takes units from a bucket, or returns them if they are negative.
type bucketRequest struct {
	policy *bucketPolicy
	key    string
	take   batch.Take
}

// A bucketResponse is the state of a bucket before a request.
type bucketResponse struct {
	state          batch.State
	sent, received time.Duration // times of the round trip on the limiter's clock
}

type bucketCall = batch.Call[bucketRequest, bucketResponse]

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
	l.policy.Store(newBucketPolicy(policy))
	l.calls = batch.New("durableobject: limiter", l.exec, true)
	l.blocks = batch.New("durableobject: limiter", l.execBlocks, true)
	return l
}

// Consume takes cost tokens from key's bucket, or none of them.
func (l *Limiter) Consume(ctx context.Context, key limit.Key, cost int64) (limit.Decision, error) {
	if cost < 0 {
		return limit.Decision{}, fmt.Errorf("durableobject: cost is %d; it must not be negative", cost)
	}
	p, hash := l.policy.Load(), key.Hash(l.seed)
	costUnits := p.units.CostUnits(cost)
	if d, ok := p.denials.Decide(hash, l.now(), costUnits, &p.units); ok {
		return d, nil
	}
	state, err := l.take(ctx, p, &key, hash, batch.TakeAll(costUnits, 0, &p.units), costUnits)
	if err != nil {
		return limit.Decision{}, err
	}
	return state.Decision(costUnits, &p.units), nil
}

// take returns the state of key's bucket before the call. It remembers a state after which a call
// of needUnits would be denied.
func (l *Limiter) take(ctx context.Context, p *bucketPolicy, key *limit.Key, hash uint64, take batch.Take, needUnits int64) (batch.State, error) {
	c := &bucketCall{Request: bucketRequest{p, l.keyName(key), take}}
	if err := l.calls.Do(ctx, c); err != nil {
		return batch.State{}, err
	}
	after := c.Response.state
	after.Units -= take.Taken(after)
	p.denials.Learn(hash, after, needUnits, c.Response.sent, c.Response.received)
	return c.Response.state, nil
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
			c.Response, c.Err = bucketResponse{states[i].state, sent, received}, states[i].err
		}
	}
}
