package redis

import (
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/penstock-go/penstock/internal/batch/batchtest"
	"github.com/penstock-go/penstock/internal/redistest"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/adapter"
	"github.com/penstock-go/penstock/limit/limittest"
)

// testWindows runs cases on each kind of server. The function newLimiter returns a limiter, its
// records and its script.
func testWindows[P any](t *testing.T, cases []limittest.WindowCase[P], newLimiter func(goredis.UniversalClient, P, *batchtest.Clock) (adapter.Resetter, *records, string)) {
	testRecords(t, func(t *testing.T, client goredis.UniversalClient) {
		for _, c := range cases {
			t.Run(c.Name, func(t *testing.T) {
				clock, prefix := batchtest.NewClock(), redistest.Prefix(t)
				c.Run(t, limittest.WindowHarness[P]{
					New: func(p P) adapter.Resetter {
						l, records, script := newLimiter(client, p, clock)
						records.useClock(t, script, prefix, clock)
						return l
					},
					Shared: true,
					Sleep:  clock.Sleep,
					Now:    clock.Now,
					Rewind: clock.Rewind,
					Rounds: testRounds(t),
				})
			})
		}
	})
}

func TestSlidingLog_Contract(t *testing.T) {
	t.Parallel()
	testWindows(t, limittest.SlidingLogCases(), func(client goredis.UniversalClient, p limit.WindowPolicy, _ *batchtest.Clock) (adapter.Resetter, *records, string) {
		l := NewSlidingLog(client, p)
		return l, l.records, slidingLogLua
	})
}

func TestSlidingCounter_Contract(t *testing.T) {
	t.Parallel()
	testWindows(t, limittest.SlidingCounterCases(), func(client goredis.UniversalClient, p limit.WindowPolicy, _ *batchtest.Clock) (adapter.Resetter, *records, string) {
		l := NewSlidingCounter(client, p)
		return l, l.records, slidingCounterLua
	})
}

func TestQuota_Contract(t *testing.T) {
	t.Parallel()
	testWindows(t, limittest.QuotaCases(), func(client goredis.UniversalClient, p limit.QuotaPolicy, c *batchtest.Clock) (adapter.Resetter, *records, string) {
		l := NewQuota(client, p)
		l.records.clock = c.Now
		return l, l.records, quotaLua
	})
}
