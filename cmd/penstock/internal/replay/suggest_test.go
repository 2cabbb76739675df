package replay_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/cmd/penstock/internal/replay"
	"github.com/penstock-go/penstock/cmd/penstock/internal/trace"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/limittest"
)

func share(t *testing.T, text string) replay.Share {
	t.Helper()
	s, err := replay.ParseShare(text)
	require.NoError(t, err)
	return s
}

// keysRejected counts the rejected keys with the exact model of package limittest.
func keysRejected(p limit.Policy, requests []trace.Record) int64 {
	models, rejected := map[string]*limittest.Model{}, map[string]bool{}
	for _, request := range requests {
		key := request.Key + "/" + request.Type
		if models[key] == nil {
			models[key] = limittest.NewModel(p)
		}
		d := models[key].Consume(time.Duration(request.Micros-requests[0].Micros)*time.Microsecond, request.Cost)
		if !d.Allowed {
			rejected[key] = true
		}
	}
	return int64(len(rejected))
}

// Every candidate rejects as many keys as it reports and no more than permitted, and one token less
// would reject too many.
func TestSuggest_ReturnsSmallestPolicies(t *testing.T) {
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 2))
		requests := someRequests(rng, 200)
		for i := range requests {
			requests[i].Key += string(rune('a' + rng.IntN(12)))
		}
		rates := []limit.Policy{limit.Per(rng.Int64N(50)+1, time.Duration(rng.Int64N(60)+1)*time.Second)}
		if seed%2 == 0 {
			rates = replay.RoundRates()
		}
		r := replayAll(t, replay.Options{Rates: rates}, requests...)
		percent := rng.Int64N(1000) + 1 // in tenths
		candidates, best, err := r.Suggest(share(t, fmt.Sprintf("p%d.%d", percent/10, percent%10)), time.Minute)
		require.NoError(t, err)
		keys := r.Stats().Keys
		fewEnough := func(rejected int64) bool { return 1000*(keys-rejected) >= percent*keys }
		for i, c := range candidates {
			rejected := keysRejected(c.Policy, requests)
			require.Equal(t, rejected, c.KeysRejected, "%v", c.Policy)
			require.True(t, fewEnough(rejected), "%v", c.Policy)
			if smaller := c.Policy.Burst(c.Policy.Capacity - 1); smaller.Capacity > 0 {
				require.False(t, fewEnough(keysRejected(smaller, requests)), "%v", smaller)
			}
			assert.InDelta(t, float64(c.Policy.Capacity)+60*float64(c.Policy.Refill)/c.Policy.Per.Seconds(), c.Max, 1e-9)
			assert.LessOrEqual(t, candidates[best].Max, c.Max)
			if i < best {
				assert.Less(t, candidates[best].Max, c.Max, "of equal policies, the slowest must win")
			}
			if len(rates) > 1 {
				assert.LessOrEqual(t, c.FullAfter, r.Stats().Last.Sub(r.Stats().First))
			}
		}
	}
}

func TestSuggest_SlowestOfEqualPoliciesWins(t *testing.T) {
	const second = int64(1e6)
	r := replayAll(t, replay.Options{Rates: []limit.Policy{limit.PerMinute(2), limit.PerMinute(1)}},
		at(0, "a", ""), at(0, "a", ""), at(30*second, "a", ""), at(200*second, "a", ""))
	candidates, best, err := r.Suggest(share(t, "p100"), time.Minute)
	require.NoError(t, err)
	assert.Equal(t, []replay.Candidate{
		{Policy: limit.PerMinute(1).Burst(3), Max: 4, FullAfter: 3 * time.Minute},
		{Policy: limit.PerMinute(2), Max: 4, FullAfter: time.Minute},
	}, candidates)
	assert.Zero(t, best)
}

func TestShare_IsExact(t *testing.T) {
	var requests []trace.Record
	for key := range 1000 { // key n needs a burst of n+1
		for range key + 1 {
			requests = append(requests, at(0, string(rune('一'+key)), ""))
		}
	}
	r := replayAll(t, replay.Options{Rates: []limit.Policy{limit.PerHour(1)}}, requests...)
	for text, want := range map[string]int64{"p99.9": 999, "p99.90": 999, "p99": 990, "99": 990, "p99.91": 1000, "p100": 1000, "p0.1": 1, "p0.0001": 1} {
		candidates, best, err := r.Suggest(share(t, text), time.Minute)
		require.NoError(t, err)
		assert.Equal(t, want, candidates[best].Policy.Capacity, text)
		assert.Equal(t, 1000-want, candidates[best].KeysRejected, text)
	}
	assert.Equal(t, "99.9", share(t, "p99.90").Percent())
}

func TestParseShare_Invalid(t *testing.T) {
	for _, text := range []string{"", "p", "p0", "p100.1", "-1", "p1/2", "1e1", "p99%", "pp9", "NaN"} {
		_, err := replay.ParseShare(text)
		assert.ErrorContains(t, err, "is not a percentage of the keys; it must be like p99 or p99.9, up to p100", text)
	}
}

func TestSuggest_FailsIfTraceIsTooShort(t *testing.T) {
	requests := []trace.Record{at(5, "a", ""), at(5, "a", "")}
	r := replayAll(t, replay.Options{Rates: replay.RoundRates()}, requests...)
	_, _, err := r.Suggest(share(t, "p99"), time.Minute)
	assert.ErrorContains(t, err, "the trace lasts 0s")

	r = replayAll(t, replay.Options{Rates: []limit.Policy{limit.PerMinute(7)}}, requests...)
	candidates, best, err := r.Suggest(share(t, "p99"), time.Minute)
	require.NoError(t, err)
	assert.Equal(t, limit.PerMinute(7).Burst(2), candidates[best].Policy)
}
