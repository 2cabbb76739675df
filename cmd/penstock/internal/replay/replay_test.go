package replay_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/cmd/penstock/internal/replay"
	"github.com/penstock-go/penstock/cmd/penstock/internal/trace"
	"github.com/penstock-go/penstock/middleware/ratelimit"
)

// somePolicies are fast and slow, with and without fractions of a token a microsecond.
func somePolicies() []ratelimit.Policy {
	return []ratelimit.Policy{
		ratelimit.PerSecond(10).Burst(20),
		ratelimit.PerSecond(7),
		ratelimit.PerMinute(3).Burst(5),
		ratelimit.Per(8999, time.Second).Burst(50),
		ratelimit.Per(1, 250*time.Millisecond),
		ratelimit.Per(3, 7*time.Microsecond).Burst(4),
	}
}

// someCalls are random calls in the order of their times.
func someCalls(rng *rand.Rand, n int) []trace.Record {
	calls := make([]trace.Record, n)
	at := time.Date(2026, 9, 1, 18, 0, 0, 0, time.UTC).UnixMicro()
	for i := range calls {
		at += rng.Int64N(1 << rng.IntN(22))
		calls[i] = trace.Record{
			Line: int64(i + 1), Micros: at, Key: fmt.Sprint("key", rng.IntN(4)),
			Type: []string{"", "SAY"}[rng.IntN(2)], Cost: rng.Int64N(1 << rng.IntN(6)),
		}
	}
	return calls
}

// tally is what a limiter in memory does with calls at their times.
type tally struct {
	admitted, refused, never int64
	worst                    time.Duration
	refusals                 map[ratelimit.Key]int64
}

func TestItDecidesAsTheLimiterInMemory(t *testing.T) {
	for seed := range uint64(20) {
		calls := someCalls(rand.New(rand.NewPCG(seed, 0)), 1000)
		r := replay.New(replay.Options{Policies: somePolicies()})
		outcomes := make([][]bool, len(calls)) // by call and policy
		for i, call := range calls {
			before := r.Results()
			require.NoError(t, r.Play(call))
			for j, after := range r.Results() {
				outcomes[i] = append(outcomes[i], after.Admitted > before[j].Admitted)
			}
		}
		for j, policy := range somePolicies() {
			want := inMemory(t, policy, calls, func(i int, allowed bool) {
				require.Equal(t, allowed, outcomes[i][j], "%v, seed %d, call %d", policy, seed, i)
			})
			got := r.Results()[j]
			assert.Equal(t, []int64{want.admitted, want.refused, want.never, int64(want.worst), int64(len(want.refusals))},
				[]int64{got.Admitted, got.Refused, got.Never, int64(got.WorstWait), got.KeysRefused}, "%v", policy)
			most := int64(0)
			for _, n := range want.refusals {
				most = max(most, n)
			}
			assert.Equal(t, most, got.PerKey.Max)
		}
	}
}

// inMemory plays calls on the limiter's own clock.
func inMemory(t *testing.T, policy ratelimit.Policy, calls []trace.Record, decided func(i int, allowed bool)) *tally {
	sum := &tally{refusals: map[ratelimit.Key]int64{}}
	synctest.Test(t, func(t *testing.T) {
		limiter := memory.NewLimiter(policy)
		begun := time.Now()
		for i, call := range calls {
			time.Sleep(time.Duration(call.Micros-calls[0].Micros)*time.Microsecond - time.Since(begun))
			key := ratelimit.Key{"user", "", call.Key, call.Type}
			d, err := limiter.Consume(t.Context(), key, call.Cost)
			require.NoError(t, err)
			decided(i, d.Allowed)
			switch {
			case d.Allowed:
				sum.admitted++
				continue
			case d.RetryAfter == ratelimit.Never:
				sum.never++
			default:
				sum.worst = max(sum.worst, d.RetryAfter)
			}
			sum.refused++
			sum.refusals[key]++
		}
	})
	return sum
}

func play(t *testing.T, opts replay.Options, calls ...trace.Record) *replay.Replay {
	t.Helper()
	r := replay.New(opts)
	for _, call := range calls {
		require.NoError(t, r.Play(call))
	}
	return r
}

func at(micros int64, key, typ string) trace.Record {
	return trace.Record{Micros: micros, Key: key, Type: typ, Cost: 1}
}

func TestWhatSharesABucket(t *testing.T) {
	calls := []trace.Record{at(0, "a", "S"), at(0, "a", "T"), at(0, "b", "S"), at(0, "aS", ""), at(0, "a", "S")}
	for per, want := range map[replay.Per]int64{"": 1, replay.PerKeyAndType: 1, replay.PerKey: 2, replay.PerType: 2} {
		r := play(t, replay.Options{Policies: []ratelimit.Policy{ratelimit.PerHour(1)}, Per: per}, calls...)
		assert.Equal(t, want, r.Results()[0].Refused, per)
		assert.Equal(t, 5-want, r.Stats().Keys, per)
	}
}

func TestCallsOutOfOrderMintNothing(t *testing.T) {
	const second = int64(1e6)
	hourly := []ratelimit.Policy{ratelimit.PerSecond(1)}
	r := play(t, replay.Options{Policies: hourly, Late: time.Minute},
		at(100*second, "a", ""), at(98*second, "b", ""), at(99*second, "a", ""), at(100*second, "a", ""), at(101*second, "a", ""))
	assert.Equal(t, int64(2), r.Results()[0].Refused) // at 99 and again at 100
	assert.Equal(t, time.Second, r.Results()[0].WorstWait)
	stats := r.Stats()
	assert.Equal(t, []int64{5, 2, 2, 1}, []int64{stats.Calls, stats.Keys, stats.Unsorted, stats.LateInKey})
	assert.Equal(t, 2*time.Second, stats.Furthest)
	assert.Equal(t, 3*time.Second, stats.Last.Sub(stats.First))

	err := r.Play(at(40*second, "a", ""))
	assert.EqualError(t, err, "its time, 1970-01-01T00:00:40Z, is 1m1s before that of an earlier line of the same key; at most 1m0s are borne (sort the trace)")
	assert.Equal(t, stats, r.Stats())
	require.NoError(t, r.Play(at(41*second, "a", "")))
	require.NoError(t, r.Play(at(0, "c", "")), "a key of its own")
}

func TestTimesFarApartAreRefused(t *testing.T) {
	const year = int64(365 * 24 * time.Hour / time.Microsecond)
	fast := ratelimit.Policy{Capacity: 1, Refill: 9000, Per: time.Microsecond}
	opts := replay.Options{Policies: []ratelimit.Policy{fast}, Rates: []ratelimit.Policy{fast}}
	r := play(t, opts, at(56*year, "a", ""), at(46*year, "b", ""), at(66*year, "b", ""), at(66*year, "b", ""))
	assert.Equal(t, int64(1), r.Results()[0].Refused)
	for _, micros := range []int64{56*year - 10*year - 1, 66*year + 1, 1 << 60} {
		assert.ErrorContains(t, r.Play(at(micros, "a", "")), "is more than ten years from the first call's, 2025-12-18T00:00:00Z")
	}
	assert.Equal(t, int64(4), r.Stats().Calls)
}

func TestCostsWithoutBounds(t *testing.T) {
	huge := trace.Record{Key: "a", Cost: math.MaxInt64}
	r := play(t, replay.Options{Policies: []ratelimit.Policy{ratelimit.PerSecond(1)}, Rates: []ratelimit.Policy{ratelimit.PerSecond(1)}},
		huge, huge, at(0, "a", ""), at(0, "b", ""))
	result := r.Results()[0]
	assert.Equal(t, []int64{2, 2, 2, 0}, []int64{result.Admitted, result.Refused, result.Never, int64(result.WorstWait)})
	p50, err := replay.ParseShare("p50")
	require.NoError(t, err)
	candidates, best, err := r.Suggest(p50, time.Minute)
	require.NoError(t, err)
	assert.Equal(t, ratelimit.PerSecond(1), candidates[best].Policy)
	assert.Equal(t, int64(1), candidates[best].KeysRefused)
	p100, err := replay.ParseShare("p100")
	require.NoError(t, err)
	_, _, err = r.Suggest(p100, time.Minute)
	assert.ErrorContains(t, err, "no policy can be suggested")
}

func TestPercentilesAreByNearestRank(t *testing.T) {
	var calls []trace.Record
	for key := range 200 { // whose refusals are 0 to 199
		for range key + 1 {
			calls = append(calls, at(0, fmt.Sprint(key), ""))
		}
	}
	result := play(t, replay.Options{Policies: []ratelimit.Policy{ratelimit.PerHour(1)}}, calls...).Results()[0]
	assert.Equal(t, replay.Percentiles{P50: 99, P90: 179, P99: 197, Max: 199}, result.PerKey)
	assert.Equal(t, int64(199), result.KeysRefused)
}

func TestWhatABucketIsForIsRead(t *testing.T) {
	for text, want := range map[string]replay.Per{"key": "key", "type": "type", "key,type": "key,type", "type, key": "key,type"} {
		per, err := replay.ParsePer(text)
		require.NoError(t, err)
		assert.Equal(t, want, per)
	}
	_, err := replay.ParsePer("user")
	assert.EqualError(t, err, `"user" is not what a bucket can be for; write key,type or key or type`)
}

func TestTheTimelineAddsUp(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 1))
		calls := someCalls(rng, 2000)
		span := int64(1) << rng.IntN(60)
		var demand float64
		for i := range calls {
			calls[i].Micros = rng.Int64N(span)%(20*365*24*3600*1e6) - 5*365*24*3600*1e6
			calls[i].Key = fmt.Sprint(i) // so that none is late
			demand += float64(calls[i].Cost)
		}
		// The first call stands in the middle of all times.
		calls[0].Micros = 5 * 365 * 24 * 3600 * 1e6
		r := play(t, replay.Options{Policies: []ratelimit.Policy{ratelimit.PerSecond(10)}}, calls...)
		line := r.Timeline()
		assert.LessOrEqual(t, len(line.Demand()), 1024)
		for range 2 {
			assert.Equal(t, demand, sum(line.Demand()))
			assert.Less(t, sum(line.Admitted(0)), demand)
			for i, n := range line.Admitted(0) {
				assert.LessOrEqual(t, n, line.Demand()[i])
			}
			stats := r.Stats()
			assert.False(t, line.Start().After(stats.First))
			assert.True(t, line.Start().Add(line.Step()).After(stats.First))
			assert.Equal(t, int(stats.Last.Sub(line.Start())/line.Step())+1, len(line.Demand()))
			line.Coarsen(100)
			assert.LessOrEqual(t, len(line.Demand()), 100)
		}
	}
}

func sum(values []float64) (total float64) {
	for value := range slices.Values(values) {
		total += value
	}
	return total
}
