package simtest

import (
	"context"
	"time"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/limittest"
	"github.com/penstock-go/penstock/limit/mode"
)

// A bucket is a limiter with the policies that it has had, and what was taken from it.
type bucket struct {
	limiter  limit.Limiter // that of the routes
	memory   *memory.Limiter
	policies []applied
	grants   map[limit.Key][]grant // of a limiter in memory
}

// applied is a policy and the time from which on it applies.
type applied struct {
	limit.Policy

	from time.Time
}

// A grant is tokens that were taken, or given back if they are negative.
type grant struct {
	tokens int64
	at     time.Time
}

// How the limiters of a bucket decide.
type deciding int

const (
	together deciding = iota // in one step
	oneByOne                 // the first ones undo what they took if a later one denies
	faultily                 // the same, with answers that are late or lost, and with a clock of their own
)

func newBucket(seed uint64, p limit.Policy, how deciding) *bucket {
	b := &bucket{policies: []applied{{p, time.Now()}}, grants: map[limit.Key][]grant{}}
	if how == together {
		b.memory = memory.NewLimiter(p)
		b.limiter = b.memory
		return b
	}
	f := faulty(seed, func(s *memory.Simulation) limit.Limiter {
		b.memory = s.NewLimiter(p)
		return b.memory
	})
	if how == oneByOne {
		f.SetFaults(limittest.Faults{})
	}
	b.limiter = f
	return b
}

// now returns the time on the clock of the limiter.
func (b *bucket) now() time.Time {
	if f, ok := b.limiter.(*limittest.FaultyLimiter); ok {
		return f.Now()
	}
	return time.Now()
}

func (b *bucket) set(p limit.Policy) error {
	b.policies = append(b.policies, applied{p, b.now()})
	return b.memory.SetPolicy(p)
}

func (b *bucket) takes(key limit.Key, tokens int64) {
	b.grants[key] = append(b.grants[key], grant{tokens, time.Now()})
}

// granted returns what was taken for a key, in order.
func (b *bucket) granted(key limit.Key) (all []grant) {
	f, ok := b.limiter.(*limittest.FaultyLimiter)
	if !ok {
		return b.grants[key]
	}
	for _, d := range f.Decided(key) {
		switch {
		case d.Take.Mode == mode.Whole && d.Decision.Allowed:
			all = append(all, grant{d.Take.Cost, d.At})
		case d.Take.Mode == mode.Undoing:
			all = append(all, grant{-d.Take.Undone().Tokens, d.At})
		}
	}
	return all
}

// clockUnit is the resolution of the clocks of limiters.
const clockUnit = time.Microsecond

// exceeded returns an interval in which a key was granted more than the largest capacity, and what the largest refill returns
// in it, of the policies that applied in it. A clock that goes back stands still until it is where it was.
func (b *bucket) exceeded(key limit.Key) (tokens int64, in time.Duration, ok bool) {
	all := b.granted(key)
	for i := 1; i < len(all); i++ {
		if all[i].at.Before(all[i-1].at) {
			all[i].at = all[i-1].at
		}
	}
	for i := range all {
		sum := int64(0)
		for _, g := range all[i:] {
			sum += g.tokens
			in := g.at.Sub(all[i].at) + clockUnit
			if b.above(sum, all[i].at, g.at, in) {
				return sum, in, true
			}
		}
	}
	return 0, 0, false
}

// above compares in whole numbers: tokens > capacity + refill * in / per.
func (b *bucket) above(tokens int64, from, to time.Time, in time.Duration) bool {
	capacity, refill, per := int64(0), int64(0), int64(1)
	for i, p := range b.policies {
		if p.from.After(to) || i+1 < len(b.policies) && b.policies[i+1].from.Before(from) {
			continue
		}
		capacity = max(capacity, p.Capacity)
		every := int64(p.Per)
		if every == 0 {
			every = int64(time.Second)
		}
		if p.Refill*per > refill*every {
			refill, per = p.Refill, every
		}
	}
	return (tokens-capacity)*per > refill*int64(in)
}

func (w *world) checkLimits() {
	r := record[*limitsRecord](w)
	r.mu.Lock()
	defer r.mu.Unlock()
	keys := []limit.Key{allKey}
	for _, c := range w.clients {
		keys = append(keys, limit.Key{"user", "", c.User}, limit.Key{"user", c.User})
	}
	for _, key := range keys {
		for _, b := range []*bucket{r.user, r.all} {
			if tokens, in, ok := b.exceeded(key); ok {
				w.Errorf("the limit %s has granted %d tokens to %v within %v", b.policies[0].Name, tokens, key, in)
			}
		}
		w.checkPermits(r, key)
	}
	for key, used := range r.used {
		if used > r.admitted[key] {
			w.Errorf("messages of %v that cost %d tokens were handled, and such of %d were admitted", key, used, r.admitted[key])
		}
	}
	w.checkReports(r)
	for _, c := range r.calls {
		w.checkLimited(c, r.passed[c.id])
	}
}

// checkPermits checks that no permit is held.
func (w *world) checkPermits(r *limitsRecord, key limit.Key) {
	permit, err := r.permits.Acquire(context.Background(), key)
	if err != nil || permit.InUse != 1 {
		w.Errorf("%d permits of %v are still held: %v", permit.InUse-1, key, err)
		return
	}
	permit.Release()
}

// checkReports checks that OnLimitExceeded was called once for each refusal.
func (w *world) checkReports(r *limitsRecord) {
	for id, n := range r.refused {
		if r.reported[id] != n {
			w.Errorf("%d messages of %v were refused, and %d reported", n, id, r.reported[id])
		}
	}
	for id, n := range r.reported {
		if id.policy != "" && r.refused[id] == 0 {
			w.Errorf("%d messages of %v were reported, and none refused", n, id)
		}
	}
}

// checkLimited compares the outcome of a call with what was handled.
func (w *world) checkLimited(c *call, handled bool) {
	w.mu.Lock()
	n := w.executions[c.id]
	w.mu.Unlock()
	name := func() string { return c.kind + " " + c.id }
	e, _ := errors.AsType[*errors.Error](c.outcome)
	switch {
	case !c.done:
		w.Errorf("%s of client %d has no outcome", name(), c.device)
	case n > 1:
		w.Errorf("%s of client %d was handled %d times", name(), c.device, n)
	case c.outcome == nil && !handled:
		w.Errorf("%s of client %d was answered and not handled", name(), c.device)
	case c.kind == "spendTooMuch" && (handled || c.outcome == nil):
		w.Errorf("%s of client %d, which no bucket can hold, was handled", name(), c.device)
	case e == nil:
	case (e.Code == errors.ResourceExhausted || e.Code == errors.FailedPrecondition) && handled:
		w.Errorf("%s of client %d was refused and handled: %v", name(), c.device, e)
	case e.Code == errors.ResourceExhausted && errors.DetailsOf[errors.LimitDetails](e).Kind == "rate" && (e.RetryAfter <= 0 || e.RetryAfter == errors.Never):
		w.Errorf("%s of client %d was refused without a time to wait: %+v", name(), c.device, *e)
	case e.Code == errors.FailedPrecondition && c.kind != "spendTooMuch":
		w.Errorf("%s of client %d is said never to be allowed: %+v", name(), c.device, *e)
	case w.calm() && w.mustBeDecided(c) && e.Code != errors.ResourceExhausted && (e.Code != errors.FailedPrecondition || c.kind != "spendTooMuch"):
		w.Errorf("calm: %s of client %d failed: %v", name(), c.device, e)
	}
}

// mustBeDecided reports whether a call has to reach its limit if there is no fault. A client that paces itself may run into
// its deadline.
func (w *world) mustBeDecided(c *call) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mustSucceed(c) && !w.clients[c.device].Pacing
}
