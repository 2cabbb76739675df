package fallback_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/router"
)

// TestConn_LineBreaksBecomeSpaces has a message that JSON permits on several lines.
func TestConn_LineBreaksBecomeSpaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := router.New(nil)
		router.On(r, func(ctx *router.Context, _ Echo) error { return ctx.Send(lines{}) })
		client := newClient(t, r.HTTPFallback(nil))
		events := client.open("stream")
		defer events.close()
		client.up(`{"type":"ECHO","payload":{"n":1}}`)
		assert.JSONEq(t, `{"type":"LINES","payload":{"a":"b"}}`, withoutTime(t, client.receive(events).data))
	})
}

type lines struct{ A string }

func (lines) MessageType() string { return "LINES" }

func (lines) MarshalJSON() ([]byte, error) { return []byte("{\n\"a\":\r\n\"b\"}"), nil }

// TestConn_EndsTenSecondsAfterItsLastResponse has a client that goes away, and one that returns in time.
func TestConn_EndsTenSecondsAfterItsLastResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ends := &recorder[router.CloseError]{}
		r := router.New(&router.Options{OnClose: func(_ *router.Conn, end router.CloseError) { ends.add(end) }})
		client := newClient(t, r.HTTPFallback(nil))
		client.open("stream").close()
		time.Sleep(9 * time.Second)
		client.events("stream").close()
		time.Sleep(9 * time.Second)
		assert.Empty(t, ends.all())
		assert.Equal(t, http.StatusNoContent, client.acknowledge(), "an up is no response")
		time.Sleep(2 * time.Second)
		assert.Equal(t, []router.CloseError{{Code: router.StatusAbnormal}}, ends.all())
		resp := client.down("stream")
		assert.Equal(t, http.StatusConflict, resp.StatusCode)
		require.NoError(t, resp.Body.Close())
	})
}

// TestConn_EndIsKeptForTenSeconds has a client whose response was lost together with the last events.
func TestConn_EndIsKeptForTenSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := router.New(nil)
		client := newClient(t, r.HTTPFallback(&router.FallbackOptions{MaxConns: 1}))
		client.open("stream").close()
		conn := onlyConn(t, r)
		require.NoError(t, conn.Send(Echo{N: 1}))
		conn.Close(4001, "done")
		for range 3 {
			time.Sleep(3 * time.Second)
			assert.Empty(t, collect(r))
			events := client.events("poll")
			e, err := events.next()
			require.NoError(t, err)
			assert.EqualValues(t, 1, e.id)
			e, err = events.next()
			require.NoError(t, err)
			assert.Equal(t, sseEvent{"close", 2, `{"code":4001,"reason":"done"}`}, e)
			events.close()
		}
		assert.Equal(t, http.StatusServiceUnavailable, client.status("open", `{"mode":"poll"}`), "it has the only slot")
		time.Sleep(2 * time.Second)
		assert.Equal(t, http.StatusConflict, client.acknowledge())
		client.ack = 0
		client.open("poll").close()
	})
}

// TestConn_ClientCloses closes with a code and without one, alone and behind messages.
func TestConn_ClientCloses(t *testing.T) {
	for name, tt := range map[string]struct {
		closing string
		want    router.CloseError
	}{
		"code":       {`{"code":4000,"reason":"bye"}`, router.CloseError{Code: 4000, Reason: "bye"}},
		"no code":    {`{}`, router.CloseError{Code: 1005}},
		"wrong code": {`{"code":1004}`, router.CloseError{Code: 1002}},
	} {
		for _, seq := range []int{0, 1} {
			runSynctest(t, fmt.Sprintf("%s/%d", name, seq), func(t *testing.T) {
				ends, handled := &recorder[router.CloseError]{}, &recorder[int]{}
				r := router.New(&router.Options{OnClose: func(_ *router.Conn, end router.CloseError) { ends.add(end) }})
				router.On(r, func(_ *router.Context, m Echo) error {
					handled.add(m.N)
					return nil
				})
				client := newClient(t, r.HTTPFallback(nil))
				events := client.open("stream")
				defer events.close()
				body := fmt.Sprintf(`{"secret":%q,"seq":%d,"close":%s}`, client.secret, seq, tt.closing) + "\n" + `{"type":"ECHO","payload":{"n":1}}`
				assert.Equal(t, http.StatusNoContent, client.status("up", body))
				e := client.receive(events)
				assert.Equal(t, "close", e.name)
				synctest.Wait()
				if assert.Len(t, ends.all(), 1) {
					assert.Equal(t, tt.want.Code, ends.all()[0].Code)
				}
				assert.Len(t, handled.all(), seq, "without a seq there are no messages")
			})
		}
	}
}

// TestConn_ClientThatDoesNotAnswerPingsIsLost has a response that can be written for ever, as a proxy may pretend, and a
// client that acknowledges.
func TestConn_ClientThatDoesNotAnswerPingsIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := router.New(nil)
		h := r.HTTPFallback(nil)
		silent, alive := newClient(t, h), newClient(t, h)
		start := time.Now()
		events := silent.open("stream")
		defer events.close()
		go func() {
			events := alive.open("stream")
			defer events.close()
			for {
				e, err := events.next()
				if err != nil {
					return
				}
				alive.ack = e.id
				time.Sleep(5 * time.Second)
				alive.acknowledge()
			}
		}()
		assert.Equal(t, sseEvent{"ping", 1, ""}, must(events.next()))
		assert.Equal(t, 25*time.Second, time.Since(start))
		assert.Equal(t, sseEvent{"close", 2, `{"code":1006,"reason":""}`}, must(events.next()))
		assert.Equal(t, 35*time.Second, time.Since(start))
		time.Sleep(10 * time.Minute)
		assert.Len(t, collect(r), 1)
	})
}

// TestConn_ShutdownMovesClients checks what a client receives while its node shuts down, and that the server can be
// shut down afterwards.
func TestConn_ShutdownMovesClients(t *testing.T) {
	for _, mode := range []string{"stream", "poll"} {
		runSynctest(t, mode, func(t *testing.T) {
			r := router.New(nil)
			server := &http.Server{Handler: r.HTTPFallback(nil)}
			client := clientOf(t, serveInMemory(t, server).Do)
			events := client.open(mode)
			next := func() sseEvent {
				if mode == "poll" {
					events.close()
					events = client.events(mode)
				}
				return client.receive(events)
			}
			client.up(`{"type":"$ws:hello","meta":{"correlationId":"h"}}`)
			assert.Contains(t, next().data, "$ws:welcome")
			done := make(chan error)
			go func() {
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				defer cancel()
				if err := r.Shutdown(ctx); err != nil {
					done <- err
				}
				done <- server.Shutdown(ctx)
			}()
			assert.Contains(t, next().data, "$ws:goaway")
			clientOf(t, client.do).refusedSlot() // a proxy tries another node
			e := next()
			assert.Equal(t, "close", e.name)
			assert.Contains(t, e.data, `{"code":1012`)
			_, err := events.next()
			require.Error(t, err)
			events.close()
			require.NoError(t, <-done)
		})
	}
}
