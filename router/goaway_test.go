package router_test

import (
	"context"
	"encoding/json"
	"iter"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// goAwayDelay receives $ws:goaway and returns its delay.
func goAwayDelay(t *testing.T, client *routertest.Conn) time.Duration {
	t.Helper()
	frame := client.Next()
	require.Equal(t, "$ws:goaway", frame.Type)
	var payload struct {
		ReconnectAfterMs int64 `json:"reconnectAfterMs"`
	}
	require.NoError(t, json.Unmarshal(frame.Payload, &payload))
	return time.Duration(payload.ReconnectAfterMs) * time.Millisecond
}

// shutDown calls Shutdown with a deadline and returns how long it took, and its error.
func shutDown(r *router.Router, timeout time.Duration) (took time.Duration, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	start := time.Now()
	err = r.Shutdown(ctx)
	return time.Since(start), err
}

func TestGoAway_IsSentToGreetedClientsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := router.New(nil)
		router.RPC(r, echo)
		plain := routertest.Dial(t, r)
		var greeted []*routertest.Conn
		for range 100 {
			client := routertest.Dial(t, r)
			client.Greet()
			greeted = append(greeted, client)
		}
		start := time.Now()
		ended := make(chan error)
		go func() {
			_, err := shutDown(r, time.Minute)
			ended <- err
		}()
		delays := map[time.Duration]bool{}
		for _, client := range greeted {
			delay := goAwayDelay(t, client)
			assert.Greater(t, delay, time.Duration(0))
			assert.LessOrEqual(t, delay, time.Second+time.Millisecond)
			delays[delay] = true
			assert.Equal(t, Echoed{1}, routertest.Call[Echoed](client, Echo{1}), "the connection is served as before")
			go func() {
				time.Sleep(delay)
				client.Close()
			}()
		}
		assert.Greater(t, len(delays), 50, "the delays are random")
		assert.Equal(t, router.StatusServiceRestart, plain.Closed().Code)
		require.NoError(t, <-ended)
		assert.Less(t, time.Since(start), 1500*time.Millisecond, "Shutdown does not wait for clients that have left")
		assert.Zero(t, plain.Pending(), "a client that has not greeted does not know $ws:goaway")
	})
}

func TestGoAway_ClientThatStaysIsClosed(t *testing.T) {
	for name, tt := range map[string]struct{ timeout, want time.Duration }{
		"after twice the longest delay":            {time.Minute, 2 * time.Second},
		"after a quarter of the time that is left": {2 * time.Second, 500 * time.Millisecond},
	} {
		runSynctest(t, name, func(t *testing.T) {
			r := router.New(nil)
			client := routertest.Dial(t, r)
			client.Greet()
			took, err := shutDown(r, tt.timeout)
			require.NoError(t, err)
			assert.Equal(t, tt.want, took)
			assert.LessOrEqual(t, goAwayDelay(t, client), tt.want/2+time.Millisecond)
			assert.Equal(t, router.StatusServiceRestart, client.Closed().Code)
		})
	}
}

func TestGoAway_CallsFinishAndStreamsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		proceed := make(chan struct{})
		r := router.New(nil)
		router.RPC(r, func(*router.Context, Block) (Blocked, error) { <-proceed; return Blocked{}, nil })
		router.Stream(r, func(ctx *router.Context, _ Count) iter.Seq2[int, error] {
			return func(yield func(int, error) bool) {
				for n := 0; yield(n, nil); n++ {
					time.Sleep(300 * time.Millisecond)
				}
				assert.Equal(t, errors.Unavailable, errors.CodeOf(context.Cause(ctx)))
			}
		})
		client := routertest.Dial(t, r)
		client.Greet()
		client.SendText(`{"type":"BLOCK","meta":{"correlationId":"call"}}`)
		client.SendText(`{"type":"COUNT","meta":{"correlationId":"stream"},"payload":{"to":0}}`)
		synctest.Wait()
		ended := make(chan error)
		go func() {
			_, err := shutDown(r, time.Minute)
			ended <- err
		}()
		items, last := 0, routertest.Frame{}
		for last.Type != "RPC_ERROR" {
			if last = client.Next(); last.Type == "$ws:rpc-progress" {
				items++
			}
		}
		assert.Greater(t, items, 5, "the stream goes on after $ws:goaway")
		assert.Equal(t, "stream", last.Meta.CorrelationID)
		assert.Contains(t, last.Text, `"code":"UNAVAILABLE"`)
		close(proceed)
		assert.Equal(t, "BLOCKED", client.Next().Type)
		assert.Equal(t, router.StatusServiceRestart, client.Closed().Code)
		require.NoError(t, <-ended)
	})
}
