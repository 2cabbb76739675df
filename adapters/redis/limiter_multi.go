package redis

import (
	"context"
	"fmt"
	"slices"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/penstock-go/penstock/internal/batch"
	"github.com/penstock-go/penstock/internal/keyname"
	"github.com/penstock-go/penstock/limit"
)

var (
	_ limit.Batcher    = (*Limiter)(nil)
	_ limit.Rememberer = (*Limiter)(nil)
)

// BatchesWith reports whether other is a limiter of this package with the same client. On a Cluster it
// returns false, because the keys may be on different nodes.
func (l *Limiter) BatchesWith(other limit.Limiter) bool { return batchesWith(l, other) }

// BucketPrefix returns how the names of all buckets begin in the store: limiters with an equal one share them.
func (l *Limiter) BucketPrefix() string { return l.prefix }

func (l *Limiter) server() (goredis.UniversalClient, bool) { return l.client, l.oneNode }

func (l *Limiter) part(key *limit.Key, take limit.Take) (jointPart, error) {
	if err := take.Validate(); err != nil {
		return nil, fmt.Errorf("redis: %w", err)
	}
	p := l.policy.Load()
	return &bucketPart{p.Part(key.Hash(l.seed), take), l, p, key}, nil
}

// A bucketCost is a request of a TakeBatch.
type bucketCost struct {
	limiter *Limiter
	policy  *bucketPolicy
	key     *limit.Key
	hash    uint64
	take    limit.Take
}

// TakeBatch takes the cost of every request, or of none, in one round trip. The limiters may be of all
// kinds of this package; for buckets alone, without Lease and Receipt, there is a shorter script.
//
// If buckets are known to hold too little, it returns their denials without a round trip, for at
// most a second; the decisions about the other requests are then allowed, with no number but
// Limit.
func (l *Limiter) TakeBatch(ctx context.Context, requests []limit.Request, take limit.Take) ([]limit.Decision, error) {
	costs := make([]bucketCost, len(requests))
	for i := range requests {
		r := &requests[i]
		rl, ok := r.Limiter.(*Limiter)
		if !ok || take.Lease > 0 || take.Receipt {
			return takeJointly(ctx, l.joints, requests, take)
		}
		c := bucketCost{rl, rl.policy.Load(), &r.Key, r.Key.Hash(rl.seed), take}
		c.take.Cost = r.Cost
		if err := c.take.Validate(); err != nil {
			return nil, fmt.Errorf("redis: %w", err)
		}
		costs[i] = c
	}
	if decisions := limit.RememberedDenials(requests, take.MaxWait); decisions != nil {
		return decisions, nil
	}
	sent := l.now()
	states, err := l.callBatch(ctx, costs)
	if err != nil {
		return nil, err
	}
	received := l.now()
	decisions, allowed := make([]limit.Decision, len(costs)), true
	for i, c := range costs {
		decisions[i] = c.policy.Decide(&c.take, states[i])
		allowed = allowed && decisions[i].Allowed
	}
	for i, c := range costs {
		if allowed {
			states[i].Units -= c.policy.CostUnits(c.take.Cost)
		}
		// The limiters have clocks of their own, with the same rate.
		offset := c.limiter.now() - received
		c.policy.Learn(c.hash, states[i], c.take.Cost, sent+offset, received+offset)
	}
	return decisions, nil
}

// callBatch returns the states of the buckets before.
func (l *Limiter) callBatch(ctx context.Context, costs []bucketCost) ([]batch.State, error) {
	args := make([]any, 0, 2+6*len(costs))
	args = append(args, len(costs))
	for _, c := range costs {
		name := keyname.Join(c.limiter.prefix, keyname.Parts(c.key))
		if slices.Contains(args, any(name)) { // the script would charge the bucket once
			return nil, fmt.Errorf("redis: two requests charge the bucket %q; give the policies of the limiters different names", name)
		}
		args = append(args, name)
	}
	for _, c := range costs {
		args = append(args, c.policy.args[:]...)
		args = append(args, c.policy.scriptUnits(c.policy.CostUnits(c.take.Cost)), c.policy.Ahead(c.take.MaxWait))
	}
	if l.time != nil {
		args = append(args, l.time()...)
	}
	c := &scriptCall{Request: args}
	if err := l.batches.Do(ctx, c); err != nil {
		return nil, err
	}
	if len(c.Response) != 1+2*len(costs) {
		return nil, fmt.Errorf("redis: limiter: the script answered %d of %d requests", len(c.Response)/2, len(costs))
	}
	states := make([]batch.State, len(costs))
	for i := range states {
		states[i] = bucketState(c.Response[1+2*i])
		states[i].At = c.Response[0]
		states[i].LeaseEnds = time.Duration(c.Response[2+2*i]) * time.Microsecond
	}
	return states, nil
}
