package limittest_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/adapter"
	"github.com/penstock-go/penstock/limit/limittest"
	"github.com/penstock-go/penstock/limit/mode"
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

// special is Take for all that is not plain.
func (r *reference) special(key limit.Key, take limit.Take) (limit.Decision, error) {
	if take.Mode == mode.Returning {
		return limit.Decision{}, r.refund(key, take.Cost)
	}
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	m, at := r.model(key)
	if take.Mode <= mode.Partial && r.store.blocks[key] > at {
		return r.blocked(key, at, take.Cost), nil
	}
	if take.Mode == mode.Looking {
		m = r.looked(m, take)
	}
	var d limit.Decision
	switch {
	case take.Mode == mode.Charging:
		r.charge(key, m, at, take.Cost)
		return limit.Decision{}, nil
	case take.Mode == mode.Settling:
		r.settle(key, m, at, take)
		return limit.Decision{}, nil
	case take.Lease > 0:
		return r.lease(m, at, take), nil
	case take.Mode == mode.Undoing:
		r.undo(m, at, take.Undone())
		return limit.Decision{}, nil
	case take.Mode == mode.Partial && r.fault.partial != nil:
		d.Granted, d = r.fault.partial(m, at, take.Cost)
	case take.Mode == mode.Partial:
		granted, partial := m.ConsumeUpTo(at, take.Cost)
		d, d.Granted = partial, granted
	case take.MaxWait != 0 && r.fault.reserve != nil:
		d = r.fault.reserve(m, at, take.Cost, take.MaxWait)
	case take.MaxWait != 0:
		d = m.Reserve(at, take.Cost, take.MaxWait)
	case r.fault.keep != nil:
		d = r.fault.keep(m, at, take.Cost, take.Keep)
	default:
		d = m.ConsumeKeeping(at, take.Cost, take.Keep)
	}
	d.Receipt = r.receipt(take, d, at)
	return d, nil
}

func (r *reference) looked(m *limittest.Model, take limit.Take) *limittest.Model {
	if r.fault.look != nil {
		return r.fault.look(m, take)
	}
	return m.Clone()
}

func (r *reference) charge(key limit.Key, m *limittest.Model, at time.Duration, cost int64) {
	switch {
	case r.store.blocks[key] > at:
	case r.fault.charge != nil:
		r.fault.charge(m, at, cost)
	default:
		m.Charge(at, cost)
	}
}

func (r *reference) lease(m *limittest.Model, at time.Duration, take limit.Take) (d limit.Decision) {
	r.store.leases++
	if r.fault.lease != nil {
		d = r.fault.lease(m, at, take.Cost, take.Lease, r.store.leases)
	} else {
		d = m.Lease(at, take.Cost, take.Lease, r.store.leases)
	}
	if d.Receipt = r.receipt(take, d, at); d.Receipt.Tokens > 0 {
		d.Receipt.Lease = int64(r.store.leases)
	}
	return d
}

func (r *reference) settle(key limit.Key, m *limittest.Model, at time.Duration, take limit.Take) {
	switch {
	case r.store.blocks[key] > at:
	case r.fault.settle != nil:
		r.fault.settle(m, at, int(take.Undone().Lease), take.Cost)
	default:
		m.Settle(at, int(take.Undone().Lease), take.Cost)
	}
}

func (r *reference) undo(m *limittest.Model, at time.Duration, receipt limit.Receipt) {
	switch {
	case r.fault.undo != nil:
		r.fault.undo(m, at, receipt)
	case receipt.Version == r.changes:
		m.Undo(at, time.Duration(receipt.Stamp), receipt.Tokens)
	}
}

func (r *reference) receipt(take limit.Take, d limit.Decision, at time.Duration) limit.Receipt {
	tokens := take.Cost
	if take.Mode == mode.Partial {
		tokens = d.Granted
	}
	issued := d.Allowed && tokens > 0 && take.Mode != mode.Looking
	if r.fault.receipt != nil {
		issued = r.fault.receipt(take, d)
	}
	if !take.Receipt || !issued {
		return limit.Receipt{}
	}
	return limit.Receipt{Tokens: tokens, Stamp: int64(at), Version: r.changes}
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
	if adapter.UnitsOf(p) != adapter.UnitsOf(r.policy) {
		r.changes++
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

// TakeBatch returns the decision of the first request for all, a fault.
func (r *reference) TakeBatch(ctx context.Context, requests []limit.Request, take limit.Take) ([]limit.Decision, error) {
	d, err := limit.Reserve(ctx, r, requests[0].Key, requests[0].Cost, take.MaxWait)
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
		{name: "a deficit is at most the capacity", breaks: "charge takes a deficit", charge: func(m *limittest.Model, at time.Duration, cost int64) {
			m.Charge(at, min(cost, 10))
		}},
		{name: "a huge charge is ignored", breaks: "the largest deficit", charge: func(m *limittest.Model, at time.Duration, cost int64) {
			if cost < 1<<50 {
				m.Charge(at, cost)
			}
		}},
		{name: "a negative charge is 0", breaks: "charge of nothing", lenient: true},
		{name: "undoing does nothing", breaks: "joint requests", undo: func(*limittest.Model, time.Duration, limit.Receipt) {}},
		{name: "undoing is a refund", breaks: "undo returns what was taken", undo: func(m *limittest.Model, at time.Duration, r limit.Receipt) {
			m.Refund(at, r.Tokens)
		}},
		{name: "a refund is forgotten", breaks: "undo of what was refunded", undo: func(m *limittest.Model, at time.Duration, r limit.Receipt) {
			m.Refund(at, r.Tokens)
		}},
		{name: "a reservation returns a token more", breaks: "undo of a reservation", undo: func(m *limittest.Model, at time.Duration, r limit.Receipt) {
			m.Refund(at, r.Tokens+1)
		}},
		{name: "receipts outlive a change", breaks: "undo after a change", undo: func(m *limittest.Model, at time.Duration, r limit.Receipt) {
			m.Refund(at, r.Tokens)
		}},
		{name: "undoing deducts a token", breaks: "undo deducts lost refill only", undo: func(m *limittest.Model, at time.Duration, r limit.Receipt) {
			m.Undo(at, time.Duration(r.Stamp), r.Tokens-1)
		}},
		{name: "a part has no receipt", breaks: "undo of a part", receipt: func(t limit.Take, d limit.Decision) bool {
			return d.Allowed && t.Cost > 0 && t.Mode == mode.Whole
		}},
		{name: "everything has a receipt", breaks: "no receipt of nothing", receipt: func(limit.Take, limit.Decision) bool { return true }},
		{name: "a look takes", breaks: "a look takes nothing", look: func(m *limittest.Model, _ limit.Take) *limittest.Model { return m }},
		{name: "a look ignores the cost", breaks: "a look takes nothing", look: func(m *limittest.Model, t limit.Take) *limittest.Model {
			c := m.Clone()
			c.Refund(0, t.Cost)
			return c
		}},
		{name: "every take is valid", breaks: "invalid takes", lenient: true},
		{name: "a lease never ends", breaks: "a lease ends", lease: func(m *limittest.Model, at time.Duration, cost int64, _ time.Duration, _ int) limit.Decision {
			return m.Consume(at, cost)
		}},
		{name: "leases end together", breaks: "leases end in order", lease: func(m *limittest.Model, at time.Duration, cost int64, length time.Duration, id int) limit.Decision {
			return m.Lease(at, cost, max(length, 12*time.Second), id)
		}},
		{name: "the rest is lost", breaks: "settling returns the rest", settle: func(m *limittest.Model, at time.Duration, id int, used int64) {
			m.Settle(at, id, max(used, 6))
		}},
		{name: "settling deducts a token", breaks: "settling of a busy meter", settle: func(m *limittest.Model, at time.Duration, id int, used int64) {
			m.Settle(at, id, used+1)
		}},
		{name: "the excess is at most the capacity", breaks: "settling takes the excess", settle: func(m *limittest.Model, at time.Duration, id int, used int64) {
			m.Settle(at, id, min(used, 16))
		}},
		{name: "a late settlement takes a token", breaks: "settling after the end", settle: func(m *limittest.Model, at time.Duration, _ int, _ int64) {
			m.Charge(at, 1)
		}},
		{name: "each settlement counts", breaks: "settling twice", settle: func(m *limittest.Model, at time.Duration, id int, used int64) {
			m.Settle(at, id, used)
			m.Charge(at, 1)
		}},
		{name: "leases are not counted", breaks: "leases are bounded", lease: func(m *limittest.Model, at time.Duration, cost int64, _ time.Duration, _ int) limit.Decision {
			return m.Consume(at, cost)
		}},
		{name: "settled leases count", breaks: "settled leases leave room", settle: func(m *limittest.Model, at time.Duration, id int, used int64) {
			m.Charge(at, 1)
		}},
		{name: "a settlement returns a token more", breaks: "leases and changes", settle: func(m *limittest.Model, at time.Duration, id int, used int64) {
			m.Settle(at, id, used)
			m.Refund(at, 1)
		}},
		{name: "every lease is valid", breaks: "invalid leases", lenient: true},
		{name: "settlements are lost", breaks: "joint leases", settle: func(*limittest.Model, time.Duration, int, int64) {}},
		{name: "the first limiter decides for all", breaks: "joint cost of 0", batch: true},
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
