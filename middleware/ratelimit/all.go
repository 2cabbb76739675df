package ratelimit

import (
	"fmt"
	"math"
	"reflect"

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
// Rules decide together as [limit.ConsumeAll] does. Token buckets in memory, and all limiters on one Redis
// server, decide in one atomic step. On a Redis Cluster, where the buckets may be on different
// nodes, and with other limiters, they are called in the order of the rules, and what was taken is undone
// if one of them denies. Until then, other messages see those tokens missing; if the process dies in
// between, they return with time. No limit is ever exceeded. Timeout bounds all calls together.
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

// newRules returns the limit of NewAll.
func newRules(rules []Rule, opts *Options) *rateLimit {
	l := &rateLimit{}
	if opts != nil {
		l.Options = *opts
	}
	l.mustSuitRules()
	l.mustBeValid(nil)
	if l.Timeout == 0 {
		l.Timeout = defaultTimeout
	}
	if l.AccessKey == nil {
		l.AccessKey = KeyPerUser
	}
	l.rules, l.policy = mustRules(rules), l.Name
	limiters := make([]limit.Limiter, len(rules))
	for i, rule := range rules {
		limiters[i] = rule.Limiter
	}
	l.limiter = &guarded{breaker: newBreaker(l.Timeout, l.breakerChanged, limiters...)}
	return l
}

// mustSuitRules panics if an option is set that NewAll does not support.
func (o *Options) mustSuitRules() {
	switch {
	case o.Key != nil:
		panic("ratelimit: NewAll does not use Options.Key; set Rule.Key")
	case o.Cost != nil:
		panic("ratelimit: NewAll does not use Options.Cost; set Rule.Cost")
	case o.MaxWait != 0:
		panic("ratelimit: NewAll does not support MaxWait; use New with limit.AllOf if the rules have the same key")
	case o.Keep != nil:
		panic("ratelimit: NewAll does not support Keep; use New")
	case o.Fallback != nil:
		panic("ratelimit: NewAll does not support Fallback; set FailurePolicy")
	}
}

// mustRules returns a copy of the rules with their defaults. It panics if a rule is invalid.
func mustRules(rules []Rule) []Rule {
	if len(rules) == 0 {
		panic("ratelimit: NewAll needs a rule")
	}
	all := make([]Rule, len(rules))
	for i, rule := range rules {
		if rule.Limiter == nil {
			panic(fmt.Sprintf("ratelimit: rule %d needs a limiter", i))
		}
		if err := limit.Check(rule.Limiter, limit.Take{Mode: limit.Undoing}); err != nil {
			panic(fmt.Sprintf("ratelimit: the limiter of rule %d is a %T, which cannot undo a take: %v", i, rule.Limiter, err))
		}
		if !reflect.TypeOf(rule.Limiter).Comparable() {
			panic(fmt.Sprintf("ratelimit: the limiter of rule %d is a %T, which cannot be compared; pass a pointer", i, rule.Limiter))
		}
		if rule.Key == nil {
			rule.Key = KeyPerUserOrIPPerType
		}
		for j, other := range rules[:i] {
			if shareBuckets(rule.Limiter, other.Limiter) {
				panic(fmt.Sprintf("ratelimit: the limiters of rules %d and %d share buckets; pass one limiter for both, or give their policies different names", j, i))
			}
		}
		all[i] = rule
	}
	return all
}

// shareBuckets reports whether different limiters in one store have buckets of the same names. They
// cannot charge one of them twice in one step. Limiters in this process have buckets of their own.
func shareBuckets(a, b limit.Limiter) bool {
	_, inProcess := a.(limit.InProcess)
	batcher, ok := a.(limit.Batcher)
	if a == b || inProcess || !ok || !batcher.BatchesWith(b) || reflect.TypeOf(a) != reflect.TypeOf(b) {
		return false
	}
	one, ok := a.(limit.Describer)
	two, both := b.(limit.Describer)
	if !ok || !both {
		return false
	}
	x, y := one.Describe()[0], two.Describe()[0]
	return x == y || x.Name != "" && x.Name == y.Name
}

// jointRequest returns the costs of a message by the rules that apply to it.
func jointRequest(rules []Rule, in *router.IngressContext) (q request, err error) {
	q.joint = make([]limit.Request, 0, len(rules))
	for _, rule := range rules {
		cost := defaultCost(in)
		if rule.Cost != nil {
			cost = rule.Cost(*in)
		}
		switch {
		case cost < 0:
			return q, invalidCost("Cost", cost, in.Type)
		case cost > 0:
			q.add(limit.Request{Limiter: rule.Limiter, Key: rule.Key(*in), Cost: cost})
		}
	}
	return q, nil
}

// add adds a cost to the request for its bucket. A sum that does not fit is above every capacity.
func (q *request) add(r limit.Request) {
	q.take.Cost = sum(q.take.Cost, r.Cost)
	for i := range q.joint {
		if other := &q.joint[i]; other.Limiter == r.Limiter && other.Key == r.Key {
			other.Cost = sum(other.Cost, r.Cost)
			return
		}
	}
	q.joint = append(q.joint, r)
}

func sum(a, b int64) int64 { return a + min(b, math.MaxInt64-a) }

// costOf returns the cost that d decided about: of several requests, the largest one that has
// the policy and the limit of d, or the sum if the policy has changed meanwhile.
func (q *request) costOf(d *limit.Decision) int64 {
	if q.joint == nil {
		return q.take.Cost
	}
	var cost int64
	for _, r := range q.joint {
		if decidesBy(r.Limiter, d) {
			cost = max(cost, r.Cost)
		}
	}
	if cost == 0 {
		return q.take.Cost
	}
	return cost
}

// decidesBy reports whether d can be a decision of l.
func decidesBy(l limit.Limiter, d *limit.Decision) bool {
	describer, ok := l.(limit.Describer)
	if !ok {
		return d.Policy == ""
	}
	for _, description := range describer.Describe() {
		if description.Name == d.Policy && description.Limit == d.Limit {
			return true
		}
	}
	return false
}
