package batchtest

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/batch"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/adapter"
)

// Policies are those of limiters of all kinds.
type Policies struct {
	Bucket   limit.Policy
	Window   limit.WindowPolicy
	Quota    limit.QuotaPolicy
	Cooldown limit.CooldownPolicy
}

// A Joint makes random calls to limiters of several kinds, and compares what a store decides in one
// step with what limiters in memory decide one after the other.
type Joint struct {
	Rounds int
	Now    func() time.Time
	Sleep  func(time.Duration)
	Forget func() // makes the limiters forget the denials that they remember

	// New and InMemory return a bucket, a log, a counter, a quota and a cooldown, on the store and in memory.
	New, InMemory func(p Policies, onPenalty func(limit.Penalty)) []limit.Limiter

	rng           *rand.Rand
	remote, local []limit.Limiter
	penalties     [2]int // of the remote and the local cooldown
}

// Run fails the test at the first difference.
func (j *Joint) Run(t *testing.T) {
	j.rng = rand.New(rand.NewPCG(31, 32))
	for round := range j.Rounds {
		j.start(fmt.Sprint(t.Name(), round))
		if round%2 == 0 { // reservations reach the next period of the quota
			j.Sleep(time.Hour - time.Duration(j.Now().UnixNano())%time.Hour - 20*time.Second)
		}
		for step := range 60 {
			what := fmt.Sprintf("round %d, step %d", round, step)
			d := j.compareAll(t, what)
			j.Forget() // a remembered denial may not be the longest one
			j.compareOneKey(t, what)
			require.Equal(t, j.penalties[1], j.penalties[0], "%s: the hook of the cooldown", what)
			if i := j.rng.IntN(40); i < len(j.remote) {
				for _, l := range []limit.Limiter{j.remote[i], j.local[i]} {
					require.NoError(t, l.(limit.Blocker).Block(t.Context(), limit.Key{"user", "ann"}, 300*time.Millisecond))
				}
			}
			pause := time.Duration(j.rng.Int64N(int64(400 * time.Millisecond))).Truncate(time.Microsecond)
			if j.rng.IntN(3) == 0 && !d.Allowed && d.RetryAfter < time.Hour {
				pause = d.RetryAfter
			}
			j.Sleep(pause)
			j.Forget()
		}
	}
}

// start creates limiters with random policies.
func (j *Joint) start(name string) {
	maximum := func() int64 { return 3 + j.rng.Int64N(8) }
	millis := func(n int64) time.Duration { return time.Duration(1+j.rng.Int64N(n)) * time.Millisecond }
	p := Policies{
		Bucket:   limit.PerSecond(1 + j.rng.Int64N(5)).Burst(maximum()).Named(name),
		Window:   limit.WindowPolicy{Name: name, Max: maximum(), Window: millis(4000)},
		Quota:    limit.QuotaPolicy{Name: name, Max: 4 * maximum(), Period: limit.Hour},
		Cooldown: limit.CooldownPolicy{Name: name, Max: maximum(), Window: time.Second, Penalty: millis(3000)},
	}
	j.penalties = [2]int{}
	j.remote = j.New(p, func(limit.Penalty) { j.penalties[0]++ })
	j.local = j.InMemory(p, func(limit.Penalty) { j.penalties[1]++ })
}

// compareAll takes from some limiters with keys and costs of their own.
func (j *Joint) compareAll(t *testing.T, what string) limit.Decision {
	var there, here []limit.Request
	for _, i := range j.rng.Perm(len(j.remote))[:1+j.rng.IntN(len(j.remote))] {
		key, cost := limit.Key{"user", []string{"ann", "bob"}[j.rng.IntN(2)]}, j.rng.Int64N(4)
		if j.rng.IntN(20) == 0 {
			cost = 100 // never allowed
		}
		there = append(there, limit.Request{Limiter: j.remote[i], Key: key, Cost: cost})
		here = append(here, limit.Request{Limiter: j.local[i], Key: key, Cost: cost})
	}
	got, err := limit.Take{Receipt: true}.All(t.Context(), there...)
	require.NoError(t, err)
	want, err := limit.Take{Receipt: true}.All(t.Context(), here...)
	require.NoError(t, err)
	requireSame(t, want, got, "%s: %+v", what, there)
	if j.rng.IntN(4) == 0 {
		require.NoError(t, got.Receipt.UndoAll(t.Context(), there...))
		require.NoError(t, want.Receipt.UndoAll(t.Context(), here...))
	}
	return got
}

// compareOneKey takes from several limiters by limit.AllOf, and may wait if all of them can.
func (j *Joint) compareOneKey(t *testing.T, what string) {
	var there, here []limit.Limiter
	for _, i := range j.rng.Perm(len(j.remote))[:1+j.rng.IntN(len(j.remote)-1)] {
		there, here = append(there, j.remote[i]), append(here, j.local[i])
	}
	key, take := limit.Key{"user", "ann"}, limit.Take{Cost: j.rng.Int64N(4), Receipt: true}
	waiting := take
	waiting.MaxWait = time.Duration(j.rng.Int64N(int64(10 * time.Second)))
	thereAll, hereAll := limit.AllOf(there...), limit.AllOf(here...)
	if adapter.Check(thereAll, waiting) == nil {
		take = waiting
	}
	got, err := thereAll.Take(t.Context(), key, take)
	require.NoError(t, err)
	want, err := hereAll.Take(t.Context(), key, take)
	require.NoError(t, err)
	requireSame(t, want, got, "%s: %+v of %T", what, take, there)
	if j.rng.IntN(4) == 0 {
		require.NoError(t, got.Receipt.Undo(t.Context(), thereAll, key))
		require.NoError(t, want.Receipt.Undo(t.Context(), hereAll, key))
	}
}

// requireSame compares decisions; receipts of several stores differ.
func requireSame(t *testing.T, want, got limit.Decision, args ...any) {
	t.Helper()
	require.Equal(t, want.Receipt == limit.Receipt{}, got.Receipt == limit.Receipt{})
	want.Receipt, got.Receipt = limit.Receipt{}, limit.Receipt{}
	require.Equal(t, want, got, args...)
}

// Forget moves this process's clock forward until what its limiters remember is outdated.
func (c *Clock) Forget() { c.Local.Add(int64(2 * batch.CacheTime)) }
