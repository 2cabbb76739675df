package router_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/router"
)

// TestPublish_SlowsPublisherWhileSubscribersAreBehind has subscribers that do not read. The
// connection that publishes to them is delayed, and no other one.
func TestPublish_SlowsPublisherWhileSubscribersAreBehind(t *testing.T) {
	t.Parallel()
	const messages, size = 10, 4000
	type handled struct {
		text string
		at   time.Time
	}
	var log recorder[handled]
	var subscribed sync.WaitGroup
	subscribed.Add(3)
	r := router.New(discardLogs(router.Options{
		SlowConsumer: router.DropNewest, Limits: router.Limits{QueueMessages: 64},
		Timeouts: router.Timeouts{Message: time.Minute},
		OnOpen: func(_ context.Context, c *router.Conn) error {
			if c.Identity().UserID != "" {
				return nil
			}
			defer subscribed.Done()
			return c.Subscribe("busy")
		},
		Authenticate: func(req *http.Request) (router.Identity, error) {
			return router.Identity{UserID: router.Token(req)}, nil
		},
	}))
	router.On(r, func(ctx *router.Context, m Blob) error {
		log.add(handled{m.Text, time.Now()})
		return ctx.Publish(m.Text, Blob{Text: strings.Repeat("x", size)})
	})
	server := httptest.NewServer(r)
	defer server.Close()
	for range 3 {
		dialTCP(t, server)
	}
	subscribed.Wait()
	behind := func() (n int) {
		for c := range r.Conns() {
			if c.QueueStats().Backpressure {
				n++
			}
		}
		return n
	}
	full := 0 // how often they were behind in a row: the buffers of the kernel may grow
	require.Eventually(t, func() bool {
		if full++; behind() < 3 {
			full = 0
		}
		for range 1000 {
			require.NoError(t, r.Publish("busy", Blob{Text: strings.Repeat("x", size)}))
		}
		return full == 20
	}, time.Minute, 10*time.Millisecond)
	send := func(topic string) {
		ws, _, err := websocket.Dial(t.Context(), server.URL+"?access_token="+topic, nil)
		require.NoError(t, err)
		t.Cleanup(func() { _ = ws.CloseNow() })
		for range messages {
			require.NoError(t, ws.Write(t.Context(), websocket.MessageText, []byte(`{"type":"BLOB","payload":{"text":"`+topic+`"}}`)))
		}
	}
	send("busy")
	send("quiet")
	require.Eventually(t, func() bool { return len(log.all()) == 2*messages }, time.Minute, time.Millisecond)
	var busy []time.Time
	for _, h := range log.all() {
		if h.text == "busy" {
			busy = append(busy, h.at)
		}
	}
	assert.GreaterOrEqual(t, busy[messages-1].Sub(busy[0]), (messages-1)*100*time.Millisecond)
	assert.Equal(t, "busy", log.all()[2*messages-1].text, "the other publisher is not delayed")
}
