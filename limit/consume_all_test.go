package limit_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/fakelimiter"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/adapter"
	"github.com/penstock-go/penstock/limit/mode"
)

func TestConsumeAll_RejectsInvalidRequests(t *testing.T) {
	l := memory.NewLimiter(limit.PerHour(5))
	bob := limit.Key{"user", "bob"}
	for want, requests := range map[string][]limit.Request{
		"limit: ConsumeAll needs a request":                                                           nil,
		"limit: cost is -1; it must not be negative":                                                  {{l, bob, 1}, {l, ann, -1}},
		`limit: two requests have the same limiter and the key ["user" "ann" "" ""]; add their costs`: {{l, ann, 1}, {l, bob, 1}, {l, ann, 2}},
	} {
		d, err := limit.ConsumeAll(t.Context(), requests...)
		require.EqualError(t, err, want)
		assert.Zero(t, d)
	}
	d, err := limit.Consume(t.Context(), l, ann, 0)
	require.NoError(t, err)
	assert.EqualValues(t, 5, d.Remaining)
}

var errDown = errors.New("the store is down")

func TestConsumeAll_UndoesIfLaterRequestFailsOrDenies(t *testing.T) {
	l := memory.NewLimiter(limit.PerHour(5))
	empty := struct{ limit.Limiter }{memory.NewLimiter(limit.PerHour(5))} // cannot decide in one step with l
	_, err := limit.ConsumeAll(t.Context(), limit.Request{Limiter: l, Key: ann, Cost: 2}, limit.Request{Limiter: &fakelimiter.Limiter{Err: errDown}, Key: ann, Cost: 1})
	require.ErrorIs(t, err, errDown)
	d, err := limit.ConsumeAll(t.Context(), limit.Request{Limiter: l, Key: ann, Cost: 2}, limit.Request{Limiter: empty, Key: ann, Cost: 6})
	require.NoError(t, err)
	assert.Equal(t, limit.Never, d.RetryAfter)
	d, err = limit.Consume(t.Context(), l, ann, 0)
	require.NoError(t, err)
	assert.EqualValues(t, 5, d.Remaining)
}

func TestConsumeAll_NamesPolicyThatDecided(t *testing.T) {
	users, rooms := memory.NewLimiter(limit.PerHour(5).Named("user")), memory.NewLimiter(limit.PerHour(2).Named("room"))
	d, err := limit.ConsumeAll(t.Context(), limit.Request{Limiter: users, Key: ann, Cost: 1}, limit.Request{Limiter: rooms, Key: limit.Key{"room"}, Cost: 2})
	require.NoError(t, err)
	assert.Equal(t, "room", d.Policy)
	d, err = limit.ConsumeAll(t.Context(), limit.Request{Limiter: users, Key: ann, Cost: 6}, limit.Request{Limiter: rooms, Key: limit.Key{"room"}, Cost: 2})
	require.NoError(t, err)
	assert.Equal(t, "user", d.Policy, "the denial with the longest RetryAfter")
}

func TestAllOf_DescribesReservesAndBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		second := memory.NewLimiter(limit.PerSecond(2).Named("second"))
		minute := memory.NewLimiter(limit.PerMinute(6).Burst(3).Named("minute"))
		both := limit.AllOf(second, minute)
		assert.Equal(t, []limit.Description{
			{Name: "second", Limit: 2, Window: time.Second, Refill: 1, Per: time.Second / 2},
			{Name: "minute", Limit: 3, Window: 30 * time.Second, Refill: 1, Per: 10 * time.Second},
		}, both.(adapter.Describer).Describe())

		for _, want := range []limit.Decision{
			{Allowed: true, Limit: 2, ResetAfter: time.Second, Policy: "second"},
			{Allowed: true, Limit: 3, RetryAfter: 10 * time.Second, ResetAfter: 40 * time.Second, Policy: "minute"},
			{Limit: 3, RetryAfter: 20 * time.Second, ResetAfter: 40 * time.Second, Policy: "minute"},
		} {
			d, err := limit.Reserve(t.Context(), both, ann, 2, 10*time.Second)
			require.NoError(t, err)
			assert.Equal(t, want, d)
		}
		_, err := limit.Reserve(t.Context(), both, ann, 2, 2*time.Hour)
		require.Error(t, err)

		blocker := both.(limit.Blocker)
		require.NoError(t, blocker.Block(t.Context(), ann, time.Hour))
		for _, l := range []limit.Limiter{both, second, minute} {
			d, err := limit.Consume(t.Context(), l, ann, 0)
			require.NoError(t, err)
			assert.Equal(t, limit.Blocked, d.Reason)
		}
		require.NoError(t, blocker.Reset(t.Context(), ann))
		d, err := limit.Consume(t.Context(), both, ann, 2)
		require.NoError(t, err)
		assert.True(t, d.Allowed)
	})
	quota := memory.NewQuota(limit.QuotaPolicy{Max: 1})
	cooldown := memory.NewCooldown(limit.CooldownPolicy{Max: 1, Window: time.Hour, Penalty: time.Hour}, nil)
	assert.Error(t, adapter.Check(limit.AllOf(quota, cooldown), limit.Take{MaxWait: 1}), "a cooldown cannot reserve")
	assert.NoError(t, adapter.Check(limit.AllOf(memory.NewLimiter(limit.PerHour(1)), quota), limit.Take{MaxWait: 1}))
	assert.Panics(t, func() { limit.AllOf(&fakelimiter.Limiter{Plain: true}) }, "it cannot undo")
}

func TestTake_AllRejectsWhatNeedsOneLimiter(t *testing.T) {
	requests := []limit.Request{{Limiter: memory.NewLimiter(limit.PerHour(5)), Key: limit.Key{"ann"}, Cost: 1}}
	for _, take := range []limit.Take{{Cost: 1}, {Keep: 1}, {Mode: mode.Charging}, {Mode: mode.Partial}, {MaxWait: -1}, {Lease: time.Second}} {
		_, err := take.All(t.Context(), requests...)
		assert.Error(t, err, "%+v", take)
	}
	d, err := limit.Take{Mode: mode.Looking}.All(t.Context(), requests...)
	assert.NoError(t, err)
	assert.True(t, d.Allowed)
	d, err = limit.ConsumeAll(t.Context(), requests...)
	assert.NoError(t, err)
	assert.EqualValues(t, 4, d.Remaining, "a look takes nothing")
}
