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
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/middleware/ratelimit"
	"github.com/penstock-go/penstock/router"
)

// playTiers changes the tier before each of many messages of a client, and returns what was
// admitted.
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
