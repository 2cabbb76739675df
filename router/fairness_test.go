package router_test

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/router"
)

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
	addr := listenOn(t, r, "tcp")
	quiet := make([]*segmentClient, quietConns)
	for i := range quiet {
		quiet[i] = dialSegments(t, "tcp", addr)
		quiet[i].send(numberedCall(0))
		quiet[i].requireReply(0)
		<-handled
	}
	flood := dialSegments(t, "tcp", addr)
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
