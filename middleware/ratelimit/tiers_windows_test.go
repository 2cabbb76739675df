package ratelimit_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/internal/testscale"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/middleware/ratelimit"
	"github.com/penstock-go/penstock/router"
)

// playTiers changes the tier before each of many messages of a client, and returns what was admitted.
func playTiers(t *testing.T, limiters []limit.Limiter, most int64, longest time.Duration, rng *rand.Rand) (granted []grant) {
	t.Helper()
	names := []string{"free", "pro", "max"}[:len(limiters)]
	tiers := map[string]limit.Limiter{}
	for i, name := range names {
		tiers[name] = limiters[i]
	}
	tier, cost, start := "", int64(0), time.Now()
	admit := ratelimit.Tiers(func(router.IngressContext) string { return tier }, tiers, &ratelimit.Options{
		Key: ratelimit.KeyPerUser, Cost: func(router.IngressContext) int64 { return cost },
	})
	for range 200 {
		tier, cost = names[rng.IntN(len(names))], 1+rng.Int64N(most)
		if rng.IntN(2) == 0 {
			d, err := limit.Inspect(t.Context(), tiers[tier], ratelimit.KeyPerUser(from("ann")))
			require.NoError(t, err)
			cost = max(d.Remaining, 1)
		}
		if admit(t.Context(), from("ann")) == nil {
			granted = append(granted, grant{time.Since(start), cost})
		}
		if rng.IntN(2) == 0 {
			sleep(rng, longest/4)
		}
	}
	return granted
}

// TestTiers_ChangesBetweenLogsGrantNoMoreThanTheirBound checks every interval.
func TestTiers_ChangesBetweenLogsGrantNoMoreThanTheirBound(t *testing.T) {
	for seed := range testscale.Pick[uint64](20, 200) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 8))
			var logs []limit.Limiter
			var most, longest int64
			rate := 0.0 // tokens per nanosecond
			for range 2 + rng.IntN(2) {
				p := limit.WindowPolicy{Max: 1 + rng.Int64N(40), Window: time.Duration(1+rng.Int64N(5000)) * time.Millisecond}
				logs = append(logs, memory.NewSlidingLog(p))
				most, longest, rate = max(most, p.Max), max(longest, int64(p.Window)), max(rate, float64(p.Max)/float64(p.Window))
			}
			granted := playTiers(t, logs, most, time.Duration(longest), rng)
			require.Greater(t, len(granted), 5)
			for i, first := range granted {
				sum := int64(0)
				for _, last := range granted[i:] {
					sum += last.tokens
					assert.LessOrEqual(t, float64(sum), float64(most)+rate*float64(last.at-first.at)+1e-6, "within %v, seed %d", last.at-first.at, seed)
				}
			}
		})
	}
}

// TestTiers_ChangesBetweenQuotasGrantOneQuota checks every hour.
func TestTiers_ChangesBetweenQuotasGrantOneQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		quotas := []limit.Limiter{
			memory.NewQuota(limit.QuotaPolicy{Name: "free", Max: 3}),
			memory.NewQuota(limit.QuotaPolicy{Name: "pro", Max: 20}),
			memory.NewQuota(limit.QuotaPolicy{Name: "max", Max: 13}),
		}
		granted := playTiers(t, quotas, 20, time.Hour, rand.New(rand.NewPCG(5, 8)))
		perHour := map[time.Time]int64{}
		for _, g := range granted {
			perHour[start.Add(g.at).Truncate(time.Hour)] += g.tokens
		}
		require.Greater(t, len(perHour), 10)
		var sums []int64
		for _, sum := range perHour {
			assert.LessOrEqual(t, sum, int64(20))
			sums = append(sums, sum)
		}
		assert.EqualValues(t, 20, slices.Max(sums), "the largest quota can be used")
	})
}

// TestTiers_ChangeBetweenCountersGrantsNoTokens has counters whose Max differ by less than a factor of two.
func TestTiers_ChangeBetweenCountersGrantsNoTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tier := "free"
		admit := ratelimit.Tiers(func(router.IngressContext) string { return tier }, map[string]limit.Limiter{
			"free": memory.NewSlidingCounter(limit.WindowPolicy{Max: 3, Window: time.Minute}),
			"pro":  memory.NewSlidingCounter(limit.WindowPolicy{Max: 5, Window: time.Minute}),
		}, nil)
		admitted := func() (n int) {
			for range 10 {
				if admit(t.Context(), from("ann")) == nil {
					n++
				}
			}
			return n
		}
		assert.Equal(t, 3, admitted())
		tier = "pro"
		assert.Equal(t, 2, admitted())
		tier = "free"
		time.Sleep(time.Minute)
		assert.Zero(t, admitted(), "five tokens count in the window before")
		time.Sleep(36 * time.Second)
		assert.Equal(t, 1, admitted())
	})
}
