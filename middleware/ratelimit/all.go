package ratelimit

import (
	"github.com/penstock-go/penstock/internal/enforce"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/router"
)

// A Rule is one of the limits that [NewAll] combines.
type Rule struct {
	// Limiter decides. It must be able to undo a take, as all limiters of packages memory, redis and
	// durableobject are. Rules may have the same limiter.
	Limiter limit.Limiter

	// Key returns the key of the bucket that a message is charged to. If nil, it is
	// [KeyPerUserOrIPPerType].
	Key func(router.IngressContext) limit.Key

	// Cost returns the cost of a message in tokens, as [Options.Cost] does. If nil, every message
	// costs 1, and a resumed session 1 for each topic. The rule does not apply to a message that costs 0.
	Cost func(router.IngressContext) int64
}

// NewAll returns the ingress function that admits a message if every rule admits it, and
// otherwise takes tokens from none of them: for example, a limit per user and a limit per
// tenant. A rejection is that of the rule with the longest RetryAfter, so waiting for it is
// enough; its LimitExceeded and Observation have the name of that rule's policy.
//
// Rules decide together as [limit.ConsumeAll] does. Token buckets in memory, and all limiters on
// one Redis server or in one Durable Object, decide in one atomic step. On a Redis Cluster, where
// the buckets may be on different nodes, and with other limiters, they are called in the order of
// the rules, and what was taken is undone if one of them denies. Until then, other messages see
// those tokens missing; if the process dies in between, they return with time. No limit is ever
// exceeded. Timeout bounds all calls together.
//
// If two rules name the same bucket for a message, with the same limiter and key, it is charged
// the sum of their costs. On Redis, different limiters share buckets if their policies have the
// same name, or no name and the same numbers: give each policy a name. A message with
// [Options.ChargeOnly] that a rule denies is charged to none of them.
//
// The Key and the Cost of opts must be nil, because rules have their own. NewAll supports no
// MaxWait, Keep and Fallback: none of them can be decided for several buckets at once. NewAll
// panics if a rule or an option is invalid, or if different limiters on one Redis server share
// buckets.
func NewAll(rules []Rule, opts *Options) router.IngressFunc {
	return newRules(rules, opts).ingress
}

func newRules(rules []Rule, opts *Options) *rateLimit {
	own := make([]enforce.Rule[router.IngressContext], len(rules))
	for i, rule := range rules {
		own[i] = enforce.Rule[router.IngressContext](rule)
	}
	l := newOptions(opts)
	l.enforced = l.LimitAll(own)
	return l
}
