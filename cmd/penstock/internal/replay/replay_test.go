package replay_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/cmd/penstock/internal/replay"
	"github.com/penstock-go/penstock/cmd/penstock/internal/trace"
	"github.com/penstock-go/penstock/limit"
)

// somePolicies returns fast and slow policies, whose refill per microsecond is a whole number or a fraction.
func somePolicies() []limit.Policy {
	return []limit.Policy{
		limit.PerSecond(10).Burst(20),
		limit.PerSecond(7),
		limit.PerMinute(3).Burst(5),
		limit.Per(8999, time.Second).Burst(50),
		limit.Per(1, 250*time.Millisecond),
		limit.Per(3, 7*time.Microsecond).Burst(4),
	}
}

func tokenBuckets(policies ...limit.Policy) []replay.Policy {
	all := make([]replay.Policy, len(policies))
	for i, p := range policies {
		all[i] = replay.TokenBucket(p)
	}
	return all
}

// someRequests returns random requests in the order of their times.
func someRequests(rng *rand.Rand, n int) []trace.Record {
	requests := make([]trace.Record, n)
	at := time.Date(2026, 9, 1, 18, 0, 0, 0, time.UTC).UnixMicro()
	for i := range requests {
		at += rng.Int64N(1 << rng.IntN(22))
		requests[i] = trace.Record{
			Line: int64(i + 1), Micros: at, Key: fmt.Sprint("key", rng.IntN(4)),
			Type: []string{"", "SAY"}[rng.IntN(2)], Cost: rng.Int64N(1 << rng.IntN(6)),
		}
	}
	return requests
}

func TestReplay_DecidesLikeMemoryLimiter(t *testing.T) {
	for _, policy := range somePolicies() {
		for seed := range uint64(5) {
			requests := someRequests(rand.New(rand.NewPCG(seed, 0)), 1000)
			requireEqualDecisions(t, replay.TokenBucket(policy), func() limit.Limiter { return memory.NewLimiter(policy) }, requests)
		}
	}
}

func replayAll(t *testing.T, opts replay.Options, requests ...trace.Record) *replay.Replay {
	t.Helper()
	r := replay.New(opts)
	for _, request := range requests {
		require.NoError(t, r.Add(request))
	}
	return r
}

func at(micros int64, key, typ string) trace.Record {
	return trace.Record{Micros: micros, Key: key, Type: typ, Cost: 1}
}

func TestReplay_PerSelectsSharedBucket(t *testing.T) {
	log, err := replay.ParsePolicy("sliding-log 1/h")
	require.NoError(t, err)
	requests := []trace.Record{at(0, "a", "S"), at(0, "a", "T"), at(0, "b", "S"), at(0, "aS", ""), at(0, "a", "S")}
	for per, want := range map[replay.Per]int64{"": 1, replay.PerKeyAndType: 1, replay.PerKey: 2, replay.PerType: 2} {
		r := replayAll(t, replay.Options{Policies: append(tokenBuckets(limit.PerHour(1)), log), Per: per}, requests...)
		assert.Equal(t, []int64{want, want}, []int64{r.Results()[0].Rejected, r.Results()[1].Rejected}, per)
		assert.Equal(t, 5-want, r.Stats().Keys, per)
	}
}

func TestReplay_RequestsOutOfOrderGetNoExtraTokens(t *testing.T) {
	const second = int64(1e6)
	policies := tokenBuckets(limit.PerSecond(1))
	r := replayAll(t, replay.Options{Policies: policies, Late: time.Minute},
		at(100*second, "a", ""), at(98*second, "b", ""), at(99*second, "a", ""), at(100*second, "a", ""), at(101*second, "a", ""))
	assert.Equal(t, int64(2), r.Results()[0].Rejected) // the one at 99 and the second one at 100
	assert.Equal(t, time.Second, r.Results()[0].WorstWait)
	stats := r.Stats()
	assert.Equal(t, []int64{5, 2, 2, 1}, []int64{stats.Requests, stats.Keys, stats.OutOfOrder, stats.LateInBucket})
	assert.Equal(t, 2*time.Second, stats.MaxLateness)
	assert.Equal(t, 3*time.Second, stats.Last.Sub(stats.First))

	err := r.Add(at(40*second, "a", ""))
	assert.EqualError(t, err, "time 1970-01-01T00:00:40Z is 1m1s before that of an earlier line of the same key; it must be at most 1m0s (sort the trace)")
	assert.Equal(t, stats, r.Stats())
	require.NoError(t, r.Add(at(41*second, "a", "")))
	require.NoError(t, r.Add(at(0, "c", "")), "a new key has no earlier line")
}

func TestReplay_RejectsTimesMoreThanTenYearsApart(t *testing.T) {
	const year = int64(365 * 24 * time.Hour / time.Microsecond)
	fast := limit.Policy{Capacity: 1, Refill: 9000, Per: time.Microsecond}
	opts := replay.Options{Policies: tokenBuckets(fast), Rates: []limit.Policy{fast}}
	r := replayAll(t, opts, at(56*year, "a", ""), at(46*year, "b", ""), at(66*year, "b", ""), at(66*year, "b", ""))
	assert.Equal(t, int64(1), r.Results()[0].Rejected)
	for _, micros := range []int64{56*year - 10*year - 1, 66*year + 1, 1 << 60} {
		assert.ErrorContains(t, r.Add(at(micros, "a", "")), "is more than ten years from the first request, 2025-12-18T00:00:00Z")
	}
	assert.Equal(t, int64(4), r.Stats().Requests)
}

func TestReplay_HugeCostsDoNotOverflow(t *testing.T) {
	huge := trace.Record{Key: "a", Cost: math.MaxInt64}
	r := replayAll(t, replay.Options{Policies: tokenBuckets(limit.PerSecond(1)), Rates: []limit.Policy{limit.PerSecond(1)}},
		huge, huge, at(0, "a", ""), at(0, "b", ""))
	result := r.Results()[0]
	assert.Equal(t, []int64{2, 2, 2, 0}, []int64{result.Admitted, result.Rejected, result.NeverAdmitted, int64(result.WorstWait)})
	p50, err := replay.ParseShare("p50")
	require.NoError(t, err)
	candidates, best, err := r.Suggest(p50, time.Minute)
	require.NoError(t, err)
	assert.Equal(t, limit.PerSecond(1), candidates[best].Policy)
	assert.Equal(t, int64(1), candidates[best].KeysRejected)
	p100, err := replay.ParseShare("p100")
	require.NoError(t, err)
	_, _, err = r.Suggest(p100, time.Minute)
	assert.ErrorContains(t, err, "no policy can be suggested")
}

func TestResult_PercentilesByNearestRank(t *testing.T) {
	var requests []trace.Record
	for key := range 200 { // the keys have 0 to 199 rejections
		for range key + 1 {
			requests = append(requests, at(0, fmt.Sprint(key), ""))
		}
	}
	result := replayAll(t, replay.Options{Policies: tokenBuckets(limit.PerHour(1))}, requests...).Results()[0]
	assert.Equal(t, replay.Percentiles{P50: 99, P90: 179, P99: 197, Max: 199}, result.PerKey)
	assert.Equal(t, int64(199), result.KeysRejected)
}

func TestParsePer(t *testing.T) {
	for text, want := range map[string]replay.Per{"key": "key", "type": "type", "key,type": "key,type", "type, key": "key,type"} {
		per, err := replay.ParsePer(text)
		require.NoError(t, err)
		assert.Equal(t, want, per)
	}
	_, err := replay.ParsePer("user")
	assert.EqualError(t, err, `must be key,type or key or type, not "user"`)
}

func TestTimeline_SumsMatchRequests(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 1))
		requests := someRequests(rng, 2000)
		span := int64(1) << rng.IntN(60)
		var demand float64
		for i := range requests {
			requests[i].Micros = rng.Int64N(span)%(20*365*24*3600*1e6) - 5*365*24*3600*1e6
			requests[i].Key = fmt.Sprint(i) // distinct keys, so that no request is out of order within its bucket
			demand += float64(requests[i].Cost)
		}
		// The first request is in the middle of the range of times.
		requests[0].Micros = 5 * 365 * 24 * 3600 * 1e6
		r := replayAll(t, replay.Options{Policies: tokenBuckets(limit.PerSecond(10))}, requests...)
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
