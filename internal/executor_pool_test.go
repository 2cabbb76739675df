package internal_test

import (
	"bytes"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/internal/executor"
)

// assertGoroutines compares the number of goroutines of pools with want.
func assertGoroutines(t *testing.T, want int) {
	t.Helper()
	synctest.Wait()
	stacks := make([]byte, 4<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	assert.Equal(t, want, bytes.Count(stacks, []byte("executor.(*Pool).work(")))
}

// runTogether runs n functions at the same time in a pool.
func runTogether(p *executor.Pool, n int) {
	release := make(chan struct{})
	for range n {
		p.Start(executor.Func(func() { <-release }))
	}
	synctest.Wait()
	close(release)
	synctest.Wait()
}

func TestPool_ReusesGoroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p executor.Pool
		p.Retain()
		runTogether(&p, 3)
		assertGoroutines(t, 3)
		runTogether(&p, 3)
		assertGoroutines(t, 3)
		p.Release()
		assertGoroutines(t, 0)
		time.Sleep(5 * time.Second) // the timer ends
	})
}

func TestPool_EndsGoroutinesThatAreNotNeeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p executor.Pool
		p.Retain()
		runTogether(&p, 100)
		for range 20 { // in each second, two are needed at the same time
			runTogether(&p, 2)
			time.Sleep(200 * time.Millisecond)
		}
		assertGoroutines(t, 2)
		time.Sleep(5 * time.Second)
		assertGoroutines(t, 0)
		p.Release()
	})
}

func TestPool_KeepsNoGoroutineWithoutUsers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p executor.Pool
		runTogether(&p, 3)
		assertGoroutines(t, 0)
	})
}

func TestPool_GoexitEndsOnlyItsGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p executor.Pool
		p.Retain()
		runTogether(&p, 2)
		p.Start(executor.Func(runtime.Goexit))
		assertGoroutines(t, 1)
		ran := false
		p.Start(executor.Func(func() { ran = true }))
		assertGoroutines(t, 1)
		assert.True(t, ran)
		p.Release()
		time.Sleep(5 * time.Second)
	})
}

func TestPool_BoundsIdleGoroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p executor.Pool
		p.Retain()
		runTogether(&p, 1000)
		assertGoroutines(t, 256)
		p.Release()
		time.Sleep(5 * time.Second)
	})
}
