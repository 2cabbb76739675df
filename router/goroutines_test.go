package router_test

import (
	"bytes"
	"log/slog"
	"net/http/httptest"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// TestConcurrent_EventsAreBounded sends more events than Limits.Concurrency. The next one starts
// whenever one of those that run has ended, in whatever way.
func TestConcurrent_EventsAreBounded(t *testing.T) {
	ends := map[string]func(){
		"by returning":      func() {},
		"with a panic":      func() { panic("expected") },
		"by runtime.Goexit": runtime.Goexit,
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const limit, messages = 3, 20
				var started atomic.Int64
				release := make(chan struct{})
				r := router.New(&router.Options{Limits: router.Limits{Concurrency: limit}, Logger: slog.New(slog.DiscardHandler)})
				router.On(r, func(*router.Context, Say) error {
					started.Add(1)
					<-release
					end()
					return nil
				}).Concurrent()
				router.RPC(r, func(_ *router.Context, m Echo) (Echoed, error) { return Echoed(m), nil })
				conn := routertest.Dial(t, r)
				for range messages {
					conn.Send(Say{"a", "b"})
				}
				conn.SendText(`{"type":"ECHO","meta":{"correlationId":"c"},"payload":{}}`)
				for n := range int64(messages - limit) {
					synctest.Wait()
					assert.Equal(t, limit+n, started.Load())
					release <- struct{}{}
				}
				synctest.Wait()
				assert.EqualValues(t, messages, started.Load())
				for frame := conn.Next(); frame.Type != "ECHOED"; frame = conn.Next() {
					assert.Equal(t, "ERROR", frame.Type)
				}
				close(release)
			})
		})
	}
}

// TestRoute_OwnGoroutine looks at the stacks of handlers.
func TestRoute_OwnGoroutine(t *testing.T) {
	for name, own := range map[string]bool{"on the event loop": false, "on its own goroutine": true} {
		t.Run(name, func(t *testing.T) {
			r := router.New(discardLogs(router.Options{}))
			stacks := make(chan []byte, 1)
			route := router.RPC(r, func(_ *router.Context, m Blob) (Blob, error) {
				buf := make([]byte, 16<<10)
				stacks <- buf[:runtime.Stack(buf, false)]
				return m, nil
			})
			if own {
				route.OwnGoroutine()
			}
			server := httptest.NewServer(r)
			defer server.Close()
			client := dialStream(t, server)
			onLoop := 0
			for n := 0; n < 100 || (!own && onLoop == 0 && n < 10_000); n++ {
				require.NoError(t, client.send(`{"type":"BLOB","meta":{"correlationId":"1"},"payload":{"text":"a"}}`))
				answer, err := client.next()
				require.NoError(t, err)
				assert.Contains(t, string(answer), `"text":"a"`)
				if bytes.Contains(<-stacks, []byte("netpoll.(*loop)")) {
					onLoop++
				}
			}
			switch {
			case own:
				assert.Zero(t, onLoop)
			case runtime.GOOS == "linux":
				assert.NotZero(t, onLoop, "other goroutines read while the loop is busy, but not every message")
			}
		})
	}
}

func TestRoute_OwnGoroutineAfterServingPanics(t *testing.T) {
	r := router.New(discardLogs(router.Options{}))
	route := router.RPC(r, func(_ *router.Context, m Blob) (Blob, error) { return m, nil })
	r.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
	assert.PanicsWithValue(t, "router: OwnGoroutine called after the router began to serve; call it before the first request", func() { route.OwnGoroutine() })
}

// TestServe_FloodLetsOtherConnectionsRunBetweenItsChunks counts how many messages of a connection
// that floods the router are handled between the arrival of a message on another connection and its
// handler. The messages of the flood do not end where the router's reads end.
func TestServe_FloodLetsOtherConnectionsRunBetweenItsChunks(t *testing.T) {
	t.Run("handlers do not block", func(t *testing.T) { testFlood(t, 0) })
	t.Run("some handlers block", func(t *testing.T) { testFlood(t, 2000) })
}

// testFlood lets each handler block whose number is a multiple of blocksEach.
func testFlood(t *testing.T, blocksEach int64) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const quietConns, rounds, bufferBytes = 10, 30, 16 << 10
	r := router.New(&router.Options{Limits: withoutRates(router.Limits{})})
	var flooded atomic.Int64
	router.On(r, func(*router.Context, Say) error {
		if n := flooded.Add(1); blocksEach > 0 && n%blocksEach == 0 {
			time.Sleep(time.Microsecond)
		}
		return nil
	})
	handled := make(chan int64, quietConns)
	router.RPC(r, func(_ *router.Context, m Echo) (Echoed, error) {
		handled <- flooded.Load()
		return Echoed(m), nil
	})
	addr := listenOn(t, r)
	quiet := make([]*segmentClient, quietConns)
	for i := range quiet {
		quiet[i] = dialSegments(t, addr)
		quiet[i].send(numberedCall(0))
		quiet[i].requireReply(0)
		<-handled
	}
	flood := dialSegments(t, addr)
	const message = `{"type":"SAY","payload":{"room":"r","text":"flood"}}`
	stop := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		var messages []string
		for range 1000 {
			messages = append(messages, message)
		}
		for {
			select {
			case <-stop:
				return
			default:
				flood.send(messages...)
			}
		}
	}()
	require.Eventually(t, func() bool { return flooded.Load() > 3000 }, time.Minute, time.Millisecond)
	perChunk := int64(bufferBytes/(len(message)+6) + 1)
	var worst int64
	for n := range rounds {
		for _, c := range quiet {
			c.send(numberedCall(n))
		}
		arrived := flooded.Load()
		for range quiet {
			worst = max(worst, <-handled-arrived)
		}
		for _, c := range quiet {
			c.requireReply(n)
		}
	}
	close(stop)
	t.Logf("at most %d messages of the flood, %d per chunk", worst, perChunk)
	assert.LessOrEqual(t, worst, 3*perChunk)
	<-ended
}
