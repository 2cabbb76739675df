package router_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

func TestOnOpen_RunsBeforeFirstMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opened := false
		r := router.New(&router.Options{OnOpen: func(context.Context, *router.Conn) error {
			time.Sleep(time.Second)
			opened = true
			return nil
		}})
		router.RPC(r, func(_ *router.Context, m Echo) (Echoed, error) {
			assert.True(t, opened)
			return Echoed(m), nil
		})
		conn := routertest.Dial(t, r)
		assert.Equal(t, Echoed{1}, routertest.Call[Echoed](conn, Echo{1}))
	})
}

func TestOnOpen_ErrorRejectsConnection(t *testing.T) {
	for _, tt := range []struct {
		name   string
		err    func() error
		want   router.CloseError
		failed bool
	}{
		{"with a code", func() error { return &router.CloseError{Code: 4001, Reason: "no room"} }, router.CloseError{Code: 4001, Reason: "no room"}, false},
		{"with a long reason", func() error { return &router.CloseError{Code: 4001, Reason: strings.Repeat("é", 100)} }, router.CloseError{Code: 4001, Reason: strings.Repeat("é", 61)}, false},
		{"with a code that must not travel", func() error { return &router.CloseError{Code: 1006} }, router.CloseError{Code: 1011}, false},
		{"with an error", func() error { return errors.New("secret") }, router.CloseError{Code: 1011, Reason: "internal error"}, true},
		{"with a panic", func() error { panic("secret") }, router.CloseError{Code: 1011, Reason: "internal error"}, true},
	} {
		runSynctest(t, tt.name, func(t *testing.T) {
			failed := false
			r := router.New(&router.Options{
				OnOpen:  func(context.Context, *router.Conn) error { return tt.err() },
				OnClose: func(*router.Conn, router.CloseError) { t.Error("it has never been open") },
				OnError: func(router.ErrorReport) { failed = true },
			})
			router.RPC(r, func(*router.Context, Echo) (Echoed, error) {
				t.Error("the handler was called")
				return Echoed{}, nil
			})
			conn := routertest.Dial(t, r)
			assert.Equal(t, tt.want, conn.Closed())
			synctest.Wait()
			assert.Equal(t, tt.failed, failed)
			assert.Empty(t, collect(r))
		})
	}
}

func collect(r *router.Router) []*router.Conn {
	var conns []*router.Conn
	for c := range r.Conns() {
		conns = append(conns, c)
	}
	return conns
}

func TestOnClose_ReceivesCloseCode(t *testing.T) {
	for _, tt := range []struct {
		name string
		end  func(client *routertest.Conn, server *router.Conn)
		want router.CloseError
	}{
		{"the client closes", func(client *routertest.Conn, _ *router.Conn) { client.Close() }, router.CloseError{Code: 1000}},
		{"the server closes", func(_ *routertest.Conn, server *router.Conn) { server.Close(4000, "enough") }, router.CloseError{Code: 4000, Reason: "enough"}},
		{"the client vanishes", func(client *routertest.Conn, _ *router.Conn) { client.Abort() }, router.CloseError{Code: 1006}},
	} {
		runSynctest(t, tt.name, func(t *testing.T) {
			var ends recorder[router.CloseError]
			r := router.New(&router.Options{OnClose: func(_ *router.Conn, end router.CloseError) { ends.add(end) }})
			conn := routertest.Dial(t, r)
			synctest.Wait()
			server := collect(r)[0]
			assert.Same(t, server, r.Conn(server.ID()))
			tt.end(conn, server)
			synctest.Wait()
			assert.Equal(t, []router.CloseError{tt.want}, ends.all())
			assert.Nil(t, r.Conn(server.ID()))
			assert.Error(t, server.Send(Nothing{}))
			assert.Error(t, server.Subscribe("go"))
			assert.ErrorIs(t, server.Context().Err(), context.Canceled)
		})
	}
}

func TestConn_CloseCancelsHandlers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ended recorder[string]
		r := router.New(&router.Options{OnClose: func(*router.Conn, router.CloseError) { ended.add("the connection") }})
		router.On(r, func(ctx *router.Context, m Say) error {
			<-ctx.Done()
			time.Sleep(time.Second) // winding up
			ended.add(ctx.Type() + " " + m.Text)
			return ctx.Err()
		})
		router.RPC(r, func(ctx *router.Context, _ Echo) (Echoed, error) {
			<-ctx.Done()
			ended.add(ctx.Type())
			return Echoed{}, ctx.Err()
		})
		conn := routertest.Dial(t, r)
		conn.Send(Echo{})
		conn.Send(Say{Room: "a", Text: "the first"})
		conn.Send(Say{Room: "a", Text: "has arrived, too"})
		conn.Send(Echo{}) // nobody waits for the answer of a call that has not begun
		synctest.Wait()
		conn.Abort()
		time.Sleep(time.Minute)
		assert.Equal(t, []string{"ECHO", "SAY the first", "SAY has arrived, too", "the connection"}, ended.all())
	})
}

func TestConn_CloseCancelsHandlersWhileReadingIsPaused(t *testing.T) {
	ended := make(chan struct{}, 200)
	r := router.New(&router.Options{Timeouts: router.Timeouts{Ping: 20 * time.Millisecond}})
	router.On(r, func(ctx *router.Context, _ Say) error {
		<-ctx.Done()
		ended <- struct{}{}
		return ctx.Err()
	})
	server := httptest.NewServer(r)
	defer server.Close()
	ws := dialServer(t, server)
	for range 200 { // more than may wait for their turn
		write(t, ws, websocket.MessageText, `{"type":"SAY","payload":{"room":"a","text":"b"}}`)
	}
	require.NoError(t, ws.CloseNow())
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Fatal("the handler was not cancelled")
	}
}

func TestPing_UnresponsiveClientIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ends recorder[router.CloseError]
		r := router.New(&router.Options{
			OnClose:  func(_ *router.Conn, end router.CloseError) { ends.add(end) },
			Timeouts: router.Timeouts{Ping: 20 * time.Second, Pong: 5 * time.Second},
		})
		router.RPC(r, echo)
		alive, dead := routertest.Dial(t, r), routertest.Dial(t, r)
		dead.Freeze()
		time.Sleep(26 * time.Second)
		assert.Equal(t, []router.CloseError{{Code: router.StatusAbnormal}}, ends.all())
		time.Sleep(time.Hour)
		assert.Equal(t, Echoed{1}, routertest.Call[Echoed](alive, Echo{1}), "whoever answers pings stays")
	})
}

func TestPing_BusyHandlerKeepsConnectionOpen(t *testing.T) {
	r := router.New(&router.Options{Timeouts: router.Timeouts{Ping: 10 * time.Millisecond, Pong: 10 * time.Millisecond}})
	turn := make(chan struct{})
	router.On(r, func(ctx *router.Context, m Say) error {
		<-turn
		return ctx.Send(m)
	})
	server := httptest.NewServer(r)
	defer server.Close()
	ws := dialServer(t, server)
	const messages = 200 // more than may wait for their turn, so that nobody reads pongs
	for range messages {
		write(t, ws, websocket.MessageText, `{"type":"SAY","payload":{"room":"a","text":"b"}}`)
	}
	time.AfterFunc(200*time.Millisecond, func() { close(turn) }) // many silences later
	for range messages {
		assert.Contains(t, read(t, ws), `"SAY"`)
	}
}

func TestShutdown(t *testing.T) {
	runSynctest(t, "waits for what handlers are at, then closes with 1012", func(t *testing.T) {
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
		assert.Equal(t, errors.Unavailable, routertest.ReceiveError(conn).Code, "no new messages")
		assert.Equal(t, Echoed{1}, routertest.Receive[Echoed](conn))
		assert.EqualValues(t, 1012, conn.Closed().Code)
		require.NoError(t, <-done)
		assert.Equal(t, 3*time.Second, time.Since(start).Round(100*time.Millisecond))
	})
	runSynctest(t, "ends by its deadline", func(t *testing.T) {
		r := router.New(nil)
		free := make(chan struct{})
		router.On(r, func(*router.Context, Nothing) error { <-free; return nil })
		conn := routertest.Dial(t, r)
		conn.Send(Nothing{})
		synctest.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		start := time.Now()
		assert.ErrorIs(t, r.Shutdown(ctx), context.DeadlineExceeded)
		assert.Equal(t, time.Second, time.Since(start))
		assert.EqualValues(t, router.StatusAbnormal, conn.Closed().Code)
		close(free)
	})
	runSynctest(t, "without connections is done at once", func(t *testing.T) {
		r := router.New(nil)
		require.NoError(t, r.Shutdown(context.Background()))
		require.NoError(t, r.Shutdown(context.Background()))
	})
	runSynctest(t, "spreads the closes", func(t *testing.T) {
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
	runSynctest(t, "of ten thousand, some silent and some stuck, ends in time", func(t *testing.T) {
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
				conn.Freeze() // loses what comes, and is silent
			case 1:
				conn.Pause() // takes nothing, so that writing to it blocks
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
	runSynctest(t, "does not wait for ever for a silent peer", func(t *testing.T) {
		r := router.New(nil)
		routertest.Dial(t, r).Freeze()
		synctest.Wait()
		start := time.Now()
		require.NoError(t, r.Shutdown(context.Background()))
		assert.Equal(t, 5*time.Second, time.Since(start))
	})
}

func TestSlowConsumer_DefaultClosesConnection(t *testing.T) {
	var reported recorder[router.LimitExceeded]
	r := router.New(&router.Options{
		Limits:          router.Limits{QueueBytes: 100_000},
		OnLimitExceeded: reported.add,
	})
	router.On(r, func(ctx *router.Context, m Say) error {
		for ctx.Send(m) == nil {
			continue
		}
		return nil
	})
	server := httptest.NewServer(r)
	defer server.Close()
	ws, _, err := websocket.Dial(t.Context(), server.URL, nil)
	require.NoError(t, err)
	defer ws.CloseNow()
	text := strings.Repeat("x", 10_000)
	write(t, ws, websocket.MessageText, `{"type":"SAY","payload":{"room":"a","text":"`+text+`"}}`)
	require.Eventually(t, func() bool { return len(reported.all()) == 1 }, 10*time.Second, time.Millisecond)
	assert.Equal(t, router.LimitQueue, reported.all()[0].Kind)
	assert.EqualValues(t, 100_000, reported.all()[0].Limit)
	ws.SetReadLimit(-1)
	for err == nil {
		_, _, err = ws.Read(t.Context())
	}
	assert.Equal(t, websocket.StatusTryAgainLater, websocket.CloseStatus(err), "%v", err)
}
