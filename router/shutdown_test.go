package router_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/testscale"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

func TestShutdown_TenThousandUnresponsiveConnectionsEndAtDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		conns := testscale.Tiers(1000, 2000, 10_000)
		var ended atomic.Int64
		r := router.New(&router.Options{
			Limits:   withoutRates(router.Limits{}),
			Timeouts: router.Timeouts{Pong: time.Minute, Message: time.Minute},
			OnClose:  func(*router.Conn, router.CloseError) { ended.Add(1) },
		})
		for i := range conns {
			conn := routertest.Dial(t, r)
			switch i % 10 {
			case 0:
				conn.Freeze() // discards everything and never answers
			case 1:
				conn.Pause() // reads nothing, so that writes to it block
			}
		}
		for c := range r.Conns() {
			require.NoError(t, c.Send(Say{"go", "on"}))
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		defer cancel()
		start := time.Now()
		require.ErrorIs(t, r.Shutdown(ctx), context.DeadlineExceeded)
		assert.Equal(t, 3*time.Second, time.Since(start))
		synctest.Wait()
		assert.EqualValues(t, conns, ended.Load())
		assert.Empty(t, slices.Collect(r.Conns()))
	})
}

// reconnectDelay returns the delay in the reason of a close frame of Shutdown.
func reconnectDelay(t *testing.T, closed router.CloseError) time.Duration {
	t.Helper()
	assert.Equal(t, router.StatusServiceRestart, closed.Code)
	assert.LessOrEqual(t, len(closed.Reason), 123)
	var reason struct {
		Code         errors.Code
		Message      string
		RetryAfterMs int64
	}
	require.NoError(t, json.NewDecoder(strings.NewReader(closed.Reason)).Decode(&reason), "%s", closed.Reason)
	assert.Equal(t, errors.Unavailable, reason.Code)
	assert.Equal(t, "server is restarting", reason.Message)
	assert.Positive(t, reason.RetryAfterMs)
	return time.Duration(reason.RetryAfterMs) * time.Millisecond
}

func TestShutdown_CloseReasonSpreadsReconnects(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ conns, timeout, spread int }{ // both in seconds
		"there is time to pace the closes": {2000, 60, 1},
		"the closes come at once":          {2000, 0, 2},
		"few connections":                  {100, 0, 1},
	} {
		runSynctest(t, name, func(t *testing.T) {
			r := router.New(&router.Options{Limits: withoutRates(router.Limits{})})
			var clients []*routertest.Conn
			for range tt.conns {
				clients = append(clients, routertest.Dial(t, r))
			}
			synctest.Wait()
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(tt.timeout)*time.Second+time.Millisecond)
			defer cancel()
			start := time.Now()
			if err := r.Shutdown(ctx); err != nil {
				require.ErrorIs(t, err, context.DeadlineExceeded)
			}
			if tt.timeout > 0 {
				assert.InDelta(t, 2000, time.Since(start).Milliseconds(), 200, "1,000 in a second")
			}
			highest := time.Duration(0)
			for _, client := range clients {
				if closed := client.Closed(); closed.Code == router.StatusServiceRestart {
					highest = max(highest, reconnectDelay(t, closed))
				}
			}
			assert.InDelta(t, tt.spread, highest.Seconds(), 0.1*float64(tt.spread))
		})
	}
}

func TestShutdown_LameDuckPhaseServesConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const phase = 3 * time.Second
		r := router.New(&router.Options{Timeouts: router.Timeouts{LameDuck: phase}})
		router.RPC(r, echo)
		health := func() int {
			w := httptest.NewRecorder()
			r.ServeHealth(w, httptest.NewRequest(http.MethodGet, "/readyz", nil))
			return w.Code
		}
		before := routertest.Dial(t, r)
		assert.Equal(t, http.StatusOK, health())
		assert.True(t, r.Healthy())
		start := time.Now()
		done := make(chan error, 1)
		go func() { done <- r.Shutdown(t.Context()) }()
		synctest.Wait()
		time.Sleep(phase - time.Second)
		assert.Equal(t, http.StatusServiceUnavailable, health())
		assert.False(t, r.Healthy())
		during := routertest.Dial(t, r)
		for _, client := range []*routertest.Conn{before, during} {
			assert.Equal(t, Echoed{1}, routertest.Call[Echoed](client, Echo{1}))
		}
		require.NoError(t, <-done)
		assert.Less(t, time.Since(start), phase+time.Second)
		assert.GreaterOrEqual(t, time.Since(start), phase)
		for _, client := range []*routertest.Conn{before, during} {
			reconnectDelay(t, client.Closed())
		}
		assert.Equal(t, http.StatusServiceUnavailable, routertest.Refused(t, r).StatusCode)
		assert.Equal(t, http.StatusServiceUnavailable, health())
	})
}

func TestShutdown_LameDuckPhaseEndsEarly(t *testing.T) {
	for name, end := range map[string]func(r *router.Router, cancel func()){
		"with the context":  func(_ *router.Router, cancel func()) { cancel() },
		"with another call": func(r *router.Router, _ func()) { _ = r.Shutdown(context.Background()) },
	} {
		runSynctest(t, name, func(t *testing.T) {
			r := router.New(&router.Options{Timeouts: router.Timeouts{LameDuck: time.Hour}})
			client := routertest.Dial(t, r)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			start := time.Now()
			go func() { _ = r.Shutdown(ctx) }()
			synctest.Wait()
			end(r, cancel)
			client.Closed()
			assert.Less(t, time.Since(start), time.Minute)
			cancel()
		})
	}
}
