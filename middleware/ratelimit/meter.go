package ratelimit

import (
	"fmt"

	"github.com/penstock-go/penstock/internal/enforce"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/router"
)

// Exceeded returns the error with which a handler rejects a message that a limiter or a [limit.Meter]
// has denied. The client receives it like the rejection of a limit: RESOURCE_EXHAUSTED with
// retryAfterMs, or FAILED_PRECONDITION if waiting cannot help, and the name of the policy that is
// exhausted; the router reports it to OnLimitExceeded. It is nil if the Decision is allowed. The cost is
// what was asked for, such as the estimate of a meter.
//
//	d, err := meter.Reserve(ctx, estimate, key)
//	if err != nil {
//		return err
//	}
//	if err := ratelimit.Exceeded(d, estimate); err != nil {
//		return err
//	}
func Exceeded(d limit.Decision, cost int64) error {
	if d.Allowed {
		return nil
	}
	return &router.LimitExceeded{
		Kind: router.LimitRate, Observed: cost, Limit: d.Limit, Policy: d.Policy,
		Reason: d.Reason.String(), RetryAfter: d.RetryAfter,
	}
}

// AnnounceMeter is [Announce] for a meter that the handlers of messages use, with the functions of its
// keys: one for all limiters, or one for each in their order. The cost is announced as unknown. As
// with Announce, only token buckets whose policies have names are announced; a rejection names the
// policy of any limiter.
func AnnounceMeter(meter *limit.Meter, keys ...func(router.IngressContext) limit.Key) func(router.IngressContext) []router.AnnouncedLimit {
	limiters := meter.Limiters()
	if len(keys) != 1 && len(keys) != len(limiters) {
		panic(fmt.Sprintf("ratelimit: AnnounceMeter got %d keys for a meter with %d limiters; it needs one for all or one for each", len(keys), len(limiters)))
	}
	rules := make([]enforce.Rule[router.IngressContext], len(limiters))
	for i, l := range limiters {
		rules[i] = enforce.Rule[router.IngressContext]{Limiter: l, Key: keys[min(i, len(keys)-1)], Cost: defaultCost}
	}
	l := &rateLimit{}
	return func(in router.IngressContext) []router.AnnouncedLimit {
		all := l.announce(rules, in)
		for i := range all {
			all[i].Cost = -1
		}
		return all
	}
}
