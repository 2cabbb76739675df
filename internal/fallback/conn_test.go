package fallback_test

import (
	"context"
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
		assert.Contains(t, client.receive(events).data, `"payload":{"a":"b"}`)
	})
}

type lines struct{ A string }

func (lines) MessageType() string { return "LINES" }

func (lines) MarshalJSON() ([]byte, error) { return []byte("{\n\"a\":\r\n\"b\"}"), nil }

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
