package router_test

import (
	"context"
	"encoding/json"
	"iter"
	"net/http/httptest"
	"strings"
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
		{"with a code", func() error { return &router.CloseError{Code: 4001, Reason: "server is full"} }, router.CloseError{Code: 4001, Reason: "server is full"}, false},
		{"with a long reason", func() error { return &router.CloseError{Code: 4001, Reason: strings.Repeat("é", 100)} }, router.CloseError{Code: 4001, Reason: strings.Repeat("é", 61)}, false},
		{"with a code that must not be sent", func() error { return &router.CloseError{Code: 1006} }, router.CloseError{Code: 1011}, false},
		{"with an error", func() error { return errors.New("secret") }, router.CloseError{Code: 1011, Reason: `{"code":"INTERNAL","message":"internal error"}`}, true},
		{"with a panic", func() error { panic("secret") }, router.CloseError{Code: 1011, Reason: `{"code":"INTERNAL","message":"internal error"}`}, true},
	} {
		runSynctest(t, tt.name, func(t *testing.T) {
			failed := false
			r := router.New(&router.Options{
				OnOpen: func(context.Context, *router.Conn) error { return tt.err() },
				OnClose: func(*router.Conn, router.CloseError) {
					t.Error("OnClose was called for a connection that never opened")
				},
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

func TestOnClose_ReceivesCloseCode(t *testing.T) {
	for _, tt := range []struct {
		name string
		end  func(client *routertest.Conn, server *router.Conn)
		want router.CloseError
	}{
		{"the client closes", func(client *routertest.Conn, _ *router.Conn) { client.Close() }, router.CloseError{Code: 1000}},
		{"the server closes", func(_ *routertest.Conn, server *router.Conn) { server.Close(4000, "done") }, router.CloseError{Code: 4000, Reason: "done"}},
		{"the client disconnects without a close frame", func(client *routertest.Conn, _ *router.Conn) { client.Abort() }, router.CloseError{Code: 1006}},
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
			time.Sleep(time.Second) // cleanup
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
		conn.Send(Say{Room: "a", Text: "first"})
		conn.Send(Say{Room: "a", Text: "second"})
		conn.Send(Echo{}) // must not start, because its answer could not be sent
		synctest.Wait()
		conn.Abort()
		time.Sleep(time.Minute)
		assert.Equal(t, []string{"ECHO", "SAY first", "SAY second", "the connection"}, ended.all())
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
	for range 200 { // more than the serial queue holds, so that reading is paused
		write(t, ws, websocket.MessageText, `{"type":"SAY","payload":{"room":"a","text":"b"}}`)
	}
	require.NoError(t, ws.CloseNow())
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Fatal("the handler was not canceled")
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
		alive, frozen := routertest.Dial(t, r), routertest.Dial(t, r)
		frozen.Freeze()
		time.Sleep(26 * time.Second)
		assert.Equal(t, []router.CloseError{{Code: router.StatusAbnormal}}, ends.all())
		time.Sleep(time.Hour)
		assert.Equal(t, Echoed{1}, routertest.Call[Echoed](alive, Echo{1}), "a client that answers pings stays connected")
	})
}

func TestConnRTT_IsFromPingToPong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := router.New(&router.Options{Timeouts: router.Timeouts{Ping: 20 * time.Second, Pong: 5 * time.Second}})
		router.RPC(r, echo)
		client := routertest.Dial(t, r)
		synctest.Wait()
		conn := collect(r)[0]
		assert.Zero(t, conn.RTT())
		client.Pause()
		require.NoError(t, conn.Send(Echoed{1})) // for the read that has begun
		time.Sleep(23 * time.Second)
		assert.Zero(t, conn.RTT(), "nothing has answered the ping")
		client.Resume()
		synctest.Wait()
		assert.Equal(t, 3*time.Second, conn.RTT())
		client.Next()
		time.Sleep(20*time.Second - time.Microsecond)
		assert.Equal(t, 3*time.Second, conn.RTT())
		time.Sleep(time.Second)
		assert.Equal(t, time.Microsecond, conn.RTT(), "answered at once, which is not 0")
	})
}

func TestConnRTT_IgnoresPongThatWaitedToBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := router.New(&router.Options{Timeouts: router.Timeouts{Ping: 20 * time.Second, Pong: 5 * time.Second}})
		router.RPC(r, echo)
		r.UseIngress(func(context.Context, router.IngressContext) error {
			time.Sleep(3 * time.Second) // on the goroutine that reads
			return nil
		})
		client := routertest.Dial(t, r)
		synctest.Wait()
		conn := collect(r)[0]
		client.Pause()
		require.NoError(t, conn.Send(Echoed{1})) // for the read that has begun
		time.Sleep(21 * time.Second)
		client.Send(Echo{1})
		time.Sleep(time.Second)
		client.Resume()
		time.Sleep(3 * time.Second)
		assert.Zero(t, conn.RTT(), "the pong has waited for two seconds")
		time.Sleep(20 * time.Second)
		assert.Equal(t, time.Microsecond, conn.RTT())
	})
}

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
