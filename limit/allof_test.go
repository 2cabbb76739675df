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
)

func TestAllOf_HonorsContexts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := memory.NewLimiter(limit.PerHour(5))
		both := limit.AllOf(first, &fakelimiter.Limiter{Hangs: true})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			_, err := limit.Consume(ctx, both, limit.Key{"ann"}, 1)
			done <- err
		}()
		synctest.Wait()
		second, stop := context.WithTimeout(t.Context(), time.Millisecond)
		defer stop()
		_, err := limit.Consume(second, both, limit.Key{"ann"}, 1)
		require.ErrorIs(t, err, context.DeadlineExceeded, "a call that waits for another may be canceled")
		cancel()
		require.ErrorIs(t, <-done, context.Canceled)
		d, err := limit.Consume(t.Context(), first, limit.Key{"ann"}, 0)
		require.NoError(t, err)
		assert.EqualValues(t, 5, d.Remaining, "what was taken is undone")
	})
}
