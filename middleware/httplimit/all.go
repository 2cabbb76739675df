package httplimit

import (
	"net/http"
	"net/netip"

	"github.com/penstock-go/penstock/internal/enforce"
	"github.com/penstock-go/penstock/limit"
)

// A Rule is one of the limits that [NewAll] combines.
type Rule struct {
	// Limiter decides. It must be able to undo a take, as all limiters of packages memory, redis and
	// durableobject are. Rules may have the same limiter.
	Limiter limit.Limiter

	// Key returns the key of the bucket that a request is charged to, as [Options.Key] does. If nil,
	// it is [KeyPerIP].
	Key func(*http.Request, netip.Addr) limit.Key

	// Cost returns the cost of a request in tokens, as [Options.Cost] does. If nil, every request
	// costs 1. The rule does not apply to a request that costs 0.
	Cost func(*http.Request) int64
}

// NewAll returns a middleware that calls the handler if every rule admits the request, and
// otherwise takes tokens from none of them: for example, a limit per address and a limit per user.
// A rejection is that of the rule with the longest RetryAfter, so waiting for it is enough.
//
// Rules decide together as [limit.ConsumeAll] does, which says which of them decide in one atomic
// step. If two rules name the same bucket for a request, with the same limiter and key, it is
// charged the sum of their costs. Give the policies different names: on Redis, limiters share
// buckets otherwise.
//
// The Key and the Cost of opts must be nil, because rules have their own; AccessKey is [KeyPerIP]
// if nil. NewAll supports no MaxWait, Keep and Fallback: none of them can be decided for several
// buckets at once. It panics if a rule or an option is invalid, or if different limiters on one
// Redis server share buckets.
//
// For limits of the same key, [New] with [limit.AllOf] is enough.
func NewAll(rules []Rule, opts *Options) func(http.Handler) http.Handler {
	h := newOptions(opts)
	own, limiters := make([]enforce.Rule[request], len(rules)), make([]limit.Limiter, len(rules))
	for i, rule := range rules {
		own[i] = enforce.Rule[request]{Limiter: rule.Limiter, Key: keyOf(rule.Key), Cost: ofRequest(rule.Cost)}
		limiters[i] = rule.Limiter
	}
	h.enforced = h.LimitAll(own)
	h.describe(limiters...)
	return h.wrap
}
