package postgres

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/internal/batch/batchtest"
	"github.com/penstock-go/penstock/internal/testscale"
	"github.com/penstock-go/penstock/limit"
)

func TestJoint_EqualsLimitersInMemory(t *testing.T) {
	t.Parallel()
	s := newLimitServer(t)
	j := batchtest.Joint{Rounds: testscale.Tiers(3, 10, 30), Now: s.clock.Now, Sleep: s.Sleep, Forget: s.clock.Forget}
	j.New = func(p batchtest.Policies, onPenalty func(limit.Penalty)) []limit.Limiter {
		l := s.limits()
		q := l.NewQuota(p.Quota)
		q.rows.clock = s.clock.Now
		return []limit.Limiter{l.NewLimiter(p.Bucket), l.NewSlidingLog(p.Window), l.NewSlidingCounter(p.Window), q, l.NewCooldown(p.Cooldown, onPenalty)}
	}
	simulation := memory.NewSimulation(s.clock.Now)
	j.InMemory = func(p batchtest.Policies, onPenalty func(limit.Penalty)) []limit.Limiter {
		return []limit.Limiter{
			simulation.NewLimiter(p.Bucket), simulation.NewSlidingLog(p.Window), simulation.NewSlidingCounter(p.Window),
			simulation.NewQuota(p.Quota), simulation.NewCooldown(p.Cooldown, onPenalty),
		}
	}
	j.Run(t)
}

// TestJoint_CostsOneStatement has a limit per second and one per month.
func TestJoint_CostsOneStatement(t *testing.T) {
	t.Parallel()
	l, statements := countingLimits(t)
	both := limit.AllOf(l.NewLimiter(limit.PerSecond(1000).Named("second")), l.NewQuota(limit.QuotaPolicy{Name: "month", Max: 100, Period: limit.Month}))
	for range 100 {
		d, err := limit.Consume(t.Context(), both, ann, 1)
		require.NoError(t, err)
		assert.True(t, d.Allowed)
	}
	assert.EqualValues(t, 100, statements.Load())
	one, two := l.NewQuota(limit.QuotaPolicy{Name: "same", Max: 1}), l.NewQuota(limit.QuotaPolicy{Name: "same", Max: 2})
	_, err := limit.Consume(t.Context(), limit.AllOf(one, two), limit.Key{"ann"}, 1)
	assert.ErrorContains(t, err, `two requests charge "quota:same:ann"; give the policies of the limiters different names`)
}

// TestQuota_ServerClockDecides lets the clocks of this process and of the server differ.
func TestQuota_ServerClockDecides(t *testing.T) {
	t.Parallel()
	s := newLimitServer(t)
	s.clock.Server.Store(time.Date(2024, 5, 1, 12, 30, 0, 0, time.UTC).UnixMicro())
	s.setTime()
	process := s.clock.Now()
	q := s.limits().NewQuota(limit.QuotaPolicy{Max: 2})
	q.rows.clock = func() time.Time { return process }
	for _, offset := range []time.Duration{0, 59 * time.Minute, -59 * time.Minute} { // of this process to the server
		process = s.clock.Now().Add(offset)
		d, err := limit.Consume(t.Context(), q, limit.Key{"ann", offset.String()}, 1)
		require.NoError(t, err)
		assert.Equal(t, limit.Decision{Allowed: true, Limit: 2, Remaining: 1, ResetAfter: 30 * time.Minute}, d, "offset %v", offset)
	}
	bucket := s.limits().NewLimiter(limit.PerHour(5))
	for _, offset := range []time.Duration{-2 * time.Hour, 2 * time.Hour, 1000 * time.Hour} {
		process = s.clock.Now().Add(offset)
		d, err := limit.Consume(t.Context(), q, ann, 1)
		assert.ErrorContains(t, err, "the server's time is 2024-05-01 12:30:00 +0000 UTC, and the clock of this process differs by more than a period", "offset %v", offset)
		assert.Zero(t, d, "an error is no denial")
		_, err = limit.Consume(t.Context(), limit.AllOf(bucket, q), ann, 1)
		assert.Error(t, err)
		assert.EqualValues(t, 5, remaining(t, bucket, ann), "a joint call with an error takes nothing")
	}
}
