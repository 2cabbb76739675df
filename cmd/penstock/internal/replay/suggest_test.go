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
	"github.com/penstock-go/penstock/middleware/ratelimit"
	"github.com/penstock-go/penstock/middleware/ratelimit/ratelimittest"
)

func share(t *testing.T, text string) replay.Share {
	t.Helper()
	s, err := replay.ParseShare(text)
	require.NoError(t, err)
	return s
}

// keysRefused counts keys with a model of rational numbers.
func keysRefused(p ratelimit.Policy, calls []trace.Record) int64 {
	models, refused := map[string]*ratelimittest.Model{}, map[string]bool{}
	for _, call := range calls {
		key := call.Key + "/" + call.Type
		if models[key] == nil {
			models[key] = ratelimittest.NewModel(p)
		}
		d := models[key].Consume(time.Duration(call.Micros-calls[0].Micros)*time.Microsecond, call.Cost)
		if !d.Allowed {
			refused[key] = true
		}
	}
	return int64(len(refused))
}

// Every candidate refuses as few keys as it says, which are few enough, and one token less
// would refuse too many.
func TestASuggestionIsTheSmallest(t *testing.T) {
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 2))
		calls := someCalls(rng, 200)
		for i := range calls {
			calls[i].Key += string(rune('a' + rng.IntN(12)))
		}
		rates := []ratelimit.Policy{ratelimit.Per(rng.Int64N(50)+1, time.Duration(rng.Int64N(60)+1)*time.Second)}
		if seed%2 == 0 {
			rates = replay.RoundRates()
		}
		r := play(t, replay.Options{Rates: rates}, calls...)
		percent := rng.Int64N(1000) + 1 // in tenths
		candidates, best, err := r.Suggest(share(t, fmt.Sprintf("p%d.%d", percent/10, percent%10)), time.Minute)
		require.NoError(t, err)
		keys := r.Stats().Keys
		fewEnough := func(refused int64) bool { return 1000*(keys-refused) >= percent*keys }
		for i, c := range candidates {
			refused := keysRefused(c.Policy, calls)
			require.Equal(t, refused, c.KeysRefused, "%v", c.Policy)
			require.True(t, fewEnough(refused), "%v", c.Policy)
			if smaller := c.Policy.Burst(c.Policy.Capacity - 1); smaller.Capacity > 0 {
				require.False(t, fewEnough(keysRefused(smaller, calls)), "%v", smaller)
			}
			assert.InDelta(t, float64(c.Policy.Capacity)+60*float64(c.Policy.Refill)/c.Policy.Per.Seconds(), c.Most, 1e-9)
			assert.LessOrEqual(t, candidates[best].Most, c.Most)
			if i < best {
				assert.Less(t, candidates[best].Most, c.Most, "of equals the slowest")
			}
			if len(rates) > 1 {
				assert.LessOrEqual(t, c.FillsIn, r.Stats().Last.Sub(r.Stats().First))
			}
		}
	}
}

func TestOfEqualSuggestionsTheSlowestWins(t *testing.T) {
	const second = int64(1e6)
	r := play(t, replay.Options{Rates: []ratelimit.Policy{ratelimit.PerMinute(2), ratelimit.PerMinute(1)}},
		at(0, "a", ""), at(0, "a", ""), at(30*second, "a", ""), at(200*second, "a", ""))
	candidates, best, err := r.Suggest(share(t, "p100"), time.Minute)
	require.NoError(t, err)
	assert.Equal(t, []replay.Candidate{
		{Policy: ratelimit.PerMinute(1).Burst(3), Most: 4, FillsIn: 3 * time.Minute},
		{Policy: ratelimit.PerMinute(2), Most: 4, FillsIn: time.Minute},
	}, candidates)
	assert.Zero(t, best)
}

func TestSharesAreExact(t *testing.T) {
	var calls []trace.Record
	for key := range 1000 { // each needs a burst of its number and 1
		for range key + 1 {
			calls = append(calls, at(0, string(rune('一'+key)), ""))
		}
	}
	r := play(t, replay.Options{Rates: []ratelimit.Policy{ratelimit.PerHour(1)}}, calls...)
	for text, want := range map[string]int64{"p99.9": 999, "p99.90": 999, "p99": 990, "99": 990, "p99.91": 1000, "p100": 1000, "p0.1": 1, "p0.0001": 1} {
		candidates, best, err := r.Suggest(share(t, text), time.Minute)
		require.NoError(t, err)
		assert.Equal(t, want, candidates[best].Policy.Capacity, text)
		assert.Equal(t, 1000-want, candidates[best].KeysRefused, text)
	}
	assert.Equal(t, "99.9", share(t, "p99.90").Percent())
}

func TestSharesThatAreNone(t *testing.T) {
	for _, text := range []string{"", "p", "p0", "p100.1", "-1", "p1/2", "1e1", "p99%", "pp9", "NaN"} {
		_, err := replay.ParseShare(text)
		assert.ErrorContains(t, err, "is not a share of the keys; write p99 or p99.9, up to p100", text)
	}
}

func TestATraceThatIsTooShortSuggestsNothing(t *testing.T) {
	calls := []trace.Record{at(5, "a", ""), at(5, "a", "")}
	r := play(t, replay.Options{Rates: replay.RoundRates()}, calls...)
	_, _, err := r.Suggest(share(t, "p99"), time.Minute)
	assert.ErrorContains(t, err, "the trace lasts 0s")

	r = play(t, replay.Options{Rates: []ratelimit.Policy{ratelimit.PerMinute(7)}}, calls...)
	candidates, best, err := r.Suggest(share(t, "p99"), time.Minute)
	require.NoError(t, err)
	assert.Equal(t, ratelimit.PerMinute(7).Burst(2), candidates[best].Policy)
}
