package redis

import (
	"context"
	"fmt"
	"time"

	"github.com/penstock-go/penstock/limit"
)

var _ limit.BatchLimiter = (*Limiter)(nil)

// BatchesWith reports whether other has the same client. On a Cluster it returns false, because
// the buckets may be on different nodes.
func (l *Limiter) BatchesWith(other limit.Limiter) bool {
	o, ok := other.(*Limiter)
	return ok && l.oneNode && o.client == l.client
}

// ConsumeBatch takes the cost of every request, or of none, in one round trip.
func (l *Limiter) ConsumeBatch(ctx context.Context, requests []limit.Request, maxWait time.Duration) ([]limit.Decision, error) {
	held, err := l.callBatch(ctx, requests, maxWait)
	if err != nil {
		return nil, err
	}
	decisions, allowed := make([]limit.Decision, len(requests)), true
	for i, r := range requests {
		rl := r.Limiter.(*Limiter)
		state, costUnits := bucketState(held[i]), rl.units.CostUnits(r.Cost)
		if decisions[i] = state.Decision(costUnits, &rl.units); state.BlockedFor == 0 {
			decisions[i] = rl.units.ReserveDecision(state.Units, costUnits, maxWait)
		}
		allowed = allowed && decisions[i].Allowed
	}
	if allowed {
		for _, r := range requests {
			rl := r.Limiter.(*Limiter)
			rl.denials.Delete(r.Key.Hash(rl.seed))
		}
	}
	return decisions, nil
}

// callBatch returns what the buckets held.
func (l *Limiter) callBatch(ctx context.Context, requests []limit.Request, maxWait time.Duration) ([]int64, error) {
	args := make([]any, 0, 2+5*len(requests))
	args = append(args, len(requests))
	for i := range requests {
		args = append(args, keyName(requests[i].Limiter.(*Limiter).prefix, keyParts(&requests[i].Key)))
	}
	for _, r := range requests {
		if r.Cost < 0 {
			return nil, fmt.Errorf("redis: cost is %d; it must not be negative", r.Cost)
		}
		rl := r.Limiter.(*Limiter)
		args = append(args, rl.policy[0], rl.policy[1], rl.scriptUnits(rl.units.CostUnits(r.Cost)),
			maxWait.Microseconds()*rl.units.PerMicro())
	}
	if l.time != nil {
		args = append(args, l.time()...)
	}
	c := &scriptCall{Request: args}
	if err := l.batches.Do(ctx, c); err != nil {
		return nil, err
	}
	if len(c.Response) != len(requests) {
		return nil, fmt.Errorf("redis: limiter: the script answered %d of %d requests", len(c.Response), len(requests))
	}
	return c.Response, nil
}
