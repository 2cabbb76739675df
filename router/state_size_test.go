package router_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// startLargeJoin lets a client that does not read join a state of 20,000 keys and more than 10 MB, with
// the default limits.
func startLargeJoin(t *testing.T) (counted *unreliableBroker, r *router.Router, client *routertest.Conn) {
	counted = unreliable()
	r = newStateRouter(counted, nil)
	text := strings.Repeat("x", 600)
	for n := range largeState {
		err := r.Publish("feed/a", Quote{Symbol: fmt.Sprint(n, text), N: n}, router.Stored(t.Context(), nil))
		require.NoError(t, err)
	}
	client = routertest.Dial(t, r)
	client.Pause()
	return counted, r, client
}

const largeState = 20_000

func TestStateParts_LargeStateNeedsLittleMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		counted, r, client := startLargeJoin(t)
		before := heapBytes()
		client.SendText(`{"type":"$ws:subscribe","meta":{"correlationId":"s"},"payload":{"topic":"feed/a","state":true}}`)
		synctest.Wait()
		assert.Less(t, heapBytes()-before, int64(3<<20), "while the client does not read")
		client.Resume()
		keys := map[string]bool{}
		for done := false; !done; {
			switch frame := client.Next(); frame.Type {
			case "QUOTE":
				keys[decodeFrame[Quote](t, frame).Symbol] = true
			case "$ws:state":
				done = true
			}
		}
		assert.Len(t, keys, largeState)
		assert.Greater(t, counted.reads.all().bytes, int64(10<<20))
		assert.Less(t, counted.reads.all().longest, int64(broker.DefaultStateBytes+5000), "and what is stored together with the last one")
		assert.LessOrEqual(t, onlyConn(t, r).QueueStats().PeakBytes, 1<<20)
	})
}

func heapBytes() int64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

// TestStateParts_DisconnectedClientReadsNoMore bounds what a client makes the server read that
// leaves, or that does not answer when the server closes the connection.
func TestStateParts_DisconnectedClientReadsNoMore(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(c *router.Conn, client *routertest.Conn){
		"by the client": func(_ *router.Conn, client *routertest.Conn) { client.Abort() },
		"by the server": func(c *router.Conn, _ *routertest.Conn) { c.Close(router.StatusNormal, "") },
	} {
		runSynctest(t, name, func(t *testing.T) {
			counted, r, client := startLargeJoin(t)
			client.SendText(`{"type":"$ws:subscribe","meta":{"correlationId":"s"},"payload":{"topic":"feed/a","state":true}}`)
			synctest.Wait()
			end(onlyConn(t, r), client)
			synctest.Wait()
			assert.Less(t, counted.reads.all().bytes, int64(2<<20))
		})
	}
}

// TestStateParts_ConnectionHoldsOnePart joins many topics with a client that does not read, and
// then reads.
func TestStateParts_ConnectionHoldsOnePart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const topics, keys = 20, 100
		counted := unreliable()
		opts := discardLogs(router.Options{Limits: router.Limits{QueueBytes: 30_000}})
		r := newStateRouter(counted, opts)
		for topic := range topics {
			for n := range keys {
				err := r.Publish(fmt.Sprint("feed/", topic), Quote{Symbol: fmt.Sprint(n), N: n}, router.Stored(t.Context(), nil))
				require.NoError(t, err)
			}
		}
		router.RPC(r, func(ctx *router.Context, m Echo) (Echoed, error) {
			var errs []error
			for topic := range topics {
				recovery, err := subscribeState(ctx, fmt.Sprint("feed/", topic))
				errs = append(errs, err)
				assert.True(t, recovery.More)
			}
			return Echoed(m), errors.Join(errs...)
		})
		client := routertest.Dial(t, r)
		client.Pause()
		client.SendText(`{"type":"$ws:hello"}`)
		client.SendText(`{"type":"ECHO","meta":{"correlationId":"e"},"payload":{}}`)
		synctest.Wait()
		assert.Less(t, counted.reads.all().parts, int64(2*topics-5), "the first part of each topic, one part that waits, and those that were sent")
		client.Resume()
		types := map[string]int{}
		for types["$ws:state"] < topics {
			types[client.Next().Type]++
		}
		assert.Equal(t, topics*keys, types["QUOTE"])
	})
}
