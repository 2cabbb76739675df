package redis

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/internal/batch"
	"github.com/penstock-go/penstock/internal/redistest"
	"github.com/penstock-go/penstock/internal/testscale"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/adapter"
)

// TestJoint_EqualsLimitersInMemory makes random calls to limiters of several kinds, and compares what they
// decide in one step with what limiters in memory decide one after the other.
func TestJoint_EqualsLimitersInMemory(t *testing.T) {
	t.Parallel()
	m := startMovedServer(t)
	rng := rand.New(rand.NewPCG(31, 32))
	simulation := memory.NewSimulation(m.server.Now)
	for round := range testscale.Tiers(4, 4, 40) {
		prefix := fmt.Sprint(redistest.Prefix(t), round)
		remote, local, penalties := jointPairs(m, rng, simulation, prefix)
		if round%2 == 0 { // reservations reach the next period of the quota
			m.sleep(time.Hour - time.Duration(m.server.Now().UnixNano())%time.Hour - 20*time.Second)
		}
		for step := range 80 {
			var there, here []limit.Request
			for _, i := range rng.Perm(len(remote))[:1+rng.IntN(len(remote))] {
				key, cost := limit.Key{"user", []string{"ann", "bob"}[rng.IntN(2)]}, rng.Int64N(4)
				if rng.IntN(20) == 0 {
					cost = 100 // never allowed
				}
				there = append(there, limit.Request{Limiter: remote[i], Key: key, Cost: cost})
				here = append(here, limit.Request{Limiter: local[i], Key: key, Cost: cost})
			}
			got, err := limit.Take{Receipt: true}.All(t.Context(), there...)
			require.NoError(t, err)
			want, err := limit.Take{Receipt: true}.All(t.Context(), here...)
			require.NoError(t, err)
			gotReceipt, wantReceipt := got.Receipt, want.Receipt
			got.Receipt, want.Receipt = limit.Receipt{}, limit.Receipt{}
			require.Equal(t, want, got, "round %d, step %d: %+v", round, step, there)
			require.Equal(t, wantReceipt == limit.Receipt{}, gotReceipt == limit.Receipt{})
			if rng.IntN(4) == 0 {
				require.NoError(t, gotReceipt.UndoAll(t.Context(), there...))
				require.NoError(t, wantReceipt.UndoAll(t.Context(), here...))
			}
			m.local.Local.Add(int64(2 * batch.CacheTime)) // a remembered denial may not be the longest one
			requireSameForOneKey(t, rng, remote, local)
			require.Equal(t, penalties[1], penalties[0], "round %d, step %d: the hook of the cooldown", round, step)
			if i := rng.IntN(40); i < len(remote) {
				require.NoError(t, remote[i].(limit.Blocker).Block(t.Context(), limit.Key{"user", "ann"}, 300*time.Millisecond))
				require.NoError(t, local[i].(limit.Blocker).Block(t.Context(), limit.Key{"user", "ann"}, 300*time.Millisecond))
			}
			pause := time.Duration(rng.Int64N(int64(400 * time.Millisecond))).Truncate(time.Microsecond)
			if rng.IntN(3) == 0 && !got.Allowed && got.RetryAfter < time.Hour {
				pause = got.RetryAfter
			}
			m.sleep(pause)
			m.local.Local.Add(int64(2 * batch.CacheTime))
		}
	}
}

// requireSameForOneKey takes from several limiters by limit.AllOf, and may wait if all of them can.
func requireSameForOneKey(t *testing.T, rng *rand.Rand, remote, local []limit.Limiter) {
	t.Helper()
	var there, here []limit.Limiter
	for _, i := range rng.Perm(len(remote))[:1+rng.IntN(len(remote)-1)] {
		there, here = append(there, remote[i]), append(here, local[i])
	}
	key, take := limit.Key{"user", "ann"}, limit.Take{Cost: rng.Int64N(4), Receipt: true}
	waiting := take
	waiting.MaxWait = time.Duration(rng.Int64N(int64(10 * time.Second)))
	thereAll, hereAll := limit.AllOf(there...), limit.AllOf(here...)
	if adapter.Check(thereAll, waiting) == nil {
		take = waiting
	}
	got, err := thereAll.Take(t.Context(), key, take)
	require.NoError(t, err)
	want, err := hereAll.Take(t.Context(), key, take)
	require.NoError(t, err)
	gotReceipt, wantReceipt := got.Receipt, want.Receipt
	got.Receipt, want.Receipt = limit.Receipt{}, limit.Receipt{}
	require.Equal(t, want, got, "%+v of %T", take, there)
	if rng.IntN(4) == 0 {
		require.NoError(t, gotReceipt.Undo(t.Context(), thereAll, key))
		require.NoError(t, wantReceipt.Undo(t.Context(), hereAll, key))
	}
}

// jointPairs returns limiters of all kinds with random policies on Redis and in memory, and how many
// penalties the cooldowns of each have started.
func jointPairs(m *movedServer, rng *rand.Rand, simulation *memory.Simulation, prefix string) (remote, local []limit.Limiter, penalties *[2]int) {
	penalties = &[2]int{}
	hook := func(i int) func(limit.Penalty) { return func(limit.Penalty) { penalties[i]++ } }
	maximum := func() int64 { return 3 + rng.Int64N(8) }
	bucket := limit.PerSecond(1 + rng.Int64N(5)).Burst(maximum()).Named(prefix)
	window := limit.WindowPolicy{Name: prefix, Max: maximum(), Window: time.Duration(1+rng.Int64N(4000)) * time.Millisecond}
	quota := limit.QuotaPolicy{Name: prefix, Max: 4 * maximum(), Period: limit.Hour}
	cooldown := limit.CooldownPolicy{Name: prefix, Max: maximum(), Window: time.Second, Penalty: time.Duration(1+rng.Int64N(3000)) * time.Millisecond}

	b, l, c, q, p := NewLimiter(m.client, bucket), NewSlidingLog(m.client, window), NewSlidingCounter(m.client, window), NewQuota(m.client, quota), NewCooldown(m.client, cooldown, hook(0))
	b.buckets.now, l.records.now, c.records.now, q.records.now, p.records.now = m.now, m.now, m.now, m.now, m.now
	q.records.clock = m.server.Now
	return []limit.Limiter{b, l, c, q, p}, []limit.Limiter{
		simulation.NewLimiter(bucket), simulation.NewSlidingLog(window), simulation.NewSlidingCounter(window), simulation.NewQuota(quota), simulation.NewCooldown(cooldown, hook(1)),
	}, penalties
}

// TestJoint_CostsOneRoundTrip has a limit per second and one per month.
func TestJoint_CostsOneRoundTrip(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := server.Client(t)
	both := limit.AllOf(NewLimiter(client, limit.PerSecond(1000).Named("second")), NewQuota(client, limit.QuotaPolicy{Name: "month", Max: 100, Period: limit.Month}))
	allowed := 0
	for range 100 {
		d, err := limit.Consume(t.Context(), both, limit.Key{"ann"}, 1)
		require.NoError(t, err)
		if d.Allowed {
			allowed++
		}
	}
	assert.Equal(t, 100, allowed)
	assert.LessOrEqual(t, server.CommandStats(t)["evalsha"], int64(101), "and once with the text of the script")
	one, two := NewQuota(client, limit.QuotaPolicy{Name: "same", Max: 1}), NewQuota(client, limit.QuotaPolicy{Name: "same", Max: 2})
	_, err := limit.Consume(t.Context(), limit.AllOf(one, two), limit.Key{"ann"}, 1)
	assert.ErrorContains(t, err, `two requests charge "penstock:quota:same:ann"; give the policies of the limiters different names`)
}
