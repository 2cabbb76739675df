package enforce

import (
	"context"
	"math"

	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/adapter"
	"github.com/penstock-go/penstock/limit/mode"
)

// A Request describes the tokens that a message or an HTTP request takes. Take has its Cost, which
// must be positive, and its Keep and Receipt; the Limit sets MaxWait.
type Request struct {
	Key  limit.Key
	Take limit.Take

	// ChargeOnly requests are charged and never rejected.
	ChargeOnly bool

	// Joint are the takes of several rules, instead of the Key; Take.Cost is then their sum. See
	// [Request.Add].
	Joint []limit.Request

	// DeniedCost is, after a denial, the cost that the bucket does not hold, and DeniedBy the name of
	// the policy that denied it, or without one that of the limit.
	DeniedCost int64
	DeniedBy   string

	// Failure is, after a decision, why the limiter could not decide: the fallback or the failure policy has.
	Failure error

	fellBack bool // Options.Fallback has decided
}

// Add adds the take of a rule to the request for its bucket. A sum that does not fit is above every
// capacity.
func (q *Request) Add(r limit.Request) {
	q.Take.Cost = sum(q.Take.Cost, r.Cost)
	for i := range q.Joint {
		if other := &q.Joint[i]; other.Limiter == r.Limiter && other.Key == r.Key {
			other.Cost = sum(other.Cost, r.Cost)
			return
		}
	}
	q.Joint = append(q.Joint, r)
}

func sum(a, b int64) int64 { return a + min(b, math.MaxInt64-a) }

// chargeTo takes what the bucket holds of the cost, in one call: a flood must not cost the store two for
// each request. The Decision is Allowed if that is all of it. A limiter that cannot take a part takes all
// or nothing.
func (q *Request) chargeTo(ctx context.Context, l limit.Limiter) (limit.Decision, error) {
	part := q.Take
	part.Mode = mode.Partial
	if adapter.Check(l, part) != nil {
		return l.Take(ctx, q.Key, q.Take)
	}
	d, err := l.Take(ctx, q.Key, part)
	d.Allowed = d.Granted == part.Cost
	return d, err
}

// costOf returns the cost that d decided about: of several takes, the largest one that has
// the policy and the limit of d, or the sum if the policy has changed meanwhile.
func (q *Request) costOf(d *limit.Decision) int64 {
	if q.Joint == nil {
		return q.Take.Cost
	}
	var cost int64
	for _, r := range q.Joint {
		if decidesBy(r.Limiter, d) {
			cost = max(cost, r.Cost)
		}
	}
	if cost == 0 {
		return q.Take.Cost
	}
	return cost
}

// decidesBy reports whether d can be a decision of l.
func decidesBy(l limit.Limiter, d *limit.Decision) bool {
	describer, ok := l.(adapter.Describer)
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
