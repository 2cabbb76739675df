package redis

import (
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/penstock-go/penstock/internal/redistest"
	"github.com/penstock-go/penstock/internal/testscale"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/adapter"
	"github.com/penstock-go/penstock/limit/limittest"
)

// TestLimiter_Contract tests limiters alone, and some rules of AllOf with them.
func TestLimiter_Contract(t *testing.T) {
	onServers(t, func(t *testing.T, m *movedServer) {
		cases := selectCases(limittest.Cases(), func(c limittest.Case) string { return c.Name })
		for _, c := range append(testscale.Sample(cases, 12), testscale.Sample(limittest.Regressions(), 2)...) {
			t.Run(c.Name, func(t *testing.T) { c.Run(t, m.harness(t)) })
		}
		t.Run("AllOf", func(t *testing.T) { limittest.AllOf(t, m.harness(t)) })
		for _, c := range testscale.SoakSample(cases, testscale.Pick(2, 10)) {
			if c.Name == "concurrent joint requests" {
				continue // needs refunds, which a slow server may not execute in time
			}
			t.Run("in AllOf: "+c.Name, func(t *testing.T) { c.Run(t, limittest.WithAllOf(m.harness(t))) })
		}
		groups := testscale.Tiers(1, 4, 20)
		t.Run("policies change", func(t *testing.T) { limittest.PolicyChanges(t, m.harness(t), groups) })
		t.Run("equals the model", func(t *testing.T) { limittest.EqualsModel(t, m.harness(t), groups) })
		t.Run("clock goes backwards", func(t *testing.T) { limittest.ClockGoesBackwards(t, m.harness(t), groups) })
	})
}

// rounds returns how many random policies a case tries. 0 is the default.
func rounds() int { return testscale.Tiers(1, 3, 0) }

func TestCooldown_Contract(t *testing.T) {
	onServers(t, func(t *testing.T, m *movedServer) {
		for _, c := range testscale.Sample(limittest.CooldownCases(), 6) {
			t.Run(c.Name, func(t *testing.T) {
				prefix := redistest.Prefix(t)
				c.Run(t, limittest.CooldownHarness{
					New: func(p limit.CooldownPolicy, onPenalty func(limit.Penalty)) limit.Limiter {
						l := NewCooldown(m.client, p, onPenalty)
						m.use(l.records, prefix)
						return l
					},
					Sleep: m.sleep, Rewind: m.rewind, Rounds: rounds(),
				})
			})
		}
	})
}

// testCounts runs cases of limiters that count.
func testCounts[P any](t *testing.T, cases []limittest.WindowCase[P], newLimiter func(goredis.UniversalClient, P) *CountLimiter[P]) {
	onServers(t, func(t *testing.T, m *movedServer) {
		for _, c := range testscale.Sample(selectCases(cases, func(c limittest.WindowCase[P]) string { return c.Name }), 6) {
			t.Run(c.Name, func(t *testing.T) {
				prefix := redistest.Prefix(t)
				c.Run(t, limittest.WindowHarness[P]{
					New: func(p P) adapter.Resetter {
						l := newLimiter(m.client, p)
						m.use(l.records, prefix)
						return l
					},
					Shared: true, Sleep: m.sleep, Now: m.server.Now, Rewind: m.rewind, Rounds: rounds(),
				})
			})
		}
	})
}

func TestSlidingLog_Contract(t *testing.T) {
	testCounts(t, limittest.SlidingLogCases(), NewSlidingLog)
}

func TestSlidingCounter_Contract(t *testing.T) {
	testCounts(t, limittest.SlidingCounterCases(), NewSlidingCounter)
}

func TestQuota_Contract(t *testing.T) {
	testCounts(t, limittest.QuotaCases(), NewQuota)
}
