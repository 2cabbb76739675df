package fallback_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/observe"
	"github.com/penstock-go/penstock/router/routertest"
)

func TestConn_CallsAndPublications(t *testing.T) {
	for _, mode := range []string{"stream", "poll"} {
		runSynctest(t, mode, func(t *testing.T) {
			opened := &recorder[observe.Event]{}
			r := router.New(nil)
			r.Observe(func(e observe.Event) {
				if e.Kind == observe.Opened {
					opened.add(e)
				}
			})
			router.RPC(r, echo)
			client := newClient(t, r.HTTPFallback(nil))
			events := client.open(mode)
			defer func() { events.close() }()
			next := func() sseEvent {
				if mode == "poll" {
					events.close()
					events = client.events(mode)
				}
				return client.receive(events)
			}
			client.up(call(1, 17))
			assert.JSONEq(t, `{"type":"ECHOED","meta":{"correlationId":"1"},"payload":{"n":17}}`, withoutTime(t, next().data))
			conn := onlyConn(t, r)
			assert.Equal(t, router.Transport("http-"+mode), conn.Transport())
			assert.Equal(t, []observe.Event{{Kind: observe.Opened, Transport: string(conn.Transport())}}, opened.all())
			require.NoError(t, conn.Subscribe("news"))
			require.NoError(t, r.Publish("news", Echo{N: 18}))
			assert.Contains(t, next().data, `{"n":18}`)
			conn.Close(4001, "done")
			e := next()
			assert.Equal(t, "close", e.name)
			assert.JSONEq(t, `{"code":4001,"reason":"done"}`, e.data)
			_, err := events.next()
			require.Error(t, err, "the response has ended")
			synctest.Wait()
			assert.Empty(t, collect(r))
			assert.Equal(t, http.StatusNoContent, client.acknowledge())
			assert.Equal(t, http.StatusConflict, client.acknowledge(), "the connection is forgotten")
		})
	}
}

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

// TestConn_SessionContinuesOverTheOtherTransport resumes the session of a connection that was lost, over WebSocket, and
// then that of the open WebSocket over HTTP.
func TestConn_SessionContinuesOverTheOtherTransport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := router.New(&router.Options{
			Resume:       router.ResumeOptions{Within: time.Minute},
			Authenticate: func(*http.Request) (router.Identity, error) { return router.Identity{UserID: "ann"}, nil },
		})
		router.Topic(r, "news", &router.TopicOptions{Authorize: func(*router.Context, router.TopicMatch) error { return nil }})
		h := r.HTTPFallback(nil)
		first := newClient(t, h)
		events := first.open("stream")
		first.up(`{"type":"$ws:hello","meta":{"correlationId":"h"},"payload":{"session":true}}`)
		token := sessionToken(t, first.receive(events).data)
		first.up(`{"type":"$ws:subscribe","meta":{"correlationId":"s"},"payload":{"topic":"news"}}`)
		assert.Contains(t, first.receive(events).data, "$ws:subscribed")
		events.close()
		time.Sleep(11 * time.Second)

		ws := routertest.Dial(t, r)
		resume := `{"type":"$ws:resume","meta":{"correlationId":"r"},"payload":{"token":%q,"topics":[{"topic":"news"}]}}`
		ws.SendText(fmt.Sprintf(resume, token))
		token = sessionToken(t, ws.Next().Text)
		require.NoError(t, r.Publish("news", Echo{N: 7}))
		assert.Contains(t, ws.Next().Text, `{"n":7}`)

		second := newClient(t, h)
		events = second.open("stream")
		defer events.close()
		second.up(fmt.Sprintf(resume, token))
		assert.Contains(t, second.receive(events).data, "$ws:resumed")
		assert.Equal(t, router.StatusSuperseded, ws.Closed().Code)
		require.NoError(t, r.Publish("news", Echo{N: 8}))
		assert.Contains(t, second.receive(events).data, `{"n":8}`)
	})
}

// sessionToken returns the resume token of a welcome.
func sessionToken(t *testing.T, text string) string {
	t.Helper()
	var welcome struct {
		Payload struct{ Session struct{ Token string } }
	}
	require.NoError(t, json.Unmarshal([]byte(text), &welcome))
	require.NotEmpty(t, welcome.Payload.Session.Token, text)
	return welcome.Payload.Session.Token
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
