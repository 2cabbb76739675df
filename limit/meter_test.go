package limit_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/internal/fakelimiter"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/mode"
)

func holds(t *testing.T, l limit.Limiter, key limit.Key) int64 {
	t.Helper()
	d, err := limit.Inspect(t.Context(), l, key)
	require.NoError(t, err)
	return d.Remaining
}

func reserve(t *testing.T, m *limit.Meter, estimate int64, keys ...limit.Key) limit.Decision {
	t.Helper()
	d, err := m.Reserve(t.Context(), estimate, keys...)
	require.NoError(t, err)
	return d
}

func TestMeter_InvalidArguments(t *testing.T) {
	bucket, window := memory.NewLimiter(limit.PerMinute(10)), memory.NewSlidingLog(limit.WindowPolicy{Max: 1, Window: time.Second})
	for name, build := range map[string]func(){
		"no limiter":     func() { limit.NewMeter(time.Minute) },
		"no lease":       func() { limit.NewMeter(0, bucket) },
		"negative lease": func() { limit.NewMeter(-time.Minute, bucket) },
		"long lease":     func() { limit.NewMeter(25*time.Hour, bucket) },
		"microseconds":   func() { limit.NewMeter(time.Microsecond, bucket) },
		"a window":       func() { limit.NewMeter(time.Minute, bucket, window) },
	} {
		assert.Panics(t, build, name)
	}
	m := limit.NewMeter(time.Minute, bucket, memory.NewLimiter(limit.PerHour(10)))
	for _, keys := range [][]limit.Key{nil, {ann, ann, ann}} {
		_, err := m.Reserve(t.Context(), 1, keys...)
		require.ErrorContains(t, err, "needs one for all or one for each")
		require.ErrorContains(t, m.Settle(t.Context(), limit.Receipt{}, 1, keys...), "needs one for all or one for each")
	}
	_, err := m.Reserve(t.Context(), -1, ann)
	require.ErrorContains(t, err, "cost is -1")
	require.ErrorContains(t, m.Settle(t.Context(), limit.Receipt{}, -1, ann), "must not be negative")
	_, err = limit.NewMeter(time.Minute, bucket, bucket).Reserve(t.Context(), 1, ann)
	require.ErrorContains(t, err, "same limiter and the key")
	assert.EqualValues(t, 10, holds(t, bucket, ann))
}

// TestMeter_ExcessIsADebtOfAnySize has the numbers of a language model: 350 tokens at 100 per minute.
func TestMeter_ExcessIsADebtOfAnySize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket := memory.NewLimiter(limit.PerMinute(100).Named("minute"))
		m := limit.NewMeter(time.Hour, bucket, memory.NewLimiter(limit.PerHour(10_000).Named("hour")))
		d := reserve(t, m, 50, ann)
		require.True(t, d.Allowed)
		require.NoError(t, m.Settle(t.Context(), d.Receipt, 350, ann))
		d = reserve(t, m, 1, ann)
		assert.False(t, d.Allowed)
		assert.Equal(t, "minute", d.Policy)
		assert.Equal(t, 150*time.Second+600*time.Millisecond, d.RetryAfter)
		time.Sleep(d.RetryAfter)
		assert.True(t, reserve(t, m, 1, ann).Allowed)
	})
}

func TestMeter_KeysOfEachLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		user, company := memory.NewLimiter(limit.PerHour(10).Named("user")), memory.NewLimiter(limit.PerHour(15).Named("company"))
		m, acme := limit.NewMeter(time.Minute, user, company), limit.Key{"company", "acme"}
		d := reserve(t, m, 10, ann, acme)
		require.True(t, d.Allowed)
		denied := reserve(t, m, 6, limit.Key{"user", "bob"}, acme)
		assert.False(t, denied.Allowed)
		assert.Equal(t, "company", denied.Policy)
		assert.EqualValues(t, 10, holds(t, user, limit.Key{"user", "bob"}))
		require.NoError(t, m.Settle(t.Context(), d.Receipt, 3, ann, acme))
		assert.EqualValues(t, 7, holds(t, user, ann))
		assert.EqualValues(t, 12, holds(t, company, acme))
		assert.Equal(t, limit.Never, reserve(t, m, 11, ann, acme).RetryAfter)
	})
}

// TestMeter_EstimateReturnsAfterItsLease has a holder that never settles, and one that settles too late.
func TestMeter_EstimateReturnsAfterItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket := memory.NewLimiter(limit.PerHour(10))
		m := limit.NewMeter(time.Minute, bucket)
		reserve(t, m, 10, ann)
		assert.False(t, reserve(t, m, 1, ann).Allowed)
		time.Sleep(time.Minute)
		late := reserve(t, m, 10, ann)
		require.True(t, late.Allowed)
		time.Sleep(time.Minute)
		assert.EqualValues(t, 10, holds(t, bucket, ann))
		require.NoError(t, m.Settle(t.Context(), late.Receipt, 8, ann))
		assert.EqualValues(t, 2, holds(t, bucket, ann))
	})
}

func TestMeter_EstimateOfNothing(t *testing.T) {
	bucket := memory.NewLimiter(limit.PerHour(10))
	m := limit.NewMeter(time.Minute, bucket)
	d := reserve(t, m, 0, ann)
	require.True(t, d.Allowed)
	require.NoError(t, m.Settle(t.Context(), d.Receipt, 3, ann))
	assert.EqualValues(t, 7, holds(t, bucket, ann))
}

// TestMeter_SettlementCanBeRepeated settles after a canceled request, on two stores of which one fails.
func TestMeter_SettlementCanBeRepeated(t *testing.T) {
	settling := func(take limit.Take) bool { return take.Mode == mode.Settling }
	first := &fakelimiter.Limiter{Do: memory.NewLimiter(limit.PerHour(10)).Take, Fails: settling}
	second := &fakelimiter.Limiter{Do: memory.NewLimiter(limit.PerHour(10)).Take}
	m := limit.NewMeter(time.Minute, first, second)
	d := reserve(t, m, 4, ann)
	require.True(t, d.Allowed)
	first.Err = errDown
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.Error(t, m.Settle(ctx, d.Receipt, 9, ann))
	assert.EqualValues(t, 6, holds(t, first, ann))
	assert.EqualValues(t, 1, holds(t, second, ann), "it is settled although the first is not")
	first.Err = nil
	for range 2 {
		require.NoError(t, m.Settle(ctx, d.Receipt, 9, ann))
		assert.EqualValues(t, 1, holds(t, first, ann))
		assert.EqualValues(t, 1, holds(t, second, ann))
	}
}

func TestMeter_Describe(t *testing.T) {
	bucket := memory.NewLimiter(limit.PerMinute(100).Named("minute"))
	m := limit.NewMeter(time.Minute, bucket, memory.NewLimiter(limit.PerHour(1000).Named("hour")))
	require.Len(t, m.Describe(), 2)
	assert.Equal(t, "hour", m.Describe()[1].Name)
	assert.Same(t, bucket, m.Limiters()[0])
}
