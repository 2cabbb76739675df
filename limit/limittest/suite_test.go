package limittest_test

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

	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/adapter"
	"github.com/penstock-go/penstock/limit/limittest"
)

// A reference is a limiter that uses a Model per key. It is correct unless it has a fault.
type reference struct {
	fault  fault
	policy limit.Policy
	start  time.Time
	store  *store

	changes int64 // of the policy
}

// A store holds the models of one or several limiters.
type store struct {
	mu     sync.Mutex
	models map[any]*limittest.Model
	blocks map[any]time.Duration // ends of blocks
	leases int                   // taken so far
}

func newStore() *store {
	return &store{models: map[any]*limittest.Model{}, blocks: map[any]time.Duration{}}
}

// A fault breaks one rule in one way.
type fault struct {
	name   string
	breaks string // name of the case that must fail

	policy   func(limit.Policy) limit.Policy
	key      func(limit.Key) any
	at       func(time.Duration) time.Duration
	cost     func(int64) int64
	decision func(limit.Decision) limit.Decision
	denied   func(m *limittest.Model, at time.Duration) // side effect of a denial
	shared   *store
	racy     bool
	lenient  bool // a negative cost is no error
	refund   func(m *limittest.Model, at time.Duration, tokens int64) error
	undo     func(m *limittest.Model, at time.Duration, receipt limit.Receipt)
	receipt  func(take limit.Take, d limit.Decision) bool
	look     func(m *limittest.Model, take limit.Take) *limittest.Model
	block    func(time.Duration) time.Duration
	unblock  bool // a refund ends a block
	reserve  func(m *limittest.Model, at time.Duration, cost int64, maxWait time.Duration) limit.Decision

	keep      func(m *limittest.Model, at time.Duration, cost, keep int64) limit.Decision
	partial   func(m *limittest.Model, at time.Duration, most int64) (int64, limit.Decision)
	charge    func(m *limittest.Model, at time.Duration, cost int64)
	setPolicy func(m *limittest.Model, at time.Duration, p limit.Policy)
	lease     func(m *limittest.Model, at time.Duration, cost int64, length time.Duration, id int) limit.Decision
	settle    func(m *limittest.Model, at time.Duration, id int, used int64)
	batch     bool // decides requests to several limiters
}

func newReference(f fault) func(limit.Policy) limit.Limiter {
	start := time.Now()
	return func(p limit.Policy) limit.Limiter {
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

func (r *reference) Take(_ context.Context, key limit.Key, take limit.Take) (limit.Decision, error) {
	if err := take.Validate(); err != nil && !r.fault.lenient {
		return limit.Decision{}, err
	}
	if take.IsPlain() {
		return r.consume(key, take.Cost)
	}
	return r.special(key, take)
}

func (r *reference) consume(key limit.Key, cost int64) (limit.Decision, error) {
	f := r.fault
	if cost < 0 && !f.lenient {
		return limit.Decision{}, io.ErrUnexpectedEOF
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
		m = limittest.NewModel(r.policy)
		m.Consume(at, 0)
		r.store.models[name] = m
	}
	if f.cost != nil {
		cost = f.cost(cost)
	}
	if r.store.blocks[name] > at {
		return r.blocked(name, at, cost), nil
	}
	if f.racy {
		r.store.mu.Unlock()
		runtime.Gosched()
		r.store.mu.Lock()
		if m.Consume(at, 0).Remaining >= cost && at == 0 {
			return limit.Decision{Allowed: true}, nil
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

func (r *reference) blocked(name any, at time.Duration, cost int64) limit.Decision {
	left := r.store.blocks[name] - at
	d := limit.Decision{Limit: r.policy.Capacity, RetryAfter: left, ResetAfter: left, Reason: limit.Blocked}
	if cost > r.policy.Capacity {
		d.RetryAfter = limit.Never
	}
	return d
}

func (r *reference) refund(key limit.Key, tokens int64) error {
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

func (r *reference) Reset(_ context.Context, key limit.Key) error {
	if r.fault.refund != nil {
		return r.refund(key, r.policy.Capacity)
	}
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	delete(r.store.blocks, key)
	delete(r.store.models, key)
	return nil
}

func (r *reference) Block(_ context.Context, key limit.Key, d time.Duration) error {
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	if r.fault.block != nil {
		d = r.fault.block(d)
	}
	if err := adapter.CheckBlock(d); err != nil {
		return err
	}
	r.store.blocks[key] = time.Since(r.start) + d
	delete(r.store.models, key)
	return nil
}

func onDecision(f func(d *limit.Decision)) func(limit.Decision) limit.Decision {
	return func(d limit.Decision) limit.Decision {
		f(&d)
		return d
	}
}

func faults() []fault {
	wait := func(f func(time.Duration) time.Duration) func(limit.Decision) limit.Decision {
		return onDecision(func(d *limit.Decision) {
			if d.RetryAfter != limit.Never && !d.Allowed {
				d.RetryAfter = f(d.RetryAfter)
			}
		})
	}
	return []fault{
		{name: "buckets begin with one token less", breaks: "new keys are full", policy: func(p limit.Policy) limit.Policy {
			p.Capacity = max(1, p.Capacity-1)
			return p
		}},
		{name: "time counts in whole seconds", breaks: "fractions are kept", at: func(at time.Duration) time.Duration { return at.Truncate(time.Second) }},
		{name: "time counts in whole milliseconds", breaks: "tokens return one by one", at: func(at time.Duration) time.Duration { return at.Round(time.Millisecond) }},
		{name: "the refill is doubled", breaks: "tokens return one by one", policy: func(p limit.Policy) limit.Policy {
			p.Refill *= 2
			return p
		}},
		{name: "check, then act", breaks: "concurrent calls", racy: true},
		{name: "a denial costs a token", breaks: "a denial takes nothing", denied: func(m *limittest.Model, at time.Duration) { m.Consume(at, 1) }},
		{name: "a cost is taken in part", breaks: "all or none", denied: func(m *limittest.Model, at time.Duration) {
			m.Consume(at, m.Consume(at, 0).Remaining)
		}},
		{name: "every cost counts as one", breaks: "all or none", cost: func(cost int64) int64 { return min(cost, 1) }},
		{name: "key parts are joined", breaks: "keys are separate", key: func(k limit.Key) any { return strings.Join(k[:], ":") }},
		{name: "key parts are joined by a zero byte", breaks: "keys are separate", key: func(k limit.Key) any { return strings.Join(k[:], "\x00") }},
		{name: "the last part of a key is ignored", breaks: "keys are separate", key: func(k limit.Key) any { return [3]string(k[:3]) }},
		{name: "names are ignored", breaks: "policies are separate", shared: newStore()},
		{name: "a cost of 0 counts as 1", breaks: "cost of 0", cost: func(cost int64) int64 { return max(cost, 1) }},
		{name: "a negative cost adds tokens", breaks: "negative cost", lenient: true},
		{name: "an unaffordable cost has a wait", breaks: "cost above the capacity", decision: onDecision(func(d *limit.Decision) {
			d.RetryAfter = min(d.RetryAfter, time.Hour)
		})},
		{name: "RetryAfter is rounded down", breaks: "RetryAfter is exact", decision: wait(func(d time.Duration) time.Duration { return d.Truncate(time.Millisecond) })},
		{name: "RetryAfter is a tenth too long", breaks: "RetryAfter is exact", decision: wait(func(d time.Duration) time.Duration { return d + d/10 })},
		{name: "ResetAfter is the wait for a token", breaks: "ResetAfter is exact", decision: onDecision(func(d *limit.Decision) { d.ResetAfter = min(d.ResetAfter, time.Second) })},
		{name: "Remaining counts the fraction", breaks: "decisions are exact", decision: onDecision(func(d *limit.Decision) {
			if d.ResetAfter%time.Second != 0 {
				d.Remaining++
			}
		})},
		{name: "a refund is lost", breaks: "refund returns tokens", refund: func(*limittest.Model, time.Duration, int64) error { return nil }},
		{name: "a large refund is an error", breaks: "refund stops at capacity", refund: func(m *limittest.Model, at time.Duration, tokens int64) error {
			if tokens > 1000 {
				return io.ErrUnexpectedEOF
			}
			m.Refund(at, tokens)
			return nil
		}},
		{name: "a negative refund takes tokens", breaks: "refund of 0 or less", lenient: true, refund: func(m *limittest.Model, at time.Duration, tokens int64) error {
			m.Refund(at, max(tokens, -10))
			return nil
		}},
		{name: "a reset gives one token", breaks: "reset fills", refund: func(m *limittest.Model, at time.Duration, tokens int64) error {
			m.Refund(at, min(tokens, 1))
			return nil
		}},
		{name: "a block ends early", breaks: "block denies", block: func(d time.Duration) time.Duration { return d - time.Microsecond }},
		{name: "a refund ends a block", breaks: "block can be changed", unblock: true},
		{name: "every block is valid", breaks: "block of invalid duration", block: func(time.Duration) time.Duration { return time.Minute }},
		{name: "nothing can be reserved", breaks: "reservation waits", reserve: func(m *limittest.Model, at time.Duration, cost int64, _ time.Duration) limit.Decision {
			return m.Consume(at, cost)
		}},
		{name: "a reservation takes nothing", breaks: "reservations are ordered", reserve: func(m *limittest.Model, at time.Duration, cost int64, maxWait time.Duration) limit.Decision {
			d := m.Reserve(at, cost, maxWait)
			if d.RetryAfter > 0 {
				m.Refund(at, cost)
			}
			return d
		}},
		{name: "a reservation may wait a second too long", breaks: "reservation is denied", reserve: func(m *limittest.Model, at time.Duration, cost int64, maxWait time.Duration) limit.Decision {
			return m.Reserve(at, cost, maxWait+time.Second)
		}},
		{name: "waits are whole milliseconds", breaks: "reservations are exact", reserve: func(m *limittest.Model, at time.Duration, cost int64, maxWait time.Duration) limit.Decision {
			d := m.Reserve(at, cost, maxWait)
			if d.RetryAfter != limit.Never {
				d.RetryAfter = d.RetryAfter.Round(time.Millisecond)
			}
			return d
		}},
		{name: "refunds are lost", breaks: "reservation is refunded", refund: func(*limittest.Model, time.Duration, int64) error { return nil }},
		{name: "anything can be reserved", breaks: "invalid reservations", lenient: true},
		{name: "the bucket holds more than its capacity", breaks: "capacity bounds the bucket", policy: func(p limit.Policy) limit.Policy {
			if p.Name == "capacity" {
				p.Capacity++
			}
			return p
		}},
	}
}

func TestCases_CorrectLimiterPasses(t *testing.T) {
	for _, c := range limittest.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c.Run(t, limittest.Harness{New: newReference(fault{}), Sleep: time.Sleep})
			})
		})
	}
}

func TestRegressions_CorrectLimiterPasses(t *testing.T) {
	for _, c := range limittest.Regressions() {
		t.Run(c.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c.Run(t, limittest.Harness{New: newReference(fault{}), Sleep: time.Sleep})
			})
		})
	}
}

// TestCases_FaultyLimiterFails checks that the case of each fault detects it, and that each
// case detects a fault.
func TestCases_FaultyLimiterFails(t *testing.T) {
	detected := map[string]bool{}
	for _, f := range append(faults(), abilityFaults()...) {
		detected[f.breaks] = true
		t.Run(f.name, func(t *testing.T) {
			for _, c := range limittest.Cases() {
				if c.Name != f.breaks {
					continue
				}
				synctest.Test(t, func(t *testing.T) {
					err := c.Check(limittest.Harness{New: newReference(f), Sleep: time.Sleep})
					assert.Error(t, err, "%q must not pass", c.Name)
				})
			}
		})
	}
	for _, c := range limittest.Cases() {
		assert.True(t, detected[c.Name], "no fault breaks %q", c.Name)
		assert.True(t, strings.HasSuffix(c.Rule, "."), c.Name)
	}
}

func ExampleModel() {
	m := limittest.NewModel(limit.PerMinute(3))
	fmt.Println(m.Consume(0, 3).Allowed, m.Consume(0, 1).RetryAfter)
	fmt.Println(m.Consume(20*time.Second, 1).Allowed)
	// Output:
	// true 20s
	// true
}
