package limittest

import (
	"context"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/adapter"
)

// quotaLeaseCases returns the rules of leases of a quota.
func quotaLeaseCases() []WindowCase[limit.QuotaPolicy] {
	return []WindowCase[limit.QuotaPolicy]{
		{"a lease ends", quotaLeaseEnds},
		{"a settlement", quotaSettlement},
		{"a settlement in the next period", quotaSettlementInNextPeriod},
		{"leases are bounded", quotaLeasesAreBounded},
		{"settled leases leave room", quotaSettledLeasesLeaveRoom},
		{"leases and changes", quotaLeaseAfterChange},
		{"leases of processes", quotaLeasesOfProcesses},
		{"leases after a step back", quotaLeasesAfterStepBack},
		{"leases equal the model", quotaLeasesEqualModel},
	}
}

// A quotaBench is a quota of ten per hour, 20 minutes after the hour has begun.
type quotaBench struct {
	t *testing.T
	adapter.Resetter
}

func newQuotaBench(t *testing.T, h quotaHarness, name string) (quotaBench, bool) {
	p := limit.QuotaPolicy{Name: name, Max: 10, Period: limit.Hour}
	b := quotaBench{t, h.New(p)}
	if !can(b.Resetter, limit.Take{Lease: time.Minute, Receipt: true}) {
		return b, false
	}
	sleepUntil(h, p, 20*time.Minute)
	return b, true
}

func (b quotaBench) lease(cost int64, length time.Duration) limit.Receipt {
	b.t.Helper()
	d, err := b.Take(context.Background(), key("ann"), limit.Take{Cost: cost, Lease: length, Receipt: true})
	require.NoError(b.t, err)
	require.True(b.t, d.Allowed, "%+v", d)
	return d.Receipt
}

func (b quotaBench) settle(r limit.Receipt, used int64) {
	b.t.Helper()
	require.NoError(b.t, r.Settle(context.Background(), b, key("ann"), used))
}

func (b quotaBench) holds(remaining int64, resetAfter time.Duration, what string) {
	b.t.Helper()
	d, err := limit.Inspect(context.Background(), b, key("ann"))
	require.NoError(b.t, err)
	assert.Equal(b.t, limit.Decision{Allowed: true, Limit: 10, Remaining: remaining, ResetAfter: resetAfter}, d, what)
}

func quotaLeaseEnds(t *testing.T, h quotaHarness) {
	b, ok := newQuotaBench(t, h, "lease-ends")
	if !ok {
		return
	}
	b.lease(6, 30*time.Minute)
	b.lease(3, 10*time.Minute)
	h.Sleep(10*time.Minute - time.Microsecond)
	b.holds(1, 30*time.Minute+time.Microsecond, "before the end")
	h.Sleep(time.Microsecond)
	b.holds(4, 30*time.Minute, "at the end")
	require.True(t, consume(t, b, key("ann"), 4).Allowed)
	h.Sleep(20 * time.Minute)
	b.holds(6, 10*time.Minute, "others have been taken meanwhile")
	b.lease(6, 20*time.Minute)
	h.Sleep(10 * time.Minute)
	require.True(t, consume(t, b, key("ann"), 7).Allowed, "a period begins")
	h.Sleep(10 * time.Minute)
	b.holds(3, 50*time.Minute, "tokens of a period that has ended do not return")
}

func quotaSettlement(t *testing.T, h quotaHarness) {
	b, ok := newQuotaBench(t, h, "settlement")
	if !ok {
		return
	}
	six := b.lease(6, 10*time.Minute)
	for range 2 {
		b.settle(six, 2)
		b.holds(8, 40*time.Minute, "less is used")
	}
	h.Sleep(10 * time.Minute)
	b.settle(six, 3)
	b.holds(5, 30*time.Minute, "a settlement after the end is a charge")
	five := b.lease(5, 10*time.Minute)
	b.settle(five, 1_000_000)
	b.holds(0, 30*time.Minute, "more than the maximum is used")
	assert.Equal(t, limit.Decision{Limit: 10, RetryAfter: 30 * time.Minute, ResetAfter: 30 * time.Minute}, consume(t, b, key("ann"), 1))
	require.NoError(t, b.Reset(context.Background(), key("ann")))
	b.settle(five, 4)
	b.holds(6, 30*time.Minute, "a reset ends the lease")
	six = b.lease(6, 10*time.Minute)
	require.NoError(t, six.Undo(context.Background(), b, key("ann")))
	b.holds(6, 30*time.Minute, "a lease is undone")
	blocker, ok := b.Resetter.(limit.Blocker)
	require.True(t, ok)
	require.NoError(t, blocker.Block(context.Background(), key("ann"), time.Minute))
	b.settle(six, 7)
	h.Sleep(time.Minute)
	b.holds(10, 0, "nothing is taken from a blocked key")
}

func quotaSettlementInNextPeriod(t *testing.T, h quotaHarness) {
	b, ok := newQuotaBench(t, h, "next-period")
	if !ok {
		return
	}
	first, second := b.lease(4, time.Hour), b.lease(4, time.Hour)
	h.Sleep(50 * time.Minute)
	require.True(t, consume(t, b, key("ann"), 5).Allowed)
	b.settle(first, 1)
	b.holds(5, 50*time.Minute, "what returns belongs to the period before")
	b.settle(second, 6)
	b.holds(3, 50*time.Minute, "the excess counts now")
	h.Sleep(50 * time.Minute)
	b.holds(10, 0, "nothing carries over")
}

func quotaLeasesAreBounded(t *testing.T, h quotaHarness) {
	l := h.New(limit.QuotaPolicy{Name: "leases-bounded", Max: 2000, Period: limit.Month})
	if !can(l, limit.Take{Lease: time.Minute, Receipt: true}) {
		return
	}
	b := quotaBench{t, l}
	for i := range adapter.MaxLeases {
		b.lease(1, time.Duration(adapter.MaxLeases-i)*time.Second)
	}
	d, err := b.Take(context.Background(), key("ann"), limit.Take{Cost: 1, Lease: time.Minute, Receipt: true})
	require.NoError(t, err)
	assert.Equal(t, limit.Decision{Limit: 2000, Remaining: 1000, RetryAfter: time.Second, ResetAfter: d.ResetAfter}, d)
	h.Sleep(time.Second)
	b.lease(1, time.Minute)
}

func quotaSettledLeasesLeaveRoom(t *testing.T, h quotaHarness) {
	l := h.New(limit.QuotaPolicy{Name: "leases-settled", Max: 20_000, Period: limit.Month})
	if !can(l, limit.Take{Lease: time.Minute, Receipt: true}) {
		return
	}
	b := quotaBench{t, l}
	var second limit.Receipt
	for i := range adapter.MaxLeases + 1 {
		r := b.lease(10, limit.MaxLease)
		if i == 1 {
			second = r
		}
		h.Sleep(time.Millisecond)
		b.settle(r, 5)
	}
	b.lease(10, limit.MaxLease)
	before := consume(t, b, key("ann"), 0)
	b.settle(second, 100)
	assert.Equal(t, before, consume(t, b, key("ann"), 0), "it is known to be settled")
}

func quotaLeaseAfterChange(t *testing.T, h quotaHarness) {
	b, ok := newQuotaBench(t, h, "lease-change")
	setter, changes := b.Resetter.(limit.PolicySetter[limit.QuotaPolicy])
	if !ok || !changes {
		return
	}
	receipts := []limit.Receipt{b.lease(2, time.Minute), b.lease(2, time.Minute), b.lease(2, time.Minute)}
	require.NoError(t, setter.SetPolicy(limit.QuotaPolicy{Name: "lease-change", Max: 20, Period: limit.Hour}))
	b.settle(receipts[0], 1)
	b.settle(receipts[1], 5)
	h.Sleep(time.Minute)
	d := consume(t, b, key("ann"), 0)
	assert.EqualValues(t, 11, d.Remaining, "the first settlement and the end of the third lease return nothing")
}

// quotaLeasesOfProcesses settles a lease with another maximum than it was taken with.
func quotaLeasesOfProcesses(t *testing.T, h quotaHarness) {
	b, ok := newQuotaBench(t, h, "lease-processes")
	if !ok || !h.Shared {
		return
	}
	other := h.New(limit.QuotaPolicy{Name: "lease-processes", Max: 20, Period: limit.Hour})
	six := b.lease(6, time.Minute)
	b.lease(2, time.Minute)
	require.NoError(t, six.Settle(context.Background(), other, key("ann"), 5))
	b.holds(3, 40*time.Minute, "the count is the same")
	h.Sleep(time.Minute)
	assert.EqualValues(t, 13, consume(t, other, key("ann"), 0).Remaining, "the lease is one of another policy")
	b.holds(5, 39*time.Minute, "a look writes nothing")
}

// quotaLeasesAfterStepBack moves the clock back in the period of two leases.
func quotaLeasesAfterStepBack(t *testing.T, h quotaHarness) {
	b, ok := newQuotaBench(t, h, "lease-back")
	if !ok || h.Rewind == nil {
		return
	}
	b.lease(2, 2*time.Minute)
	h.Sleep(time.Minute)
	six := b.lease(6, 30*time.Second)
	h.Rewind(20 * time.Minute)
	require.False(t, consume(t, b, key("ann"), 3).Allowed) // moves the leases
	h.Sleep(30*time.Second - time.Microsecond)
	assert.EqualValues(t, 2, consume(t, b, key("ann"), 0).Remaining, "before the end")
	h.Sleep(time.Microsecond)
	assert.EqualValues(t, 8, consume(t, b, key("ann"), 0).Remaining, "at the end of the shorter lease")
	b.settle(six, 3)
	assert.EqualValues(t, 5, consume(t, b, key("ann"), 0).Remaining, "all that was used is charged")
	h.Sleep(90 * time.Second)
	assert.EqualValues(t, 7, consume(t, b, key("ann"), 0).Remaining, "at the end of the longer one")
}

// A modelQuotaLease is a lease in the model, with the period of its tokens.
type modelQuotaLease struct {
	id      int
	cost    int64
	period  string
	ends    int64
	settled bool
}

// A quotaLeaseModel adds leases to the counts per period.
type quotaLeaseModel struct {
	quotaModel
	leases []modelQuotaLease
}

func (m *quotaLeaseModel) end(at int64) {
	m.leases = slices.DeleteFunc(m.leases, func(l modelQuotaLease) bool {
		if l.ends <= at && !l.settled {
			m.counts[l.period] -= l.cost
		}
		return l.ends <= at
	})
}

func (m *quotaLeaseModel) take(at, cost int64) bool {
	m.end(at)
	p := m.period(at).name
	if cost > 0 && m.counts[p]+cost > m.policy.Max {
		return false
	}
	m.counts[p] += cost
	return true
}

func (m *quotaLeaseModel) settle(at int64, id int, used int64) {
	m.end(at)
	p := m.period(at).name
	i := slices.IndexFunc(m.leases, func(l modelQuotaLease) bool { return l.id == id })
	switch {
	case i < 0:
		m.counts[p] += used
	case m.leases[i].settled:
	case used > m.leases[i].cost:
		m.counts[p] += used - m.leases[i].cost
	default:
		m.counts[m.leases[i].period] -= m.leases[i].cost - used
	}
	if i >= 0 {
		m.leases[i].settled = true
	}
}

func quotaLeasesEqualModel(t *testing.T, h quotaHarness) {
	rng := rand.New(rand.NewPCG(27, 30))
	for round := range h.rounds() {
		p := limit.QuotaPolicy{Name: "lease-model-" + strconv.Itoa(round), Max: 1 + rng.Int64N(20), Period: limit.Period(rng.IntN(2)), Location: time.UTC}
		b := quotaBench{t, h.New(p)}
		if !can(b.Resetter, limit.Take{Lease: time.Minute, Receipt: true}) {
			return
		}
		m := quotaLeaseModel{quotaModel: quotaModel{policy: p, counts: map[string]int64{}}}
		var receipts []limit.Receipt
		for range 60 {
			at, cost, ctx := h.Now().UnixMicro(), rng.Int64N(p.Max+1), context.Background()
			switch rng.IntN(4) {
			case 0:
				assert.Equal(t, m.take(at, cost), consume(t, b, key("ann"), cost).Allowed)
			case 1:
				length := time.Duration(1+rng.Int64N(7_200_000)) * time.Millisecond
				d, err := b.Take(ctx, key("ann"), limit.Take{Cost: cost, Lease: length, Receipt: true})
				require.NoError(t, err)
				if require.Equal(t, m.take(at, cost), d.Allowed); d.Allowed && cost > 0 {
					m.leases = append(m.leases, modelQuotaLease{len(receipts), cost, m.period(at).name, at + length.Microseconds(), false})
					receipts = append(receipts, d.Receipt)
				}
			case 2:
				if len(receipts) > 0 {
					id, used := rng.IntN(len(receipts)), rng.Int64N(2*p.Max)
					b.settle(receipts[id], used)
					m.settle(at, id, used)
				}
			}
			m.end(at)
			require.Equal(t, max(p.Max-m.counts[m.period(at).name], 0), consume(t, b, key("ann"), 0).Remaining, "%+v", p)
			h.Sleep(time.Duration(rng.Int64N(1<<uint(1+rng.IntN(32)))) * time.Microsecond)
		}
	}
}
