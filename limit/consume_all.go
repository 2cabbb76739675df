package limit

import (
	"context"
	"fmt"
	"time"
)

// A Request is a cost that a limiter charges to a key.
type Request struct {
	Limiter Limiter // a [Refunder]
	Key     Key
	Cost    int64 // in tokens, not negative
}

// ConsumeAll takes the cost of every request, or of none: for example, from a limit per user
// and a limit per room. The Decision is the one that [AllOf] would return.
//
// Requests to token buckets in memory, and requests to those on one Redis server, are decided in
// one atomic step. On a Redis Cluster, where the buckets may be on different nodes, and with
// other limiters, they are decided in the given order, and tokens are refunded if
// a request is denied; until then, other calls see those tokens missing, and they stay missing
// if the process dies in between. Neither case grants more than any limit allows.
//
// An error means that nothing was decided; it is unknown whether tokens were taken. It is an
// error if there is no request, if two requests have the same limiter and key, or if a limiter is
// not a [Refunder].
func ConsumeAll(ctx context.Context, requests ...Request) (Decision, error) {
	if err := checkRequests(requests); err != nil {
		return Decision{}, err
	}
	limiters := make([]Limiter, len(requests))
	for i, r := range requests {
		limiters[i] = r.Limiter
	}
	if b := batcherOf(limiters); b != nil {
		return consumeBatch(ctx, b, requests, 0)
	}
	return consumeEach(ctx, requests, 0)
}

func checkRequests(requests []Request) error {
	if len(requests) == 0 {
		return fmt.Errorf("limit: ConsumeAll needs a request")
	}
	for i, r := range requests {
		if _, ok := r.Limiter.(Refunder); !ok {
			return fmt.Errorf("limit: ConsumeAll needs limiters that implement Refunder; %T does not", r.Limiter)
		}
		if r.Cost < 0 {
			return fmt.Errorf("limit: cost is %d; it must not be negative", r.Cost)
		}
		for _, other := range requests[:i] {
			if other.Limiter == r.Limiter && other.Key == r.Key {
				return fmt.Errorf("limit: two requests have the same limiter and the key %q; add their costs", r.Key)
			}
		}
	}
	return nil
}

// batcherOf returns a limiter that can decide for all, or nil.
func batcherOf(limiters []Limiter) BatchLimiter {
	first, ok := limiters[0].(BatchLimiter)
	if !ok {
		return nil
	}
	for _, l := range limiters[1:] {
		if !first.BatchesWith(l) {
			return nil
		}
	}
	return first
}

func consumeBatch(ctx context.Context, b BatchLimiter, requests []Request, maxWait time.Duration) (Decision, error) {
	decisions, err := b.ConsumeBatch(ctx, requests, maxWait)
	if err != nil {
		return Decision{}, err
	}
	return mostRestrictive(requests, decisions), nil
}

// consumeEach calls the limiters one after the other. If one of them denies or fails, it
// refunds the others.
func consumeEach(ctx context.Context, requests []Request, maxWait time.Duration) (Decision, error) {
	decisions := make([]Decision, 0, len(requests))
	for _, r := range requests {
		d, err := consumeWithin(ctx, r, maxWait)
		if err != nil {
			refundAll(ctx, requests, decisions)
			return Decision{}, err
		}
		decisions = append(decisions, d)
	}
	decision := mostRestrictive(requests, decisions)
	if !decision.Allowed {
		refundAll(ctx, requests, decisions)
	}
	return decision, nil
}

func consumeWithin(ctx context.Context, r Request, maxWait time.Duration) (Decision, error) {
	if maxWait == 0 {
		return r.Limiter.Consume(ctx, r.Key, r.Cost)
	}
	return r.Limiter.(Reserver).Reserve(ctx, r.Key, r.Cost, maxWait)
}

// refundTimeout bounds how long a denied call waits for its refunds. A lost refund costs others tokens; the wait
// costs only the caller that is denied.
const refundTimeout = time.Second

// refundAll returns the tokens of the allowed decisions, even if the caller's context is done.
// Tokens that a store fails to take back return with time.
func refundAll(ctx context.Context, requests []Request, decisions []Decision) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), refundTimeout)
	defer cancel()
	for i, d := range decisions {
		if r := requests[i]; d.Allowed && r.Cost > 0 {
			_ = r.Limiter.(Refunder).Refund(ctx, r.Key, r.Cost)
		}
	}
}

// mostRestrictive returns the Decision that represents all of them, with the name of its policy:
// the denial with the longest RetryAfter; without a denial the admission with the longest wait,
// and among those the one with the fewest tokens left.
func mostRestrictive(requests []Request, decisions []Decision) Decision {
	most := 0
	for i, d := range decisions[1:] {
		if moreRestrictive(&d, &decisions[most]) {
			most = i + 1
		}
	}
	d := decisions[most]
	if l, ok := requests[most].Limiter.(Describer); ok && d.Policy == "" {
		if descriptions := l.Describe(); len(descriptions) > 0 {
			d.Policy = descriptions[0].Name
		}
	}
	return d
}

// moreRestrictive reports whether a is more restrictive than b.
func moreRestrictive(a, b *Decision) bool {
	switch {
	case a.Allowed != b.Allowed:
		return b.Allowed
	case a.RetryAfter != b.RetryAfter:
		return a.RetryAfter > b.RetryAfter
	default:
		return a.Allowed && a.Remaining < b.Remaining
	}
}
