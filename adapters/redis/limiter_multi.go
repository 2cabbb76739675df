package redis

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/penstock-go/penstock/internal/keyname"
	"github.com/penstock-go/penstock/limit"
)

var _ limit.BatchLimiter = (*Limiter)(nil)

// BatchesWith reports whether other has the same client. On a Cluster it returns false, because
// the buckets may be on different nodes.
func (l *Limiter) BatchesWith(other limit.Limiter) bool {
	o, ok := other.(*Limiter)
	return ok && l.oneNode && o.client == l.client
}

// A bucketCost is a request of a ConsumeBatch.
type bucketCost struct {
	limiter *Limiter
	policy  *bucketPolicy
	key     *limit.Key
	hash    uint64
	units   int64
	ahead   int64 // the largest deficit of the bucket after the call
}

// ConsumeBatch takes the cost of every request, or of none, in one round trip.
//
// If buckets are known to hold too little, it returns their denials without a round trip, for at
// most a second; the decisions about the other requests are then allowed, with no number but
// Limit.
func (l *Limiter) ConsumeBatch(ctx context.Context, requests []limit.Request, maxWait time.Duration) ([]limit.Decision, error) {
	costs := make([]bucketCost, len(requests))
	for i := range requests {
		r := &requests[i]
		if r.Cost < 0 {
			return nil, fmt.Errorf("redis: cost is %d; it must not be negative", r.Cost)
		}
		rl := r.Limiter.(*Limiter)
		p := rl.policy.Load()
		costs[i] = bucketCost{rl, p, &r.Key, r.Key.Hash(rl.seed), p.units.CostUnits(r.Cost), p.ahead(maxWait)}
	}
	if decisions, ok := cachedDenials(costs, maxWait); ok {
		return decisions, nil
	}
	sent := l.now()
	held, err := l.callBatch(ctx, costs)
	if err != nil {
		return nil, err
	}
	received := l.now()
	decisions, allowed := make([]limit.Decision, len(costs)), true
	for i, c := range costs {
		decisions[i] = bucketState(held[i]).ReserveDecision(c.units, maxWait, &c.policy.units)
		allowed = allowed && decisions[i].Allowed
	}
	for i, c := range costs {
		state := bucketState(held[i])
		if allowed {
			state.Units -= c.units
		}
		// The limiters have clocks of their own, with the same rate.
		offset := c.limiter.now() - received
		c.policy.denials.Learn(c.hash, state, c.units, sent+offset, received+offset)
	}
	return decisions, nil
}

// cachedDenials returns false if no bucket is known to deny.
func cachedDenials(costs []bucketCost, maxWait time.Duration) ([]limit.Decision, bool) {
	var decisions []limit.Decision
	for i := range costs {
		c := &costs[i]
		state, ok := c.policy.denials.Denies(c.hash, c.limiter.now(), c.units, c.ahead, &c.policy.units)
		if !ok {
			if c.units > c.policy.units.Full() {
				return nil, false // this denial is the most restrictive one
			}
			continue
		}
		if decisions == nil {
			decisions = make([]limit.Decision, len(costs))
			for i, c := range costs {
				decisions[i] = limit.Decision{Allowed: true, Limit: c.policy.units.Full() / c.policy.units.PerToken()}
			}
		}
		decisions[i] = state.ReserveDecision(c.units, maxWait, &c.policy.units)
	}
	return decisions, decisions != nil
}

// callBatch returns what the buckets held.
func (l *Limiter) callBatch(ctx context.Context, costs []bucketCost) ([]int64, error) {
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
		args = append(args, c.policy.scriptUnits(c.units), c.ahead)
	}
	if l.time != nil {
		args = append(args, l.time()...)
	}
	c := &scriptCall{Request: args}
	if err := l.batches.Do(ctx, c); err != nil {
		return nil, err
	}
	if len(c.Response) != len(costs) {
		return nil, fmt.Errorf("redis: limiter: the script answered %d of %d requests", len(c.Response), len(costs))
	}
	return c.Response, nil
}
