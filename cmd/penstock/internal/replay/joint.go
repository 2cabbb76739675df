package replay

import (
	"context"
	"time"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/cmd/penstock/internal/trace"
	"github.com/penstock-go/penstock/limit"
)

// A joint holds the limiters of adapters/memory that decide for a policy.
type joint struct {
	limit.Limiter // the only limiter, or all of them together

	per        Per
	maxWait    time.Duration
	limiters   []limiter
	overflowed int64
}

// newJoint panics if the policy is not valid.
func newJoint(p Policy, s *memory.Simulation, per Per) *joint {
	j := &joint{per: per, maxWait: p.maxWait}
	all := make([]limit.Limiter, len(p.rules))
	for i, r := range p.rules {
		l := r.newLimiter(s)
		j.limiters = append(j.limiters, l)
		all[i] = l
	}
	j.Limiter = all[0]
	if len(all) > 1 {
		j.Limiter = limit.AllOf(all...)
	}
	return j
}

// consume decides a request at the time of the simulation's clock.
func (j *joint) consume(request *trace.Record) limit.Decision {
	d, err := j.Take(context.Background(), j.per.key(request), limit.Take{Cost: request.Cost, MaxWait: j.maxWait})
	if err != nil { // limiters in memory fail only if a cost is negative, which trace.Reader rejects
		panic(err)
	}
	return d
}

// key returns the key of a request for limiters.
func (p Per) key(request *trace.Record) limit.Key {
	switch p {
	case PerKey:
		return limit.Key{request.Key}
	case PerType:
		return limit.Key{request.Type}
	default:
		return limit.Key{request.Key, request.Type}
	}
}

// overflows reports whether keys have shared a record since the previous call.
func (j *joint) overflows() bool {
	before := j.overflowed
	j.overflowed = 0
	for _, l := range j.limiters {
		j.overflowed += l.Stats().Overflowed
	}
	return j.overflowed > before
}
