package ratelimit_test

import (
	"context"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/internal/fakelimiter"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/middleware/ratelimit"
	"github.com/penstock-go/penstock/router"
)

func TestMaxWait_CanceledMessageIsCharged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		admit := ratelimit.New(memory.NewLimiter(limit.PerMinute(1)), &ratelimit.Options{MaxWait: time.Hour})
		require.NoError(t, admit(t.Context(), from("ann")))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, admit(ctx, from("ann")), context.DeadlineExceeded)
		start := time.Now()
		require.NoError(t, admit(t.Context(), from("ann")))
		assert.Equal(t, 119*time.Second, time.Since(start), "the canceled message is charged")
	})
}

func TestMaxWait_MessagesThatAreNeverRejectedDoNotWait(t *testing.T) {
	for name, opts := range map[string]*ratelimit.Options{
		"charge only": {ChargeOnly: func(router.IngressContext) bool { return true }},
		"dry run":     {DryRun: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				opts.MaxWait = time.Minute
				admit := ratelimit.New(memory.NewLimiter(limit.PerMinute(1)), opts)
				start := time.Now()
				for range 5 {
					require.NoError(t, admit(t.Context(), from("ann")))
				}
				assert.Zero(t, time.Since(start))
			})
		})
	}
}

func TestMaxWait_WaitsForLimiterAndFallback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		primary := &fakelimiter.Limiter{Do: memory.NewLimiter(limit.PerSecond(1)).Take}
		admit := ratelimit.New(primary, &ratelimit.Options{MaxWait: time.Minute, Fallback: memory.NewLimiter(limit.PerMinute(1))})
		start := time.Now()
		for range 3 {
			require.NoError(t, admit(t.Context(), from("ann")))
		}
		assert.Equal(t, 2*time.Second, time.Since(start))
		primary.Err = io.ErrUnexpectedEOF
		for range 2 {
			require.NoError(t, admit(t.Context(), from("ann")))
		}
		assert.Equal(t, 62*time.Second, time.Since(start), "the fallback is slower")
	})
}
