package run_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/run"
)

// unbounded are limits that no benchmark reaches.
func unbounded() run.Limits {
	return run.Limits{Duration: time.Hour, Items: 1 << 30, Bytes: 1 << 40}
}

// TestMemory_OfRunsAndReaders bounds the memory and the goroutines of an active run that has nothing to do, and of a
// reader that waits, without the connection of a client.
func TestMemory_OfRunsAndReaders(t *testing.T) {
	const n = 500
	r := router.New(nil)
	rs := run.New(r, "answer/{chat}", &run.Options[token]{Limits: unbounded()})
	before, goroutines := memoryInUse(), runtime.NumGoroutine()
	measure := func(what string, most int64, mostGoroutines int) {
		bytes, added := (memoryInUse()-before)/n, (runtime.NumGoroutine()-goroutines)/n
		t.Logf("%d bytes and %d goroutines for each %s", bytes, added, what)
		assert.LessOrEqual(t, bytes, most, what)
		assert.LessOrEqual(t, added, mostGoroutines, what)
		before, goroutines = memoryInUse(), runtime.NumGoroutine()
	}
	for i := range n {
		_, err := rs.Start(t.Context(), fmt.Sprint("answer/", i), nil, wait)
		require.NoError(t, err)
	}
	measure("run", 24<<10, 1)
	var readers sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	for range n {
		reader, err := rs.Attach(ctx, "answer/0", run.From{})
		require.NoError(t, err)
		readers.Go(func() {
			defer reader.Close()
			for _, err := range reader.Parts(ctx) {
				assert.ErrorIs(t, err, context.Canceled)
			}
		})
	}
	measure("reader", 16<<10, 1)
	cancel()
	readers.Wait()
	for i := range n {
		_, err := rs.Stop(t.Context(), fmt.Sprint("answer/", i), "", "ann")
		require.NoError(t, err)
	}
	require.NoError(t, r.Shutdown(context.WithoutCancel(t.Context())))
}

// memoryInUse returns the bytes of the heap and of stacks that are in use.
func memoryInUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse) //nolint:gosec // small
}
