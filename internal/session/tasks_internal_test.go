package session

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestTasks_BeginWhileTheNodeIsClosed is a test for the race detector: connections that end late begin to
// store their sessions while Close waits.
func TestTasks_BeginWhileTheNodeIsClosed(t *testing.T) {
	for range 50 {
		var all tasks
		var running atomic.Int64
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for all.begin() {
					running.Add(1)
					running.Add(-1)
					all.end()
				}
			})
		}
		for range 2 { // Shutdown may be called twice
			wg.Go(func() {
				all.close(t.Context())
				assert.Zero(t, running.Load())
				assert.False(t, all.begin())
			})
		}
		wg.Wait()
	}
}

func TestTasks_CloseWaitsUntilContextIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all tasks
		finish := make(chan struct{})
		require.True(t, all.begin())
		go func() {
			defer all.end()
			<-finish
		}()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		all.close(ctx)
		assert.Equal(t, time.Second, time.Since(began))
		assert.False(t, all.begin(), "it must not run")
		close(finish)
	})
}
