package redis

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/redistest"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/mode"
)

// TestRecords_LooksWriteNothing looks at keys with reservations, during a block, and after their
// last window, on a clock that goes back before each look.
func TestRecords_LooksWriteNothing(t *testing.T) {
	t.Parallel()
	m := startMovedServer(t)
	prefix := redistest.Prefix(t)
	window := limit.WindowPolicy{Name: prefix, Max: 3, Window: time.Minute}
	log, counter := NewSlidingLog(m.client, window), NewSlidingCounter(m.client, window)
	quota := NewQuota(m.client, limit.QuotaPolicy{Name: prefix, Max: 3})
	quota.records.clock = m.server.Now
	ctx, key := t.Context(), limit.Key{"ann"}
	for _, one := range []struct {
		limit.Blocker
		records *records
	}{{log, log.records}, {counter, counter.records}, {quota, quota.records}} {
		requireSame := func(isStored bool) {
			t.Helper()
			m.server.Sleep(-30 * time.Second)
			stored := m.client.Get(ctx, one.records.prefix+":ann").Val()
			require.Equal(t, isStored, stored != "")
			for _, take := range []limit.Take{{}, {Cost: 1}, {Cost: 1, MaxWait: time.Hour}, {Cost: 4}} {
				take.Mode = mode.Looking
				_, err := one.Take(ctx, key, take)
				require.NoError(t, err)
				require.Equal(t, stored, m.client.Get(ctx, one.records.prefix+":ann").Val(), "%s: %+v", one.records.name, take)
			}
			m.server.Sleep(30 * time.Second)
		}
		m.sleep(time.Hour - time.Duration(m.server.Now().UnixNano())%time.Hour - time.Minute)
		requireSame(false)
		for _, cost := range []int64{3, 2} {
			d, err := limit.Reserve(ctx, one, key, cost, time.Hour)
			require.NoError(t, err)
			require.True(t, d.Allowed)
		}
		requireSame(true)
		require.NoError(t, one.Block(ctx, key, time.Hour))
		requireSame(true)
		require.NoError(t, one.Reset(ctx, key))
		taken, err := limit.Consume(ctx, one, key, 3)
		require.NoError(t, err)
		m.server.Sleep(taken.ResetAfter)
		d, err := limit.Inspect(ctx, one, key)
		require.NoError(t, err)
		require.Equal(t, limit.Decision{Allowed: true, Limit: 3, Remaining: 3}, d, "after its last window or period")
		m.server.Sleep(time.Minute)
		requireSame(false)
	}
}
