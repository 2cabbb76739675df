package replay

import (
	"slices"
	"time"

	"github.com/penstock-go/penstock/limit"
)

// A policy is a policy with its buckets.
type policy struct {
	limit.Policy

	units         limit.Units
	buckets       []bucket // by key
	admitted      int64
	rejected      int64
	neverAdmitted int64
	worst         time.Duration
}

type bucket struct {
	fullAt   int64 // when the bucket is full again, in units since the epoch
	rejected int64
}

// take decides a request. Its time must not be before that of the bucket's previous request.
func (p *policy) take(key int, micros, cost int64) bool {
	b := &p.buckets[key]
	now, need := micros*p.units.PerMicro(), p.units.CostUnits(cost)
	debt := max(b.fullAt-now, 0)
	d := p.units.Decision(p.units.Full()-debt, need)
	if d.Allowed {
		p.admitted++
		b.fullAt = now + debt + need
		return true
	}
	p.rejected++
	b.rejected++
	if d.RetryAfter == limit.Never {
		p.neverAdmitted++
	} else {
		p.worst = max(p.worst, d.RetryAfter)
	}
	return false
}

// A Result is the outcome of a policy.
type Result struct {
	Policy        limit.Policy
	Admitted      int64         // requests
	Rejected      int64         // requests
	NeverAdmitted int64         // rejected requests whose cost exceeds the capacity
	KeysRejected  int64         // keys with at least one rejection
	WorstWait     time.Duration // the longest RetryAfter of the other rejected requests
	PerKey        Percentiles   // rejections per key
}

// Percentiles over all keys, by the nearest-rank method: 99 % of the keys have P99 or fewer.
type Percentiles struct {
	P50, P90, P99, Max int64
}

// Results returns the outcome of each policy, in the order of Options.Policies.
func (r *Replay) Results() []Result {
	results := make([]Result, len(r.policies))
	for i, p := range r.policies {
		results[i] = p.result()
	}
	return results
}

func (p *policy) result() Result {
	rejected := make([]int64, len(p.buckets))
	keys := int64(0)
	for i := range p.buckets {
		rejected[i] = p.buckets[i].rejected
		if rejected[i] > 0 {
			keys++
		}
	}
	return Result{
		Policy: p.Policy, Admitted: p.admitted, Rejected: p.rejected, NeverAdmitted: p.neverAdmitted,
		KeysRejected: keys, WorstWait: p.worst, PerKey: percentiles(rejected),
	}
}

// percentiles sorts the counts.
func percentiles(counts []int64) Percentiles {
	if len(counts) == 0 {
		return Percentiles{}
	}
	slices.Sort(counts)
	at := func(percent int) int64 { return counts[(len(counts)*percent+99)/100-1] }
	return Percentiles{P50: at(50), P90: at(90), P99: at(99), Max: at(100)}
}
