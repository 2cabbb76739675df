package outbound

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// TestWaiters_OneTurnPerRouteAndNoQueueLeft runs callers that join, give up, wait again and leave
// at random times.
func TestWaiters_OneTurnPerRouteAndNoQueueLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := waiters{routes: map[string]*waitQueue{}}
		random := rand.New(rand.NewPCG(1, 2))
		var mu sync.Mutex
		holders := map[string]int{}
		countHolders := func(route string, n int) int {
			mu.Lock()
			defer mu.Unlock()
			holders[route] += n
			return holders[route]
		}
		var wg sync.WaitGroup
		var served atomic.Int64
		for range 2000 {
			start, timeout := time.Duration(random.IntN(3000)), time.Duration(random.IntN(3000))
			work, route := time.Duration(random.IntN(10)), string(rune('a'+random.IntN(5)))
			wg.Go(func() {
				time.Sleep(start)
				ctx, cancel := context.WithTimeout(t.Context(), timeout)
				defer cancel()
				number := w.join(route)
				defer w.leave(route)
				for range 2 {
					if w.await(ctx, route, number) != nil {
						return
					}
					assert.Equal(t, 1, countHolders(route, 1))
					time.Sleep(work)
					countHolders(route, -1)
					served.Add(1)
					w.pass(route)
				}
			})
		}
		wg.Wait()
		assert.Empty(t, w.routes)
		assert.Greater(t, served.Load(), int64(500))
	})
}

// TestWaiters_CanceledCallerPassesTheTurn gives a caller the turn at the moment its context ends.
func TestWaiters_CanceledCallerPassesTheTurn(t *testing.T) {
	for range 100 {
		synctest.Test(t, func(t *testing.T) {
			w := waiters{routes: map[string]*waitQueue{}}
			first, second := w.join("a"), w.join("a")
			assert.NoError(t, w.await(t.Context(), "a", first))
			ctx, cancel := context.WithCancel(t.Context())
			var err error
			go func() { err = w.await(ctx, "a", second) }()
			synctest.Wait()
			cancel()
			w.pass("a")
			synctest.Wait()
			assert.ErrorIs(t, err, context.Canceled)
			soon, stop := context.WithTimeout(t.Context(), time.Second)
			defer stop()
			assert.NoError(t, w.await(soon, "a", w.join("a")))
		})
	}
}
