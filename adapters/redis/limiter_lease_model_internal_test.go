package redis

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/batch"
	"github.com/penstock-go/penstock/internal/testscale"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/limittest"
)

// TestLimiter_LeasesEqualTheModel makes random calls by every script about buckets, and compares the
// decisions with those of a model that ends each lease at its time.
func TestLimiter_LeasesEqualTheModel(t *testing.T) {
	t.Parallel()
	m := startMovedServer(t)
	for round := range testscale.Tiers(8, 8, 100) {
		rng := rand.New(rand.NewPCG(uint64(round), 41))
		w := newLeaseWorld(t, m, rng, round)
		for step := range 200 {
			w.name = fmt.Sprintf("round %d, step %d", round, step)
			w.step()
			w.pause()
		}
	}
}

// A leaseWorld is a bucket and its model.
type leaseWorld struct {
	*testing.T
	server  *movedServer
	rng     *rand.Rand
	limiter *Limiter
	policy  *batch.Policy // of the limiter
	other   *Limiter      // allows everything
	key     limit.Key
	model   *limittest.Model
	at      time.Duration
	leases  []limit.Receipt // by identifier in the model
	ends    []time.Duration // of leases
	name    string          // of the step
}

func newLeaseWorld(t *testing.T, m *movedServer, rng *rand.Rand, round int) *leaseWorld {
	policy := []limit.Policy{
		limit.PerMinute(6).Burst(10),
		limit.PerSecond(997).Burst(100_000),
		limit.PerHour(7).Burst(40),
		{Capacity: 20, Refill: 3, Per: 7 * time.Second},
	}[rng.IntN(4)].Named(fmt.Sprint("leases-", round))
	h := m.harness(t)
	return &leaseWorld{
		T: t, server: m, rng: rng, key: limit.Key{"user"}, model: limittest.NewModel(policy),
		limiter: h.New(policy).(*Limiter), policy: batch.NewPolicy(policy, nil),
		other: h.New(limit.PerSecond(1000).Burst(1_000_000_000).Named(fmt.Sprint("other-", round))).(*Limiter),
	}
}

// pause moves the clock, often to the end of a lease or to just before it.
func (w *leaseWorld) pause() {
	d := time.Duration(w.rng.Int64N(1<<uint(1+w.rng.IntN(28)))) * time.Microsecond
	switch w.rng.IntN(4) {
	case 0:
		d = 0
	case 1:
		if len(w.ends) > 0 {
			d = max(w.ends[w.rng.IntN(len(w.ends))]-w.at-time.Duration(w.rng.Int64N(2))*time.Microsecond, 0)
		}
	}
	w.server.sleep(d)
	w.at += d
}

func (w *leaseWorld) cost() int64 { return w.rng.Int64N(min(w.model.Consume(w.at, 0).Limit, 12) + 1) }

func (w *leaseWorld) step() {
	cost := w.cost()
	switch w.rng.IntN(10) {
	case 0, 1:
		w.lease(cost)
	case 2, 3:
		w.settle()
	case 4:
		w.many()
	case 5:
		w.together(limit.Take{}, cost)
	case 6:
		w.together(limit.Take{Lease: w.length(), Receipt: true}, max(cost, 1))
	case 7:
		require.NoError(w, limit.Charge(w.Context(), w.limiter, w.key, cost), w.name)
		w.model.Charge(w.at, cost)
	case 8:
		require.NoError(w, limit.Refund(w.Context(), w.limiter, w.key, cost), w.name)
		w.model.Refund(w.at, cost)
	default:
		w.consume(cost)
	}
	d, err := limit.Inspect(w.Context(), w.limiter, w.key)
	require.NoError(w, err)
	require.Equal(w, w.model.Consume(w.at, 0), d, w.name)
}

func (w *leaseWorld) consume(cost int64) {
	d, err := limit.Consume(w.Context(), w.limiter, w.key, cost)
	require.NoError(w, err)
	require.Equal(w, w.model.Consume(w.at, cost), d, "%s: a cost of %d", w.name, cost)
}

func (w *leaseWorld) length() time.Duration {
	return time.Duration(1+w.rng.Int64N(1<<uint(1+w.rng.IntN(17)))) * time.Millisecond
}

func (w *leaseWorld) lease(cost int64) {
	length := w.length()
	d, err := w.limiter.Take(w.Context(), w.key, limit.Take{Cost: cost, Lease: length, Receipt: true})
	require.NoError(w, err)
	w.compareLease(d, cost, length)
}

func (w *leaseWorld) compareLease(d limit.Decision, cost int64, length time.Duration) {
	receipt := d.Receipt
	d.Receipt = limit.Receipt{}
	want := w.model.Lease(w.at, cost, length, len(w.leases))
	require.Equal(w, want, d, "%s: a lease of %d for %v", w.name, cost, length)
	require.Equal(w, d.Allowed && cost > 0, receipt.Lease != 0)
	if receipt.Lease != 0 {
		w.leases, w.ends = append(w.leases, receipt), append(w.ends, w.at+length)
	}
}

// settle settles a lease, often one that is settled or has ended.
func (w *leaseWorld) settle() {
	if len(w.leases) == 0 {
		return
	}
	id := max(len(w.leases)-1-w.rng.IntN(5), 0)
	used := w.rng.Int64N(2*w.leases[id].Tokens + 1)
	require.NoError(w, w.leases[id].Settle(w.Context(), w.limiter, w.key, used), w.name)
	w.model.Settle(w.at, id, used)
}

// many makes calls in the script for many calls.
func (w *leaseWorld) many() {
	p := w.policy
	name := w.limiter.buckets.prefix + ":user"
	calls, costs := make([]*bucketCall, 1+w.rng.IntN(4)), []int64(nil)
	for i := range calls {
		costs = append(costs, w.cost())
		calls[i] = &bucketCall{Request: bucketRequest{policy: p, key: name, units: p.CostUnits(costs[i])}}
	}
	w.limiter.buckets.exec(w.Context(), calls)
	for i, c := range calls {
		require.NoError(w, c.Err)
		require.Equal(w, w.model.Consume(w.at, costs[i]), p.Decide(&limit.Take{Cost: costs[i]}, c.Response.State), "%s: call %d of many", w.name, i)
	}
	w.server.local.Local.Add(int64(2 * batch.CacheTime)) // the limiter does not know of them
}

// together makes a call to both limiters.
func (w *leaseWorld) together(take limit.Take, cost int64) {
	decisions, err := w.limiter.TakeBatch(w.Context(), []limit.Request{{Limiter: w.limiter, Key: w.key, Cost: cost}, {Limiter: w.other, Key: w.key, Cost: 1}}, take)
	require.NoError(w, err)
	require.True(w, decisions[1].Allowed)
	if take.Lease > 0 {
		w.compareLease(decisions[0], cost, take.Lease)
		return
	}
	require.Equal(w, w.model.Consume(w.at, cost), decisions[0], "%s: both, with a cost of %d", w.name, cost)
}
