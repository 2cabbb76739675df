package ratelimittest_test

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/middleware/ratelimit"
	"github.com/penstock-go/penstock/middleware/ratelimit/ratelimittest"
)

// A reference is a limiter of models: slow, and right unless a fault is built in.
type reference struct {
	fault  fault
	policy ratelimit.Policy
	start  time.Time
	store  *store
}

// A store may be shared by limiters.
type store struct {
	mu     sync.Mutex
	models map[any]*ratelimittest.Model
	blocks map[any]time.Duration // until when
}

func newStore() *store {
	return &store{models: map[any]*ratelimittest.Model{}, blocks: map[any]time.Duration{}}
}

// A fault is one way to break one rule.
type fault struct {
	name   string
	breaks string // the case that must fail

	policy   func(ratelimit.Policy) ratelimit.Policy
	key      func(ratelimit.Key) any
	at       func(time.Duration) time.Duration
	cost     func(int64) int64
	decision func(ratelimit.Decision) ratelimit.Decision
	denied   func(m *ratelimittest.Model, at time.Duration) // what a denial does besides
	shared   *store
	racy     bool
	lenient  bool // a negative cost is no error
	refund   func(m *ratelimittest.Model, at time.Duration, tokens int64) error
	block    func(time.Duration) time.Duration
	unblock  bool // a refund ends a block
	reserve  func(m *ratelimittest.Model, at time.Duration, cost int64, maxWait time.Duration) ratelimit.Decision
}

func newReference(f fault) func(ratelimit.Policy) ratelimit.Limiter {
	start := time.Now()
	return func(p ratelimit.Policy) ratelimit.Limiter {
		if f.policy != nil {
			p = f.policy(p)
		}
		r := &reference{fault: f, policy: p, start: start, store: newStore()}
		if f.shared != nil {
			r.store = f.shared
		}
		return r
	}
}

func (r *reference) Consume(_ context.Context, key ratelimit.Key, cost int64) (ratelimit.Decision, error) {
	f := r.fault
	if cost < 0 && !f.lenient {
		return ratelimit.Decision{}, io.ErrUnexpectedEOF
	}
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	var name any = key
	if f.key != nil {
		name = f.key(key)
	}
	at := time.Since(r.start)
	if f.at != nil {
		at = f.at(at)
	}
	m := r.store.models[name]
	if m == nil {
		m = ratelimittest.NewModel(r.policy)
		m.Consume(at, 0)
		r.store.models[name] = m
	}
	if f.cost != nil {
		cost = f.cost(cost)
	}
	if left := r.store.blocks[name] - at; left > 0 {
		d := ratelimit.Decision{Limit: r.policy.Capacity, RetryAfter: left, ResetAfter: left, Reason: ratelimit.Blocked}
		if cost > r.policy.Capacity {
			d.RetryAfter = ratelimit.Never
		}
		return d, nil
	}
	if f.racy {
		r.store.mu.Unlock()
		runtime.Gosched()
		r.store.mu.Lock()
		if m.Consume(at, 0).Remaining >= cost && at == 0 {
			return ratelimit.Decision{Allowed: true}, nil
		}
	}
	d := m.Consume(at, cost)
	if !d.Allowed && f.denied != nil {
		f.denied(m, at)
	}
	if f.decision != nil {
		d = f.decision(d)
	}
	return d, nil
}

func (r *reference) Refund(_ context.Context, key ratelimit.Key, tokens int64) error {
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	m, at := r.store.models[key], time.Since(r.start)
	if r.fault.unblock {
		delete(r.store.blocks, key)
	}
	switch {
	case m == nil || r.store.blocks[key] > at:
		return nil
	case r.fault.refund != nil:
		return r.fault.refund(m, at, tokens)
	case tokens < 0:
		return io.ErrUnexpectedEOF
	}
	m.Refund(at, tokens)
	return nil
}

func (r *reference) Reset(ctx context.Context, key ratelimit.Key) error {
	r.store.mu.Lock()
	delete(r.store.blocks, key)
	r.store.mu.Unlock()
	return r.Refund(ctx, key, r.policy.Capacity)
}

func (r *reference) Block(_ context.Context, key ratelimit.Key, d time.Duration) error {
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	if r.fault.block != nil {
		d = r.fault.block(d)
	}
	if err := ratelimit.CheckBlock(d); err != nil {
		return err
	}
	r.store.blocks[key] = time.Since(r.start) + d
	delete(r.store.models, key)
	return nil
}

func (r *reference) Reserve(_ context.Context, key ratelimit.Key, cost int64, maxWait time.Duration) (ratelimit.Decision, error) {
	if err := ratelimit.CheckReserve(cost, maxWait); err != nil && !r.fault.lenient {
		return ratelimit.Decision{}, err
	}
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	m, at := r.store.models[key], time.Since(r.start)
	if m == nil {
		m = ratelimittest.NewModel(r.policy)
		m.Consume(at, 0)
		r.store.models[key] = m
	}
	if r.fault.reserve != nil {
		return r.fault.reserve(m, at, cost, maxWait), nil
	}
	return m.Reserve(at, cost, maxWait), nil
}

func onDecision(f func(d *ratelimit.Decision)) func(ratelimit.Decision) ratelimit.Decision {
	return func(d ratelimit.Decision) ratelimit.Decision {
		f(&d)
		return d
	}
}

func faults() []fault {
	wait := func(f func(time.Duration) time.Duration) func(ratelimit.Decision) ratelimit.Decision {
		return onDecision(func(d *ratelimit.Decision) {
			if d.RetryAfter != ratelimit.Never && !d.Allowed {
				d.RetryAfter = f(d.RetryAfter)
			}
		})
	}
	return []fault{
		{name: "buckets begin with one token less", breaks: "unseen keys are full", policy: func(p ratelimit.Policy) ratelimit.Policy {
			p.Capacity = max(1, p.Capacity-1)
			return p
		}},
		{name: "time counts in whole seconds", breaks: "fractions are kept", at: func(at time.Duration) time.Duration { return at.Truncate(time.Second) }},
		{name: "time counts in whole milliseconds", breaks: "tokens come back one by one", at: func(at time.Duration) time.Duration { return at.Round(time.Millisecond) }},
		{name: "the refill is doubled", breaks: "tokens come back one by one", policy: func(p ratelimit.Policy) ratelimit.Policy {
			p.Refill *= 2
			return p
		}},
		{name: "check, then act", breaks: "concurrent calls", racy: true},
		{name: "a denial costs a token", breaks: "a denial takes nothing", denied: func(m *ratelimittest.Model, at time.Duration) { m.Consume(at, 1) }},
		{name: "a cost is taken in part", breaks: "all or none", denied: func(m *ratelimittest.Model, at time.Duration) {
			m.Consume(at, m.Consume(at, 0).Remaining)
		}},
		{name: "every cost counts as one", breaks: "all or none", cost: func(cost int64) int64 { return min(cost, 1) }},
		{name: "key parts are joined", breaks: "keys are apart", key: func(k ratelimit.Key) any { return strings.Join(k[:], ":") }},
		{name: "key parts are joined by a zero byte", breaks: "keys are apart", key: func(k ratelimit.Key) any { return strings.Join(k[:], "\x00") }},
		{name: "the last part is forgotten", breaks: "keys are apart", key: func(k ratelimit.Key) any { return [3]string(k[:3]) }},
		{name: "names are ignored", breaks: "policies are apart", shared: newStore()},
		{name: "a cost of 0 counts as 1", breaks: "cost of nothing", cost: func(cost int64) int64 { return max(cost, 1) }},
		{name: "a negative cost pays in", breaks: "negative cost", lenient: true},
		{name: "an unaffordable cost has a wait", breaks: "cost above the capacity", decision: onDecision(func(d *ratelimit.Decision) {
			d.RetryAfter = min(d.RetryAfter, time.Hour)
		})},
		{name: "RetryAfter is rounded down", breaks: "waiting is enough", decision: wait(func(d time.Duration) time.Duration { return d.Truncate(time.Millisecond) })},
		{name: "RetryAfter is a tenth too long", breaks: "waiting is enough", decision: wait(func(d time.Duration) time.Duration { return d + d/10 })},
		{name: "ResetAfter is the wait for a token", breaks: "resetting is exact", decision: onDecision(func(d *ratelimit.Decision) { d.ResetAfter = min(d.ResetAfter, time.Second) })},
		{name: "Remaining counts the fraction", breaks: "decisions are exact", decision: onDecision(func(d *ratelimit.Decision) {
			if d.ResetAfter%time.Second != 0 {
				d.Remaining++
			}
		})},
		{name: "a refund is lost", breaks: "a refund comes back", refund: func(*ratelimittest.Model, time.Duration, int64) error { return nil }},
		{name: "a large refund is refused", breaks: "a refund stops at full", refund: func(m *ratelimittest.Model, at time.Duration, tokens int64) error {
			if tokens > 1000 {
				return io.ErrUnexpectedEOF
			}
			m.Refund(at, tokens)
			return nil
		}},
		{name: "a negative refund takes tokens", breaks: "refunds of nothing", refund: func(m *ratelimittest.Model, at time.Duration, tokens int64) error {
			m.Refund(at, max(tokens, -10))
			return nil
		}},
		{name: "a reset gives one token", breaks: "reset fills", refund: func(m *ratelimittest.Model, at time.Duration, tokens int64) error {
			m.Refund(at, min(tokens, 1))
			return nil
		}},
		{name: "a block ends early", breaks: "a block lasts", block: func(d time.Duration) time.Duration { return d - time.Microsecond }},
		{name: "a refund ends a block", breaks: "a block can be changed", unblock: true},
		{name: "a block is never refused", breaks: "blocks of nothing", block: func(time.Duration) time.Duration { return time.Minute }},
		{name: "nothing can be reserved", breaks: "a reservation waits", reserve: func(m *ratelimittest.Model, at time.Duration, cost int64, _ time.Duration) ratelimit.Decision {
			return m.Consume(at, cost)
		}},
		{name: "a reservation takes nothing", breaks: "reservations are in order", reserve: func(m *ratelimittest.Model, at time.Duration, cost int64, maxWait time.Duration) ratelimit.Decision {
			d := m.Reserve(at, cost, maxWait)
			if d.RetryAfter > 0 {
				m.Refund(at, cost)
			}
			return d
		}},
		{name: "who would wait too long may wait less", breaks: "a reservation is refused", reserve: func(m *ratelimittest.Model, at time.Duration, cost int64, maxWait time.Duration) ratelimit.Decision {
			return m.Reserve(at, cost, maxWait+time.Second)
		}},
		{name: "waits are whole milliseconds", breaks: "reservations are exact", reserve: func(m *ratelimittest.Model, at time.Duration, cost int64, maxWait time.Duration) ratelimit.Decision {
			d := m.Reserve(at, cost, maxWait)
			if d.RetryAfter != ratelimit.Never {
				d.RetryAfter = d.RetryAfter.Round(time.Millisecond)
			}
			return d
		}},
		{name: "refunds are lost", breaks: "a reservation is given back", refund: func(*ratelimittest.Model, time.Duration, int64) error { return nil }},
		{name: "anything can be reserved", breaks: "reservations of nothing", lenient: true},
		{name: "credit is saved beyond the capacity", breaks: "the capacity is the most", policy: func(p ratelimit.Policy) ratelimit.Policy {
			if p.Name == "most" {
				p.Capacity++
			}
			return p
		}},
	}
}

func TestARightLimiterPasses(t *testing.T) {
	for _, c := range ratelimittest.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c.Run(t, ratelimittest.Harness{New: newReference(fault{}), Sleep: time.Sleep})
			})
		})
	}
}

func TestARightLimiterHasNoneOfTheseDefects(t *testing.T) {
	for _, c := range ratelimittest.Regressions() {
		t.Run(c.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c.Run(t, ratelimittest.Harness{New: newReference(fault{}), Sleep: time.Sleep})
			})
		})
	}
}

// TestAWrongLimiterFails holds the suite to its own words: every fault is found
// by the case that it is about, and every case finds a fault.
func TestAWrongLimiterFails(t *testing.T) {
	found := map[string]bool{}
	for _, f := range faults() {
		found[f.breaks] = true
		t.Run(f.name, func(t *testing.T) {
			for _, c := range ratelimittest.Cases() {
				if c.Name != f.breaks {
					continue
				}
				synctest.Test(t, func(t *testing.T) {
					err := c.Check(ratelimittest.Harness{New: newReference(f), Sleep: time.Sleep})
					assert.Error(t, err, "%q must not pass", c.Name)
				})
			}
		})
	}
	for _, c := range ratelimittest.Cases() {
		assert.True(t, found[c.Name], "no fault breaks %q", c.Name)
		assert.True(t, strings.HasSuffix(c.Rule, "."), c.Name)
	}
}

func ExampleModel() {
	m := ratelimittest.NewModel(ratelimit.PerMinute(3))
	fmt.Println(m.Consume(0, 3).Allowed, m.Consume(0, 1).RetryAfter)
	fmt.Println(m.Consume(20*time.Second, 1).Allowed)
	// Output:
	// true 20s
	// true
}
