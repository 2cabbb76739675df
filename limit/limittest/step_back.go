package limittest

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/limit"
)

// blockAfterStepBack moves the clock back by a day during a block, which then lasts at most its length
// again.
func blockAfterStepBack(t *testing.T, h Harness) {
	t.Helper()
	l, ok := h.New(limit.PerSecond(10).Named("back-block")).(limit.Blocker)
	if !ok {
		return
	}
	for n, take := range []limit.Take{{Cost: 1}, {Cost: 1, MaxWait: time.Second}, {Cost: 1, Keep: 1}} {
		if !can(l, take) {
			continue
		}
		k := key(strconv.Itoa(n))
		want := func(left time.Duration, reason limit.Reason) {
			t.Helper()
			d, err := l.Take(context.Background(), k, take)
			require.NoError(t, err)
			assert.Equal(t, []any{left, reason}, []any{d.RetryAfter, d.Reason}, "%+v", take)
		}
		require.NoError(t, l.Block(context.Background(), k, time.Minute))
		h.Sleep(10 * time.Second)
		h.Rewind(24 * time.Hour)
		want(time.Minute, limit.Blocked)
		want(time.Minute, limit.Blocked)
		h.Sleep(59 * time.Second)
		want(time.Second, limit.Blocked)
		h.Sleep(time.Second)
		want(0, 0)
	}
}

// deficitAfterStepBack moves the clock back after a reservation, whose tokens would otherwise be
// granted twice.
func deficitAfterStepBack(t *testing.T, h Harness) {
	t.Helper()
	l := h.New(limit.PerSecond(1).Burst(10).Named("back-deficit"))
	if !can(l, limit.Take{MaxWait: time.Minute}) {
		return
	}
	for range 2 {
		d, err := limit.Reserve(context.Background(), l, key("ann"), 10, time.Minute)
		require.NoError(t, err)
		require.True(t, d.Allowed)
	}
	h.Rewind(time.Hour)
	assert.Equal(t, 11*time.Second, consume(t, l, key("ann"), 1).RetryAfter)
	h.Sleep(11 * time.Second)
	assert.True(t, consume(t, l, key("ann"), 1).Allowed)
}
