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

// TestLinesLeaveNothing has callers who come, give up, come back and leave at random. Only
// one of a route has its turn at any time.
func TestLinesLeaveNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := lines{routes: map[string]*line{}}
		random := rand.New(rand.NewPCG(1, 2))
		var mu sync.Mutex
		busy := map[string]int{}
		enter := func(route string, n int) int {
			mu.Lock()
			defer mu.Unlock()
			busy[route] += n
			return busy[route]
		}
		var wg sync.WaitGroup
		var served atomic.Int64
		for range 2000 {
			start, patience := time.Duration(random.IntN(3000)), time.Duration(random.IntN(3000))
			work, route := time.Duration(random.IntN(10)), string(rune('a'+random.IntN(5)))
			wg.Go(func() {
				time.Sleep(start)
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				number := l.join(route)
				defer l.leave(route)
				for range 2 {
					if l.await(ctx, route, number) != nil {
						return
					}
					assert.Equal(t, 1, enter(route, 1))
					time.Sleep(work)
					enter(route, -1)
					served.Add(1)
					l.pass(route)
				}
			})
		}
		wg.Wait()
		assert.Empty(t, l.routes)
		assert.Greater(t, served.Load(), int64(500))
	})
}

func TestOneWhoComesBackIsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := lines{routes: map[string]*line{}}
		first, second := l.join("a"), l.join("a")
		assert.NoError(t, l.await(t.Context(), "a", second))
		var order []uint64
		for _, number := range []uint64{l.join("a"), first, l.join("a")} {
			go func() {
				if l.await(t.Context(), "a", number) == nil {
					order = append(order, number)
					l.pass("a")
				}
			}()
			synctest.Wait()
		}
		assert.True(t, l.isBehind("a", second))
		l.pass("a")
		synctest.Wait()
		assert.Equal(t, []uint64{first, 3, 4}, order)
	})
}

// TestATurnThatComesTooLateIsPassedOn has it come as the caller gives up.
func TestATurnThatComesTooLateIsPassedOn(t *testing.T) {
	for range 100 {
		synctest.Test(t, func(t *testing.T) {
			l := lines{routes: map[string]*line{}}
			first, second := l.join("a"), l.join("a")
			assert.NoError(t, l.await(t.Context(), "a", first))
			ctx, cancel := context.WithCancel(t.Context())
			var err error
			go func() { err = l.await(ctx, "a", second) }()
			synctest.Wait()
			cancel()
			l.pass("a")
			synctest.Wait()
			assert.ErrorIs(t, err, context.Canceled)
			soon, stop := context.WithTimeout(t.Context(), time.Second)
			defer stop()
			assert.NoError(t, l.await(soon, "a", l.join("a")))
		})
	}
}
