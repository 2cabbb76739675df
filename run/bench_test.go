package run_test

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
	"github.com/penstock-go/penstock/run"
)

// unbounded are limits that no benchmark reaches.
func unbounded() run.Limits {
	return run.Limits{Duration: time.Hour, Items: 1 << 30, Bytes: 1 << 40}
}

// BenchmarkItem compares an item of a run with a publication on a topic with a history, until all readers have
// received it: per item with one reader, and for each further reader. To print both beside each other:
//
//	go test ./run -run '^$' -bench Item
func BenchmarkItem(b *testing.B) {
	for _, readers := range []int{1, 10, 100} {
		b.Run(fmt.Sprintf("publication/readers=%d", readers), func(b *testing.B) { benchmarkPublications(b, readers) })
		b.Run(fmt.Sprintf("run/readers=%d", readers), func(b *testing.B) { benchmarkRun(b, readers) })
	}
}

// benchmarkPublications publishes b.N messages that all readers receive.
func benchmarkPublications(b *testing.B, readers int) {
	unlimited := router.Rate{PerSecond: router.Unlimited}
	r := router.New(&router.Options{Limits: router.Limits{
		HandshakesPerIP: unlimited, ConnsPerIP: router.Unlimited, QueueMessages: 1 << 20, QueueBytes: 1 << 30,
	}})
	router.Topic(r, "answer/{chat}", &router.TopicOptions{
		History:   router.History{Messages: 1000},
		Authorize: func(*router.Context, router.TopicMatch) error { return nil },
		Messages:  []router.Message{token{}},
	})
	var wg sync.WaitGroup
	for range readers {
		conn := routertest.Dial(b, http.HandlerFunc(r.ServeHTTP))
		routertest.Subscribe(conn, "answer/1")
		wg.Go(func() {
			for range b.N {
				routertest.Receive[token](conn)
			}
		})
	}
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		require.NoError(b, r.Publish("answer/1", token{"hello"}))
	}
	wg.Wait()
}

// benchmarkRun emits b.N items that all readers receive.
func benchmarkRun(b *testing.B, readers int) {
	unlimited := router.Rate{PerSecond: router.Unlimited}
	r := router.New(&router.Options{Limits: router.Limits{HandshakesPerIP: unlimited, ConnsPerIP: router.Unlimited}})
	rs := run.New(r, "answer/{chat}", &run.Options[token]{
		Limits: unbounded(), Authorize: func(*router.Context, run.Action, run.Topic) error { return nil },
	})
	begin := make(chan struct{})
	_, err := rs.Start(b.Context(), "answer/1", nil, func(_ context.Context, out *run.Output[token]) error {
		<-begin
		return emit(b.N, nil)(nil, out)
	})
	require.NoError(b, err)
	var wg sync.WaitGroup
	for range readers {
		conn := routertest.Dial(b, http.HandlerFunc(r.ServeHTTP))
		p := routertest.Start(conn, attach{Topic: "answer/1"}, routertest.Credit(1<<40))
		routertest.NextItem[run.Part[token]](p)
		wg.Go(func() {
			n := 0
			for part := range routertest.Items[run.Part[token]](p) {
				if part.Item != nil {
					n++
				}
			}
			if n != b.N {
				b.Errorf("a reader has received %d of %d items", n, b.N)
			}
		})
	}
	b.ReportAllocs()
	b.ResetTimer()
	close(begin)
	wg.Wait()
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
	measure("run", 48<<10, 5)
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
