package redis

import (
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/penstock-go/penstock/internal/batch"
	"github.com/penstock-go/penstock/internal/batch/batchtest"
	"github.com/penstock-go/penstock/internal/keyname"
	"github.com/penstock-go/penstock/internal/redistest"
	"github.com/penstock-go/penstock/internal/testscale"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/adapter"
	"github.com/penstock-go/penstock/limit/limittest"
	"github.com/penstock-go/penstock/limit/limittest/serverclock"
)

// A movedServer is a Redis server whose clock a test moves, together with the clock by which limiters
// of this process keep what they know.
type movedServer struct {
	client goredis.UniversalClient
	server *serverclock.Clock
	local  batchtest.Clock
}

func startMovedServer(t *testing.T) *movedServer {
	clock := serverclock.New(t, time.Date(2024, 10, 27, 3, 33, 20, 0, time.UTC))
	return &movedServer{client: redistest.StartWithEnv(t, clock.Env()).Client(t), server: clock}
}

func (m *movedServer) sleep(d time.Duration) {
	m.server.Sleep(d)
	m.local.Local.Add(int64(d))
}

func (m *movedServer) rewind(d time.Duration) {
	m.server.Sleep(-d)
	m.local.Local.Add(int64(2 * batch.CacheTime))
}

func (m *movedServer) now() time.Duration { return time.Duration(m.local.Local.Load()) }

// TestLimiters_OnMovedServer tests limiters with the scripts and the expiry that they have in
// production.
func TestLimiters_OnMovedServer(t *testing.T) {
	t.Parallel()
	m := startMovedServer(t)
	for _, c := range testscale.SoakSample(limittest.Cases(), 5) {
		t.Run("bucket: "+c.Name, func(t *testing.T) { c.Run(t, m.harness(t)) })
	}
	t.Run("bucket: policies change", func(t *testing.T) { limittest.PolicyChanges(t, m.harness(t), testscale.Tiers(1, 2, 5)) })
	t.Run("bucket: equals the model", func(t *testing.T) { limittest.EqualsModel(t, m.harness(t), testscale.Tiers(1, 2, 5)) })
	t.Run("bucket: clock goes backwards", func(t *testing.T) { limittest.ClockGoesBackwards(t, m.harness(t), testscale.Tiers(1, 2, 5)) })
	for _, c := range testscale.SoakSample(limittest.CooldownCases(), 2) {
		t.Run("cooldown: "+c.Name, func(t *testing.T) {
			prefix := redistest.Prefix(t)
			c.Run(t, limittest.CooldownHarness{
				New: func(p limit.CooldownPolicy, onPenalty func(limit.Penalty)) limit.Limiter {
					l := NewCooldown(m.client, p, onPenalty)
					m.use(l.records, prefix)
					return l
				},
				Sleep: m.sleep, Rewind: m.rewind, Rounds: testscale.Tiers(1, 2, 5),
			})
		})
	}
	runWindows(t, m, "log", limittest.SlidingLogCases(), func(p limit.WindowPolicy) (adapter.Resetter, *records) {
		l := NewSlidingLog(m.client, p)
		return l, l.records
	})
	runWindows(t, m, "counter", limittest.SlidingCounterCases(), func(p limit.WindowPolicy) (adapter.Resetter, *records) {
		l := NewSlidingCounter(m.client, p)
		return l, l.records
	})
	runWindows(t, m, "quota", limittest.QuotaCases(), func(p limit.QuotaPolicy) (adapter.Resetter, *records) {
		l := NewQuota(m.client, p)
		l.records.clock = m.server.Now
		return l, l.records
	})
}

func (m *movedServer) harness(t *testing.T) limittest.Harness {
	prefix := redistest.Prefix(t)
	return limittest.Harness{
		New: func(p limit.Policy) limit.Limiter {
			l := NewLimiter(m.client, p)
			l.buckets.prefix = keyname.Join("penstock:limit", []string{prefix + keyname.OfPolicy(p)})
			l.buckets.now = m.now
			return l
		},
		Shared: true, Sleep: m.sleep, Rewind: m.rewind,
	}
}

// use gives records the clock of this process, and names of their own.
func (m *movedServer) use(r *records, prefix string) {
	r.prefix += prefix
	r.now = m.now
}

func runWindows[P any](t *testing.T, m *movedServer, kind string, cases []limittest.WindowCase[P], newLimiter func(P) (adapter.Resetter, *records)) {
	for _, c := range testscale.SoakSample(cases, 2) {
		t.Run(kind+": "+c.Name, func(t *testing.T) {
			prefix := redistest.Prefix(t)
			c.Run(t, limittest.WindowHarness[P]{
				New: func(p P) adapter.Resetter {
					l, records := newLimiter(p)
					m.use(records, prefix)
					return l
				},
				Shared: true, Sleep: m.sleep, Now: m.server.Now, Rewind: m.rewind, Rounds: testscale.Tiers(1, 2, 5),
			})
		})
	}
}
