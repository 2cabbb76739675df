package postgres

import (
	"testing"

	"github.com/penstock-go/penstock/internal/testscale"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/adapter"
	"github.com/penstock-go/penstock/limit/limittest"
)

// limiterHarness returns the harness of one case.
func limiterHarness(s *limitServer) limittest.Harness {
	s.reset()
	l := s.limits()
	return limittest.Harness{
		New:    func(p limit.Policy) limit.Limiter { return l.NewLimiter(p) },
		Shared: true,
		Sleep:  s.Sleep,
		Rewind: s.Rewind,
	}
}

func TestLimiter_Contract(t *testing.T) {
	t.Parallel()
	s := newLimitServer(t)
	for _, c := range append(testscale.Sample(limittest.Cases(), 8), testscale.Sample(limittest.Regressions(), 2)...) {
		t.Run(c.Name, func(t *testing.T) { c.Run(t, limiterHarness(s)) })
	}
	for _, c := range testscale.SoakSample(limittest.Cases(), testscale.Pick(1, 15)) {
		t.Run("in AllOf: "+c.Name, func(t *testing.T) { c.Run(t, limittest.WithAllOf(limiterHarness(s))) })
	}
	groups := testscale.Tiers(1, 20, 20)
	t.Run("AllOf", func(t *testing.T) { limittest.AllOf(t, limiterHarness(s)) })
	t.Run("policies change", func(t *testing.T) { limittest.PolicyChanges(t, limiterHarness(s), groups) })
	t.Run("equals the model", func(t *testing.T) { limittest.EqualsModel(t, limiterHarness(s), groups) })
	t.Run("clock goes backwards", func(t *testing.T) { limittest.ClockGoesBackwards(t, limiterHarness(s), groups) })
}

// limitRounds is how many policies a case with random ones tries.
func limitRounds() int { return testscale.Tiers(1, 3, 10) }

// testWindows runs cases of a limiter with records, in the quick tier some of them.
func testWindows[P any](t *testing.T, cases []limittest.WindowCase[P], newLimiter func(*limitServer, *LimitStore, P) adapter.Resetter) {
	s := newLimitServer(t)
	for _, c := range testscale.Sample(cases, 6) {
		t.Run(c.Name, func(t *testing.T) {
			s.reset()
			l := s.limits()
			c.Run(t, limittest.WindowHarness[P]{
				New:    func(p P) adapter.Resetter { return newLimiter(s, l, p) },
				Shared: true,
				Sleep:  s.Sleep,
				Now:    s.clock.Now,
				Rewind: s.Rewind,
				Rounds: limitRounds(),
			})
		})
	}
}

func TestSlidingLog_Contract(t *testing.T) {
	t.Parallel()
	testWindows(t, limittest.SlidingLogCases(), func(_ *limitServer, l *LimitStore, p limit.WindowPolicy) adapter.Resetter { return l.NewSlidingLog(p) })
}

func TestSlidingCounter_Contract(t *testing.T) {
	t.Parallel()
	testWindows(t, limittest.SlidingCounterCases(), func(_ *limitServer, l *LimitStore, p limit.WindowPolicy) adapter.Resetter {
		return l.NewSlidingCounter(p)
	})
}

func TestQuota_Contract(t *testing.T) {
	t.Parallel()
	testWindows(t, limittest.QuotaCases(), func(s *limitServer, l *LimitStore, p limit.QuotaPolicy) adapter.Resetter {
		q := l.NewQuota(p)
		q.rows.clock = s.clock.Now
		return q
	})
}

func TestCooldown_Contract(t *testing.T) {
	t.Parallel()
	s := newLimitServer(t)
	for _, c := range testscale.Sample(limittest.CooldownCases(), 6) {
		t.Run(c.Name, func(t *testing.T) {
			s.reset()
			l := s.limits()
			c.Run(t, limittest.CooldownHarness{
				New: func(p limit.CooldownPolicy, onPenalty func(limit.Penalty)) limit.Limiter {
					return l.NewCooldown(p, onPenalty)
				},
				Sleep:  s.Sleep,
				Rewind: s.Rewind,
				Rounds: limitRounds(),
			})
		})
	}
}
