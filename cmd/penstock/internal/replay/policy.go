package replay

import (
	"slices"
	"time"

	"github.com/penstock-go/penstock/middleware/ratelimit"
)

// A policy is a policy and its buckets.
type policy struct {
	ratelimit.Policy

	units    ratelimit.Units
	buckets  []bucket // by key
	admitted int64
	refused  int64
	never    int64
	worst    time.Duration
}

type bucket struct {
	fullAt  int64 // when it is full again, in units since the epoch
	refused int64
}

// take decides about a cost at a time that is not before the bucket's last one.
func (p *policy) take(key int, micros, cost int64) bool {
	b := &p.buckets[key]
	now, need := micros*p.units.PerMicro(), p.units.Need(cost)
	debt := max(b.fullAt-now, 0)
	d := p.units.Decide(p.units.Full()-debt, need)
	if d.Allowed {
		p.admitted++
		b.fullAt = now + debt + need
		return true
	}
	p.refused++
	b.refused++
	if d.RetryAfter == ratelimit.Never {
		p.never++
	} else {
		p.worst = max(p.worst, d.RetryAfter)
	}
	return false
}

// A Result is what a policy did.
type Result struct {
	Policy      ratelimit.Policy
	Admitted    int64         // calls
	Refused     int64         // calls
	Never       int64         // those of the refused whose cost is above the capacity
	KeysRefused int64         // keys that were refused at least once
	WorstWait   time.Duration // the longest that a refused call was told, [ratelimit.Never] aside
	PerKey      Percentiles   // of refusals
}

// Percentiles are by nearest rank, over all keys: 99 % of them have P99 or fewer.
type Percentiles struct {
	P50, P90, P99, Max int64
}

// Results tells what the policies did, in the order of the Options.
func (r *Replay) Results() []Result {
	results := make([]Result, len(r.policies))
	for i, p := range r.policies {
		results[i] = p.result()
	}
	return results
}

func (p *policy) result() Result {
	refused := make([]int64, len(p.buckets))
	keys := int64(0)
	for i := range p.buckets {
		refused[i] = p.buckets[i].refused
		if refused[i] > 0 {
			keys++
		}
	}
	return Result{
		Policy: p.Policy, Admitted: p.admitted, Refused: p.refused, Never: p.never,
		KeysRefused: keys, WorstWait: p.worst, PerKey: percentiles(refused),
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
