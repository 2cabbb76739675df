package limittest_test

import (
	"context"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/limittest"
)

// model returns the model of a key. It must be called with the store's mutex held.
func (r *reference) model(key limit.Key) (*limittest.Model, time.Duration) {
	m, at := r.store.models[key], time.Since(r.start)
	if m == nil {
		m = limittest.NewModel(r.policy)
		m.Consume(at, 0)
		r.store.models[key] = m
	}
	return m, at
}

func (r *reference) ConsumeKeeping(_ context.Context, key limit.Key, cost, keep int64) (limit.Decision, error) {
	if (cost < 0 || keep < 0) && !r.fault.lenient {
		return limit.Decision{}, io.ErrUnexpectedEOF
	}
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	m, at := r.model(key)
	if r.fault.keep != nil {
		return r.fault.keep(m, at, cost, keep), nil
	}
	return m.ConsumeKeeping(at, cost, keep), nil
}

func (r *reference) ConsumeUpTo(_ context.Context, key limit.Key, most int64) (int64, limit.Decision, error) {
	if most < 0 && !r.fault.lenient {
		return 0, limit.Decision{}, io.ErrUnexpectedEOF
	}
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	m, at := r.model(key)
	if r.fault.partial != nil {
		granted, d := r.fault.partial(m, at, most)
		return granted, d, nil
	}
	granted, d := m.ConsumeUpTo(at, most)
	return granted, d, nil
}

func (r *reference) Charge(_ context.Context, key limit.Key, cost int64) error {
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	if (cost < 0 || cost > r.policy.Capacity) && !r.fault.lenient {
		return io.ErrUnexpectedEOF
	}
	m, at := r.model(key)
	switch {
	case r.store.blocks[key] > at:
	case r.fault.charge != nil:
		r.fault.charge(m, at, cost)
	default:
		m.Charge(at, cost)
	}
	return nil
}

func (r *reference) SetPolicy(p limit.Policy) error {
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	if err := p.Validate(); err != nil || p.Name != r.policy.Name {
		if r.fault.lenient {
			return nil
		}
		return fmt.Errorf("an invalid change: %w", err)
	}
	r.policy = p
	for _, m := range r.store.models {
		if r.fault.setPolicy != nil {
			r.fault.setPolicy(m, time.Since(r.start), p)
		} else {
			m.SetPolicy(time.Since(r.start), p)
		}
	}
	if r.fault.unblock {
		clear(r.store.blocks)
	}
	return nil
}

func (r *reference) BatchesWith(other limit.Limiter) bool {
	_, ok := other.(*reference)
	return ok && r.fault.batch
}

// ConsumeBatch returns the decision of the first request for all, a fault.
func (r *reference) ConsumeBatch(ctx context.Context, requests []limit.Request, maxWait time.Duration) ([]limit.Decision, error) {
	d, err := r.Reserve(ctx, requests[0].Key, requests[0].Cost, maxWait)
	decisions := make([]limit.Decision, len(requests))
	for i := range decisions {
		decisions[i] = d
	}
	return decisions, err
}

func abilityFaults() []fault {
	return []fault{
		{name: "nothing is kept", breaks: "keep leaves tokens", keep: func(m *limittest.Model, at time.Duration, cost, _ int64) limit.Decision {
			return m.Consume(at, cost)
		}},
		{name: "what is kept is taken", breaks: "keep leaves tokens", keep: func(m *limittest.Model, at time.Duration, cost, keep int64) limit.Decision {
			return m.Consume(at, cost+keep)
		}},
		{name: "at least a token is kept", breaks: "keep of 0", keep: func(m *limittest.Model, at time.Duration, cost, keep int64) limit.Decision {
			return m.ConsumeKeeping(at, cost, max(keep, 1))
		}},
		{name: "a negative keep is 0", breaks: "keep above the capacity", lenient: true},
		{name: "a part is all or none", breaks: "a part is granted", partial: func(m *limittest.Model, at time.Duration, most int64) (int64, limit.Decision) {
			if d := m.Consume(at, most); !d.Allowed {
				return 0, d
			}
			return most, m.Consume(at, 0)
		}},
		{name: "a negative most is 0", breaks: "negative part", lenient: true},
		{name: "a charge is all or none", breaks: "charge takes a deficit", charge: func(m *limittest.Model, at time.Duration, cost int64) { m.Consume(at, cost) }},
		{name: "charges add up to any deficit", breaks: "charge takes a deficit", charge: func(m *limittest.Model, at time.Duration, cost int64) {
			m.Reserve(at, cost, limit.Never-1)
		}},
		{name: "a negative charge is 0", breaks: "charge of nothing", lenient: true},
		{name: "refunds of joint requests are lost", breaks: "joint requests", refund: func(*limittest.Model, time.Duration, int64) error { return nil }},
		{name: "one limiter decides for all", breaks: "concurrent joint requests", batch: true},
		{name: "one decision stands for all", breaks: "decisions of a batch", batch: true},
		{name: "a change fills buckets", breaks: "a change creates nothing", setPolicy: func(m *limittest.Model, _ time.Duration, p limit.Policy) {
			*m = *limittest.NewModel(p)
		}},
		{name: "a change stops the refill", breaks: "a change keeps RetryAfter exact", at: func(at time.Duration) time.Duration { return at.Truncate(time.Hour) }},
		{name: "every change is valid", breaks: "an invalid change is rejected", lenient: true},
		{name: "a change ends blocks", breaks: "a change keeps blocks", unblock: true},
		{name: "a change forgets deficits", breaks: "a change keeps deficits", setPolicy: func(m *limittest.Model, at time.Duration, p limit.Policy) {
			m.Refund(at, max(0, -m.Reserve(at, 0, 0).Remaining))
			m.SetPolicy(at, p)
			if missing := m.Consume(at, 0); missing.ResetAfter > 0 {
				*m = *limittest.NewModel(p)
				m.Consume(at, p.Capacity)
			}
		}},
		{name: "a change takes tokens", breaks: "concurrent changes", setPolicy: func(m *limittest.Model, at time.Duration, p limit.Policy) {
			m.SetPolicy(at, p)
			m.Charge(at, 1)
		}},
	}
}

func TestPolicyChanges_CorrectLimiterPasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limittest.PolicyChanges(t, limittest.Harness{New: newReference(fault{}), Sleep: time.Sleep}, 20)
	})
}
