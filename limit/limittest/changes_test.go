package limittest_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/adapter"
	"github.com/penstock-go/penstock/limit/limittest"
)

// A sharedBucket is the bucket of limiters on one store, as the last one has written it.
type sharedBucket struct {
	missing int64 // units of the policy that wrote it
	at      int64 // microseconds
	units   adapter.Units
}

// A sharedLimiter is a process with a store that others use with other policies.
type sharedLimiter struct {
	policy limit.Policy
	clock  *int64
	bucket *sharedBucket
}

func (l *sharedLimiter) Check(take limit.Take) error { return take.ValidatePlain() }

func (l *sharedLimiter) Take(_ context.Context, _ limit.Key, take limit.Take) (limit.Decision, error) {
	cost := take.Cost
	u, b := adapter.UnitsOf(l.policy), *l.bucket
	if b.units == (adapter.Units{}) {
		b.units = u
	}
	full := b.units.Full()
	deficit := max(b.missing-full, 0)
	missing := max(b.missing-(*l.clock-b.at)*b.units.PerMicro(), 0)
	missing = min(missing, full+deficit) // more only if the clock has gone backwards
	missing = u.FromUnits(missing, b.units)
	costUnits := u.CostUnits(cost)
	d := u.Decision(u.Full()-missing, costUnits)
	switch {
	case d.Allowed && cost > 0:
		*l.bucket = sharedBucket{missing + costUnits, *l.clock, u}
	case !d.Allowed && u.RefillsFasterThan(b.units):
		*l.bucket = sharedBucket{missing, *l.clock, u}
	}
	return d, nil
}

func (l *sharedLimiter) SetPolicy(p limit.Policy) error {
	if p.Name != l.policy.Name {
		return fmt.Errorf("the name is %q; it must be %q", p.Name, l.policy.Name)
	}
	l.policy = p
	return p.Validate()
}

func TestPolicyChanges_CorrectSharedLimiterPasses(t *testing.T) {
	clock := int64(1) << 40
	buckets := map[string]*sharedBucket{}
	h := limittest.Harness{
		New: func(p limit.Policy) limit.Limiter {
			if buckets[p.Name] == nil {
				buckets[p.Name] = &sharedBucket{at: clock}
			}
			return &sharedLimiter{p, &clock, buckets[p.Name]}
		},
		Shared: true,
		Sleep:  func(d time.Duration) { clock += d.Microseconds() },
		Rewind: func(d time.Duration) { clock -= d.Microseconds() },
	}
	limittest.PolicyChanges(t, h, 100)
	for _, c := range limittest.Regressions() {
		t.Run(c.Name, func(t *testing.T) {
			clear(buckets)
			c.Run(t, h)
		})
	}
}
