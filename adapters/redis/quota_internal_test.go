package redis

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/testscale"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/adapter"
)

// TestQuota_ServerClockDecides lets the clocks of this process and of the server differ.
func TestQuota_ServerClockDecides(t *testing.T) {
	t.Parallel()
	m := startMovedServer(t)
	m.server.Set(time.Date(2024, 5, 1, 12, 30, 0, 0, time.UTC))
	process := m.server.Now()
	q := NewQuota(m.client, limit.QuotaPolicy{Max: 2})
	q.records.clock = func() time.Time { return process }
	for offset, want := range map[time.Duration]time.Duration{ // of this process to the server
		0:                 30 * time.Minute,
		59 * time.Minute:  30 * time.Minute,
		-59 * time.Minute: 30 * time.Minute,
	} {
		process = m.server.Now().Add(offset)
		d, err := limit.Consume(t.Context(), q, limit.Key{"ann", offset.String()}, 1)
		require.NoError(t, err)
		assert.Equal(t, limit.Decision{Allowed: true, Limit: 2, Remaining: 1, ResetAfter: want}, d, "offset %v", offset)
	}
	for _, offset := range []time.Duration{-2 * time.Hour, 2 * time.Hour, 1000 * time.Hour} {
		process = m.server.Now().Add(offset)
		d, err := limit.Consume(t.Context(), q, limit.Key{"ann"}, 1)
		assert.ErrorContains(t, err, "CLOCK the time of this server is 1714566600000000, and the caller's clock differs by more than a period", "offset %v", offset)
		assert.Zero(t, d, "an error is no denial")
	}
}

// TestSlidingLog_RecordIsBounded takes many tokens, whose log the script must shorten.
func TestSlidingLog_RecordIsBounded(t *testing.T) {
	t.Parallel()
	m := startMovedServer(t)
	l := NewSlidingLog(m.client, limit.WindowPolicy{Max: adapter.MaxLog, Window: time.Second})
	length := func() int64 { return m.client.StrLen(t.Context(), l.records.prefix+":ann").Val() }
	longest := int64(0)
	for range testscale.Tiers(150, 150, 600) {
		d, err := limit.Consume(t.Context(), l, limit.Key{"ann"}, 10)
		require.NoError(t, err)
		require.True(t, d.Allowed)
		longest = max(longest, length())
		m.sleep(10 * time.Millisecond)
	}
	assert.Greater(t, longest, int64(28+7*adapter.MaxLog))
	assert.LessOrEqual(t, longest, int64(28+7*adapter.MaxLog*5/4+70))
	for range 5 { // twice as many with reservations and charges, the oldest of which are forgotten
		_, err := limit.Reserve(t.Context(), l, limit.Key{"ann"}, adapter.MaxLog, time.Hour)
		require.NoError(t, err)
		require.NoError(t, limit.Charge(t.Context(), l, limit.Key{"ann"}, 3*adapter.MaxLog))
		assert.EqualValues(t, 28+7*2*adapter.MaxLog, length())
	}
	m.sleep(time.Minute)
	_, err := limit.Consume(t.Context(), l, limit.Key{"ann"}, 1)
	require.NoError(t, err)
	assert.EqualValues(t, 28+7, length())
}
