package durableobject

import (
	"crypto/rand"
	"testing"

	"github.com/penstock-go/penstock/adapters/durableobject/internal/workerdtest"
	"github.com/penstock-go/penstock/internal/testscale"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/limittest"
)

// testRounds returns how many random histories a test has. 0 is the default.
func testRounds() int {
	return testscale.Tiers(1, 1, 0)
}

// testWindows runs cases on a server. The function newLimiter returns a limiter and its records.
func testWindows[P any](t *testing.T, s *workerdtest.Server, cases []limittest.WindowCase[P], newLimiter func(*Client, P, clock) (limit.Resetter, *counts)) {
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			clock, prefix := newClock(), rand.Text()
			client := newTestClient(s, clock)
			c.Run(t, limittest.WindowHarness[P]{
				New: func(p P) limit.Resetter {
					l, counts := newLimiter(client, p, clock)
					counts.name += prefix
					return l
				},
				Shared: true,
				Sleep:  clock.Sleep,
				Now:    clock.Now,
				Rewind: clock.Rewind,
				Rounds: testRounds(),
			})
		})
	}
}

func TestSlidingLog_Contract(t *testing.T) {
	t.Parallel()
	testWindows(t, startTestClock(t, 2), limittest.SlidingLogCases(), func(client *Client, p limit.WindowPolicy, _ clock) (limit.Resetter, *counts) {
		l := NewSlidingLog(client, p)
		return l, l.counts
	})
}

func TestSlidingCounter_Contract(t *testing.T) {
	t.Parallel()
	testWindows(t, startTestClock(t, 2), limittest.SlidingCounterCases(), func(client *Client, p limit.WindowPolicy, _ clock) (limit.Resetter, *counts) {
		c := NewSlidingCounter(client, p)
		return c, c.counts
	})
}

func TestQuota_Contract(t *testing.T) {
	t.Parallel()
	testWindows(t, startTestClock(t, 2), limittest.QuotaCases(), func(client *Client, p limit.QuotaPolicy, c clock) (limit.Resetter, *counts) {
		q := NewQuota(client, p)
		q.clock = c.Now
		return q, q.counts
	})
}

func TestCooldown_Contract(t *testing.T) {
	t.Parallel()
	s := startTestClock(t, 2)
	for _, c := range limittest.CooldownCases() {
		t.Run(c.Name, func(t *testing.T) {
			clock, prefix := newClock(), rand.Text()
			client := newTestClient(s, clock)
			c.Run(t, limittest.CooldownHarness{
				New: func(p limit.CooldownPolicy, onPenalty func(limit.Penalty)) limit.Limiter {
					l := NewCooldown(client, p, onPenalty)
					l.name += prefix
					return l
				},
				Sleep:  clock.Sleep,
				Rewind: clock.Rewind,
				Rounds: testRounds(),
			})
		})
	}
}
