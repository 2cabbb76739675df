package replay

import (
	"slices"
	"time"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/cmd/penstock/internal/trace"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/adapter"
)

// A state is a policy with its buckets or limiters, and its counts.
type state struct {
	Policy

	units   adapter.Units // of a token bucket
	joint   *joint        // decides for every other policy, from the first request on
	buckets []bucket      // by key

	admitted, delayed, rejected, neverAdmitted, overflowed int64
	longestDelay, worst                                    time.Duration
}

type bucket struct {
	fullAt   int64 // of a token bucket: when it is full again, in units since the epoch
	rejected int64
}

// newState panics if the policy is a token bucket that is not valid.
func newState(p Policy) *state {
	s := &state{Policy: p}
	if b, ok := p.bucket(); ok {
		s.units = adapter.UnitsOf(b.Policy)
	}
	return s
}

// start creates the limiters. The clock of the simulation must be before all requests.
func (s *state) start(simulation *memory.Simulation, per Per) {
	if _, ok := s.bucket(); !ok {
		s.joint = newJoint(s.Policy, simulation, per)
	}
}

func (s *state) add(micros int64) {
	s.buckets = append(s.buckets, bucket{fullAt: micros * s.units.PerMicro()})
}

// take decides a request and counts the outcome. Its time must not be before that of the bucket's
// previous request.
func (s *state) take(index int, micros int64, request *trace.Record) bool {
	b := &s.buckets[index]
	var d limit.Decision
	if s.joint == nil {
		d = s.takeTokens(b, micros, request.Cost)
	} else {
		d = s.joint.consume(request)
	}
	switch {
	case d.Allowed && d.RetryAfter > 0:
		s.delayed++
		s.longestDelay = max(s.longestDelay, d.RetryAfter)
		fallthrough
	case d.Allowed:
		s.admitted++
		return true
	case d.RetryAfter == limit.Never:
		s.neverAdmitted++
	default:
		s.worst = max(s.worst, d.RetryAfter)
	}
	s.rejected++
	b.rejected++
	return false
}

func (s *state) takeTokens(b *bucket, micros, cost int64) limit.Decision {
	now, need := micros*s.units.PerMicro(), s.units.CostUnits(cost)
	debt := max(b.fullAt-now, 0)
	d := s.units.ReserveDecision(s.units.Full()-debt, need, s.maxWait)
	if d.Allowed {
		b.fullAt = now + debt + need
	}
	return d
}

// A Result is the outcome of a policy.
type Result struct {
	Policy        Policy
	Admitted      int64         // requests
	Delayed       int64         // admitted requests that wait
	LongestDelay  time.Duration // the longest such wait
	Rejected      int64         // requests
	NeverAdmitted int64         // rejected requests whose cost exceeds the capacity
	KeysRejected  int64         // keys with at least one rejection
	WorstWait     time.Duration // the longest RetryAfter of the other rejected requests
	Overflowed    int64         // requests of keys beyond the maximum of a limiter, which share what one key has
	PerKey        Percentiles   // rejections per key
}

// Percentiles over all keys, by the nearest-rank method: 99 % of the keys have P99 or fewer.
type Percentiles struct {
	P50, P90, P99, Max int64
}

// Results returns the outcome of each policy, in the order of Options.Policies.
func (r *Replay) Results() []Result {
	results := make([]Result, len(r.policies))
	for i, s := range r.policies {
		results[i] = s.result()
	}
	return results
}

func (s *state) result() Result {
	rejected := make([]int64, len(s.buckets))
	keys := int64(0)
	for i := range s.buckets {
		rejected[i] = s.buckets[i].rejected
		if rejected[i] > 0 {
			keys++
		}
	}
	return Result{
		Policy: s.Policy, Admitted: s.admitted, Delayed: s.delayed, LongestDelay: s.longestDelay,
		Rejected: s.rejected, NeverAdmitted: s.neverAdmitted, KeysRejected: keys, WorstWait: s.worst,
		Overflowed: s.overflowed, PerKey: percentiles(rejected),
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
