package redis

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/internal/batch/batchtest"
	"github.com/penstock-go/penstock/internal/redistest"
	"github.com/penstock-go/penstock/internal/testscale"
	"github.com/penstock-go/penstock/limit"
)

func TestJoint_EqualsLimitersInMemory(t *testing.T) {
	t.Parallel()
	m := startMovedServer(t)
	j := batchtest.Joint{Rounds: testscale.Tiers(3, 4, 40), Now: m.server.Now, Sleep: m.sleep, Forget: m.local.Forget}
	j.New = func(p batchtest.Policies, onPenalty func(limit.Penalty)) []limit.Limiter {
		b, q, c := NewLimiter(m.client, p.Bucket), NewQuota(m.client, p.Quota), NewCooldown(m.client, p.Cooldown, onPenalty)
		log, counter := NewSlidingLog(m.client, p.Window), NewSlidingCounter(m.client, p.Window)
		b.buckets.now = m.now
		for _, r := range []*records{log.records, counter.records, q.records, c.records} {
			m.use(r, "")
		}
		return []limit.Limiter{b, log, counter, q, c}
	}
	simulation := memory.NewSimulation(m.server.Now)
	j.InMemory = func(p batchtest.Policies, onPenalty func(limit.Penalty)) []limit.Limiter {
		return []limit.Limiter{
			simulation.NewLimiter(p.Bucket), simulation.NewSlidingLog(p.Window), simulation.NewSlidingCounter(p.Window),
			simulation.NewQuota(p.Quota), simulation.NewCooldown(p.Cooldown, onPenalty),
		}
	}
	j.Run(t)
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
