package run_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/run"
)

// TestShutdown_ProducersHaveAGraceTime: one that ends in time completes its run, and the others end at once after it, for
// readers on another node too. Starts are refused meanwhile.
func TestShutdown_ProducersHaveAGraceTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.NewBroker()
		leaving, other := router.New(&router.Options{Broker: b}), router.New(&router.Options{Broker: b})
		opts := &run.Options[token]{ShutdownGrace: 5 * time.Second}
		rs, reader := run.New(leaving, "answer/{chat}", opts), run.New(other, "answer/{chat}", opts)
		quick := func(ctx context.Context, out *run.Output[token]) error {
			return errors.Join(sleep(ctx, 4*time.Second), out.Emit(token{"done"}))
		}
		_, err := rs.Start(t.Context(), "answer/quick", nil, quick)
		require.NoError(t, err)
		_, err = rs.Start(t.Context(), "answer/slow", nil, wait)
		require.NoError(t, err)
		began := time.Now()
		ended := make(chan error)
		go func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			ended <- leaving.Shutdown(ctx)
		}()
		synctest.Wait()
		_, err = rs.Start(t.Context(), "answer/late", nil, nothing)
		assert.Equal(t, errors.Unavailable, errors.CodeOf(err))
		for topic, want := range map[string]struct {
			state run.State
			after time.Duration
		}{"answer/quick": {run.Completed, 4 * time.Second}, "answer/slow": {run.Interrupted, 5 * time.Second}} {
			r, err := reader.Attach(t.Context(), topic, run.From{})
			require.NoError(t, err)
			for _, err := range r.Parts(t.Context()) {
				require.NoError(t, err)
			}
			r.Close()
			assert.Equal(t, want.state, r.Info().State, topic)
			assert.GreaterOrEqual(t, time.Since(began), want.after)
			assert.Less(t, time.Since(began), 6*time.Second)
		}
		require.NoError(t, <-ended)
		assert.Less(t, time.Since(began), 6*time.Second)
		require.NoError(t, other.Shutdown(t.Context()))
	})
}

// TestShutdown_EndsRunsWhenItsTimeIsOver does not wait for the lease, and not for the grace time.
func TestShutdown_EndsRunsWhenItsTimeIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.NewBroker()
		leaving, other := router.New(&router.Options{Broker: b}), router.New(&router.Options{Broker: b})
		rs, reader := run.New[token](leaving, "answer/{chat}", nil), run.New[token](other, "answer/{chat}", nil)
		_, err := rs.Start(t.Context(), "answer/1", nil, wait)
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_ = leaving.Shutdown(ctx)
		info, err := reader.Find(t.Context(), "answer/1", "")
		require.NoError(t, err)
		assert.Equal(t, run.Interrupted, info.State)
		require.NoError(t, other.Shutdown(t.Context()))
	})
}
