package postgres

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/limit"
)

// TestLimits_SweepRemovesWhatHasExpired has more records than a step looks at, one of which a
// transaction of the application has changed.
func TestLimits_SweepRemovesWhatHasExpired(t *testing.T) {
	t.Parallel()
	s := newLimitServer(t)
	l := s.limits()
	count := func(table string) (n int) {
		require.NoError(t, s.pool.QueryRow(t.Context(), inSchema("SELECT count(*) FROM penstock."+table, s.schema)).Scan(&n))
		return n
	}
	short, long := l.NewLimiter(limit.PerMinute(5).Named("short")), l.NewQuota(limit.QuotaPolicy{Name: "long", Max: 5, Period: limit.Month})
	long.rows.clock = s.clock.Now
	semaphore := l.NewSemaphore("permits", 3)
	held := limitArgs{limitSemaphore, opTake, semaphore.permits, semaphore.lease.Microseconds(), 1} // of a process that has died
	_, err := l.do(t.Context(), semaphore.keys.call(&ann, held))
	require.NoError(t, err)
	for n := range sweepPage + 100 {
		key := limit.Key{fmt.Sprint(n)}
		_, err := limit.Consume(t.Context(), short, key, 1)
		require.NoError(t, err)
		if n%100 == 0 {
			_, err := limit.Consume(t.Context(), long, key, 1)
			require.NoError(t, err)
		}
	}
	sweep := func() {
		for range 3 {
			require.Less(t, l.sweepStep(t.Context()), sweepErrorPause)
		}
	}
	all := sweepPage + 100 + 11 + 1
	sweep()
	assert.Equal(t, all, count("limit_record"), "nothing has expired")
	s.Sleep(time.Minute)
	tx, err := s.pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = limit.Consume(t.Context(), WithTx(tx, short), limit.Key{"7"}, 1)
	require.NoError(t, err)
	sweep()
	assert.Equal(t, 11+1, count("limit_record"))
	assert.Zero(t, count("limit_permit"))
	require.NoError(t, tx.Commit(t.Context()))
	assert.EqualValues(t, 4, remaining(t, short, limit.Key{"7"}))
}

// TestLimits_CallsStartTheSweep makes calls until an expired record is gone.
func TestLimits_CallsStartTheSweep(t *testing.T) {
	t.Parallel()
	pool, schema := newSchema(t)
	l := NewLimitStore(pool, schema)
	_, err := limit.Consume(t.Context(), l.NewLimiter(limit.PerSecond(1000)), ann, 1)
	require.NoError(t, err)
	other := l.NewLimiter(limit.PerHour(1_000_000))
	require.Eventually(t, func() bool {
		_, err := limit.Consume(t.Context(), other, ann, 1)
		require.NoError(t, err)
		var n int
		require.NoError(t, pool.QueryRow(t.Context(), inSchema("SELECT count(*) FROM penstock.limit_record", schema)).Scan(&n))
		return n == 1
	}, time.Minute, 5*time.Millisecond)
}

func TestCooldown_ResetAllForgetsAllKeysOfItsName(t *testing.T) {
	t.Parallel()
	s := newLimitServer(t)
	l := s.limits()
	policy := limit.CooldownPolicy{Name: "login", Max: 1, Window: time.Hour, Penalty: time.Hour}
	cooldown := l.NewCooldown(policy, nil)
	policy.Name = "login2"
	other := l.NewCooldown(policy, nil)
	keys := []limit.Key{{}, {"ann"}, {"user", "ann"}, {"\xff\x00"}}
	for _, key := range keys {
		for range 2 {
			for _, c := range []*Cooldown{cooldown, other} {
				_, err := limit.Consume(t.Context(), c, key, 1)
				require.NoError(t, err)
			}
		}
	}
	require.NoError(t, cooldown.ResetAll(t.Context()))
	for _, key := range keys {
		n, err := cooldown.Count(t.Context(), key)
		require.NoError(t, err)
		assert.Zero(t, n)
		n, err = other.Count(t.Context(), key)
		require.NoError(t, err)
		assert.EqualValues(t, 1, n)
		d, err := limit.Consume(t.Context(), cooldown, key, 1)
		require.NoError(t, err)
		assert.True(t, d.Allowed)
	}
}
