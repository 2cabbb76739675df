package postgres

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/internal/batch"
	"github.com/penstock-go/penstock/internal/testscale"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/adapter"
)

// TestJoint_EqualsLimitersInMemory makes random calls to limiters of several kinds, and compares
// what they decide in one step with what limiters in memory decide one after the other.
func TestJoint_EqualsLimitersInMemory(t *testing.T) {
	t.Parallel()
	s := newLimitServer(t)
	rng := rand.New(rand.NewPCG(31, 32))
	simulation := memory.NewSimulation(s.clock.Now)
	for round := range testscale.Tiers(3, 10, 30) {
		remote, local, penalties := jointPairs(s, rng, simulation, fmt.Sprint(round))
		if round%2 == 0 { // reservations reach the next period of the quota
			s.Sleep(time.Hour - time.Duration(s.clock.Now().UnixNano())%time.Hour - 20*time.Second)
		}
		for step := range 60 {
			there, here := jointRequests(rng, remote, local)
			got, err := limit.Take{Receipt: true}.All(t.Context(), there...)
			require.NoError(t, err)
			want, err := limit.Take{Receipt: true}.All(t.Context(), here...)
			require.NoError(t, err)
			requireSameDecision(t, want, got, "round %d, step %d: %+v", round, step, there)
			if rng.IntN(4) == 0 {
				require.NoError(t, got.Receipt.UndoAll(t.Context(), there...))
				require.NoError(t, want.Receipt.UndoAll(t.Context(), here...))
			}
			s.clock.Local.Add(int64(2 * batch.CacheTime)) // a remembered denial may not be the longest one
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
			s.Sleep(pause)
			s.clock.Local.Add(int64(2 * batch.CacheTime))
		}
	}
}

func requireSameDecision(t *testing.T, want, got limit.Decision, args ...any) {
	t.Helper()
	require.Equal(t, want.Receipt == limit.Receipt{}, got.Receipt == limit.Receipt{})
	want.Receipt, got.Receipt = limit.Receipt{}, limit.Receipt{}
	require.Equal(t, want, got, args...)
}

// jointRequests returns requests to some of the limiters, and the same ones to those in memory.
func jointRequests(rng *rand.Rand, remote, local []limit.Limiter) (there, here []limit.Request) {
	for _, i := range rng.Perm(len(remote))[:1+rng.IntN(len(remote))] {
		key, cost := limit.Key{"user", []string{"ann", "bob"}[rng.IntN(2)]}, rng.Int64N(4)
		if rng.IntN(20) == 0 {
			cost = 100 // never allowed
		}
		there = append(there, limit.Request{Limiter: remote[i], Key: key, Cost: cost})
		here = append(here, limit.Request{Limiter: local[i], Key: key, Cost: cost})
	}
	return there, here
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
	requireSameDecision(t, want, got, "%+v of %T", take, there)
	if rng.IntN(4) == 0 {
		require.NoError(t, got.Receipt.Undo(t.Context(), thereAll, key))
		require.NoError(t, want.Receipt.Undo(t.Context(), hereAll, key))
	}
}

// jointPairs returns limiters of all kinds with random policies on the server and in memory, and
// how many penalties the cooldowns of each have started.
func jointPairs(s *limitServer, rng *rand.Rand, simulation *memory.Simulation, name string) (remote, local []limit.Limiter, penalties *[2]int) {
	penalties = &[2]int{}
	hook := func(i int) func(limit.Penalty) { return func(limit.Penalty) { penalties[i]++ } }
	maximum := func() int64 { return 3 + rng.Int64N(8) }
	bucket := limit.PerSecond(1 + rng.Int64N(5)).Burst(maximum()).Named(name)
	window := limit.WindowPolicy{Name: name, Max: maximum(), Window: time.Duration(1+rng.Int64N(4000)) * time.Millisecond}
	quota := limit.QuotaPolicy{Name: name, Max: 4 * maximum(), Period: limit.Hour}
	cooldown := limit.CooldownPolicy{Name: name, Max: maximum(), Window: time.Second, Penalty: time.Duration(1+rng.Int64N(3000)) * time.Millisecond}

	l := s.limits()
	q := l.NewQuota(quota)
	q.rows.clock = s.clock.Now
	return []limit.Limiter{l.NewLimiter(bucket), l.NewSlidingLog(window), l.NewSlidingCounter(window), q, l.NewCooldown(cooldown, hook(0))}, []limit.Limiter{
		simulation.NewLimiter(bucket), simulation.NewSlidingLog(window), simulation.NewSlidingCounter(window), simulation.NewQuota(quota), simulation.NewCooldown(cooldown, hook(1)),
	}, penalties
}

// TestJoint_CostsOneStatement has a limit per second and one per month.
func TestJoint_CostsOneStatement(t *testing.T) {
	t.Parallel()
	l, statements := countingLimits(t)
	both := limit.AllOf(l.NewLimiter(limit.PerSecond(1000).Named("second")), l.NewQuota(limit.QuotaPolicy{Name: "month", Max: 100, Period: limit.Month}))
	for range 100 {
		d, err := limit.Consume(t.Context(), both, ann, 1)
		require.NoError(t, err)
		assert.True(t, d.Allowed)
	}
	assert.EqualValues(t, 100, statements.Load())
	one, two := l.NewQuota(limit.QuotaPolicy{Name: "same", Max: 1}), l.NewQuota(limit.QuotaPolicy{Name: "same", Max: 2})
	_, err := limit.Consume(t.Context(), limit.AllOf(one, two), limit.Key{"ann"}, 1)
	assert.ErrorContains(t, err, `two requests charge "quota:same:ann"; give the policies of the limiters different names`)
}

// TestQuota_ServerClockDecides lets the clocks of this process and of the server differ.
func TestQuota_ServerClockDecides(t *testing.T) {
	t.Parallel()
	s := newLimitServer(t)
	s.clock.Server.Store(time.Date(2024, 5, 1, 12, 30, 0, 0, time.UTC).UnixMicro())
	s.setTime()
	process := s.clock.Now()
	q := s.limits().NewQuota(limit.QuotaPolicy{Max: 2})
	q.rows.clock = func() time.Time { return process }
	for _, offset := range []time.Duration{0, 59 * time.Minute, -59 * time.Minute} { // of this process to the server
		process = s.clock.Now().Add(offset)
		d, err := limit.Consume(t.Context(), q, limit.Key{"ann", offset.String()}, 1)
		require.NoError(t, err)
		assert.Equal(t, limit.Decision{Allowed: true, Limit: 2, Remaining: 1, ResetAfter: 30 * time.Minute}, d, "offset %v", offset)
	}
	bucket := s.limits().NewLimiter(limit.PerHour(5))
	for _, offset := range []time.Duration{-2 * time.Hour, 2 * time.Hour, 1000 * time.Hour} {
		process = s.clock.Now().Add(offset)
		d, err := limit.Consume(t.Context(), q, ann, 1)
		assert.ErrorContains(t, err, "the server's time is 2024-05-01 12:30:00 +0000 UTC, and the clock of this process differs by more than a period", "offset %v", offset)
		assert.Zero(t, d, "an error is no denial")
		_, err = limit.Consume(t.Context(), limit.AllOf(bucket, q), ann, 1)
		assert.Error(t, err)
		assert.EqualValues(t, 5, remaining(t, bucket, ann), "a joint call with an error takes nothing")
	}
}
