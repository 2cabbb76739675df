//go:build !js

package fallback_test

import (
	"context"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/client"
	"github.com/penstock-go/penstock/internal/testscale"
	"github.com/penstock-go/penstock/router"
)

func TestClient_MessagesArriveExactlyOnceAndInOrder(t *testing.T) {
	eachMode(t, func(t *testing.T, mode string) {
		w := newWorld(t, &router.Options{Limits: router.Limits{MaxMessageBytes: 1 << 20, QueueBytes: 8 << 20}})
		proxy := &lossyProxy{mode: modes[mode], rand: rand.New(rand.NewPCG(1, 2))}
		w.intercept = proxy.roundTrip
		messages := testscale.Pick(300, 600) // with more, several losses in a row would exceed the timeout of a write
		atServer, atClient := make(chan int, 2*messages), make(chan int, 2*messages)
		router.On(w.router, func(ctx *router.Context, m say) error {
			atServer <- m.N
			return ctx.Conn().Send(m)
		})
		w.start()
		defer w.stop()
		c := w.connect(&client.Options{Queue: client.Queue{MaxWait: time.Hour}})
		client.On(c, func(m say, _ *client.Received) { atClient <- m.N })
		for n := range messages {
			pad := strings.Repeat("a\n", n%250)
			if n == 100 {
				pad = strings.Repeat("a line\n", 50_000)
			}
			require.NoError(t, client.Send(t.Context(), c, say{N: n, Pad: pad}))
			if n%5 == 0 {
				time.Sleep(100 * time.Millisecond)
			}
		}
		for n := range messages {
			require.Equal(t, n, <-atServer)
			require.Equal(t, n, <-atClient)
		}
		time.Sleep(time.Minute)
		assert.Empty(t, atServer)
		assert.Empty(t, atClient)
		opened := 1
		if mode == "poll" {
			opened = 2 // the first one as a stream, which was mute
		}
		assert.Equal(t, opened, w.count("open"), "there was one connection")
	})
}

func TestClient_ReturnsToWebSocketWithoutLosingACall(t *testing.T) {
	eachMode(t, func(t *testing.T, mode string) {
		w := newWorld(t, &router.Options{Resume: router.ResumeOptions{Within: time.Minute}})
		router.RPC(w.router, func(ctx *router.Context, m join) (joined, error) {
			time.Sleep(2 * time.Second)
			return joined{}, nil
		})
		w.intercept = modes[mode]
		w.start()
		defer w.stop()
		c := w.connect(&client.Options{Resume: true})
		require.NoError(t, c.Connect(t.Context()))
		before, _ := c.Connection()
		w.unblock.Store(true)
		time.Sleep(50 * time.Second)
		var transports []string
		var slow sync.WaitGroup
		for range testscale.Tiers(100, 300, 1200) {
			slow.Go(func() {
				_, err := client.Call[joined](context.Background(), c, join{})
				assert.NoError(t, err)
			})
			reply, err := client.Call[sum](t.Context(), c, add{})
			require.NoError(t, err)
			if !slices.Contains(transports, reply.Transport) {
				transports = append(transports, reply.Transport)
			}
			time.Sleep(500 * time.Millisecond)
		}
		slow.Wait()
		assert.Equal(t, []string{"http-" + mode, "websocket"}, transports)
		assert.Equal(t, []string{"http-" + mode + ": the response is 403", "websocket"}, w.reports())
		after, _ := c.Connection()
		assert.True(t, after.Resumed)
		assert.Equal(t, before.MemberID, after.MemberID)
		assert.Equal(t, 1, w.count("probe"))
		assert.Equal(t, 3, w.count("websocket"))
		for conn := range w.router.Conns() {
			assert.Equal(t, after.ID, conn.ID(), "the first connection has ended")
		}
	})
}

func TestClient_ProbesLessAndLessOften(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, nil)
		w.intercept = func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
			resp, err := next.RoundTrip(req)
			if exchangeOf(req) == "probe" && err == nil { // the proxy kills it
				time.AfterFunc(200*time.Millisecond, func() { _ = resp.Body.Close() })
			}
			return resp, err
		}
		w.start()
		defer w.stop()
		require.NoError(t, w.connect(nil).Connect(t.Context()))
		w.unblock.Store(true)
		time.Sleep(time.Hour)
		assert.Contains(t, []int{4, 5}, w.count("probe")) // after about 1, 3, 7, 15, 31 times 1 to 1.5 minutes
		before := w.count("probe")
		time.Sleep(2 * time.Hour)
		assert.InDelta(t, 3.2, w.count("probe")-before, 1.5)
		assert.Equal(t, 1, w.count("open"))
		assert.Equal(t, 2, w.count("websocket"))
	})
}

// If a connection by WebSocket is not opened although the probe has lasted, the client stays.
func TestClient_StaysOverHTTPIfOnlyTheProbeWorks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, nil)
		w.intercept = func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
			if exchangeOf(req) == "websocket" {
				return response(http.StatusForbidden, false), nil
			}
			return next.RoundTrip(req)
		}
		w.start()
		defer w.stop()
		c := w.connect(nil)
		require.NoError(t, c.Connect(t.Context()))
		w.unblock.Store(true)
		for range testscale.Tiers(30, 10*60, 30*60) {
			reply, err := client.Call[sum](t.Context(), c, add{})
			require.NoError(t, err)
			require.Equal(t, "http-stream", reply.Transport)
			time.Sleep(10 * time.Second)
		}
	})
}

func TestClient_EndsWithTheContextOfTheHandshake(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, nil)
		w.intercept = func(req *http.Request, _ http.RoundTripper) (*http.Response, error) {
			if exchangeOf(req) == "check" {
				return response(http.StatusNoContent, true), nil
			}
			<-req.Context().Done()
			return nil, context.Cause(req.Context())
		}
		w.start()
		defer w.stop()
		c := w.connect(nil)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		require.Error(t, c.Connect(ctx))
		require.NoError(t, c.Close(t.Context()))
		synctest.Wait()
	})
}
