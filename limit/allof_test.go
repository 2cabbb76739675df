package limit_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/limit"
)

// A hanging limiter returns when the context of its caller is done.
type hanging struct{ limit.Refunder }

func (hanging) Consume(ctx context.Context, _ limit.Key, _ int64) (limit.Decision, error) {
	<-ctx.Done()
	return limit.Decision{}, ctx.Err()
}

func TestAllOf_HonorsContexts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := memory.NewLimiter(limit.PerHour(5))
		both := limit.AllOf(first, hanging{memory.NewLimiter(limit.PerHour(5))})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			_, err := both.Consume(ctx, limit.Key{"ann"}, 1)
			done <- err
		}()
		synctest.Wait()
		second, stop := context.WithTimeout(t.Context(), time.Millisecond)
		defer stop()
		_, err := both.Consume(second, limit.Key{"ann"}, 1)
		require.ErrorIs(t, err, context.DeadlineExceeded, "a call that waits for another may be canceled")
		cancel()
		require.ErrorIs(t, <-done, context.Canceled)
		d, err := first.Consume(t.Context(), limit.Key{"ann"}, 0)
		require.NoError(t, err)
		assert.EqualValues(t, 5, d.Remaining, "the tokens are refunded")
	})
}
