package router_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

func TestShutdown_WaitsForHandlersThenCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := router.New(nil)
		router.RPC(r, func(_ *router.Context, m Echo) (Echoed, error) {
			time.Sleep(3 * time.Second)
			return Echoed(m), nil
		})
		conn, idle := routertest.Dial(t, r), routertest.Dial(t, r)
		conn.Send(Echo{1})
		synctest.Wait()
		start := time.Now()
		done := make(chan error)
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			done <- r.Shutdown(ctx)
		}()
		time.Sleep(time.Second)
		assert.Equal(t, router.CloseError{Code: 1012, Reason: "server is restarting"}, idle.Closed())
		resp := routertest.Rejected(t, r)
		assert.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
		conn.Send(Echo{2})
		assert.Equal(t, errors.Unavailable, routertest.ReceiveError(conn).Code, "new messages are rejected")
		assert.Equal(t, Echoed{1}, routertest.Receive[Echoed](conn))
		assert.EqualValues(t, 1012, conn.Closed().Code)
		require.NoError(t, <-done)
		assert.Equal(t, 3*time.Second, time.Since(start).Round(100*time.Millisecond))
	})
}

func TestShutdown_ReturnsAtDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := router.New(nil)
		proceed := make(chan struct{})
		router.On(r, func(*router.Context, Nothing) error { <-proceed; return nil })
		conn := routertest.Dial(t, r)
		conn.Send(Nothing{})
		synctest.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		start := time.Now()
		assert.ErrorIs(t, r.Shutdown(ctx), context.DeadlineExceeded)
		assert.Equal(t, time.Second, time.Since(start))
		assert.EqualValues(t, router.StatusAbnormal, conn.Closed().Code)
		close(proceed)
	})
}

func TestShutdown_WithoutConnectionsReturnsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := router.New(nil)
		require.NoError(t, r.Shutdown(context.Background()))
		require.NoError(t, r.Shutdown(context.Background()))
	})
}

func TestShutdown_PacesCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := router.New(nil)
		for range 1000 {
			routertest.Dial(t, r)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		start := time.Now()
		require.NoError(t, r.Shutdown(ctx))
		assert.InDelta(t, 1000, time.Since(start).Milliseconds(), 200)
	})
}

func TestShutdown_TenThousandUnresponsiveConnectionsEndAtDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conns := 10_000
		if testing.Short() {
			conns = 1000
		}
		var ended atomic.Int64
		r := router.New(&router.Options{
			Timeouts: router.Timeouts{Close: time.Minute, Write: time.Minute},
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
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		start := time.Now()
		require.ErrorIs(t, r.Shutdown(ctx), context.DeadlineExceeded)
		assert.Equal(t, 10*time.Second, time.Since(start))
		synctest.Wait()
		assert.EqualValues(t, conns, ended.Load())
		assert.Empty(t, slices.Collect(r.Conns()))
	})
}

func TestShutdown_SilentPeerEndsAfterCloseTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := router.New(nil)
		routertest.Dial(t, r).Freeze()
		synctest.Wait()
		start := time.Now()
		require.NoError(t, r.Shutdown(context.Background()))
		assert.Equal(t, 5*time.Second, time.Since(start))
	})
}

func TestShutdown_MessageInIngressIsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := router.New(nil)
		r.UseIngress(func(context.Context, router.IngressContext) error { time.Sleep(time.Second); return nil })
		router.RPC(r, echo)
		conn := routertest.Dial(t, r)
		conn.SendText(`{"type":"ECHO","meta":{"correlationId":"c"},"payload":{"n":5}}`)
		synctest.Wait()
		require.NoError(t, r.Shutdown(t.Context()))
		assert.Equal(t, errors.Unavailable, routertest.ReceiveError(conn).Code)
		assert.Equal(t, router.StatusServiceRestart, conn.Closed().Code)
	})
}

func TestShutdown_ExpiredContextClosesConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := router.New(nil)
		conn := routertest.Dial(t, r)
		synctest.Wait()
		ctx, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Minute))
		defer cancel()
		require.ErrorIs(t, r.Shutdown(ctx), context.DeadlineExceeded)
		conn.Closed()
	})
}

func TestShutdown_ClosesIdleConnections(t *testing.T) {
	var ended atomic.Int64
	r := router.New(&router.Options{OnClose: func(*router.Conn, router.CloseError) { ended.Add(1) }})
	server := httptest.NewServer(r)
	defer server.Close()
	const conns = 200
	for range conns {
		dialUpgraded(t, server) // never answers the close frame
	}
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, r.Shutdown(ctx), context.DeadlineExceeded)
	assert.Eventually(t, func() bool { return ended.Load() == conns }, 10*time.Second, time.Millisecond)
	assert.Empty(t, collect(r))
}
