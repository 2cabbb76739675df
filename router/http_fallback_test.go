package router_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/router"
)

func TestHTTPFallback_CallsAndPublications(t *testing.T) {
	for _, mode := range []string{"stream", "poll"} {
		runSynctest(t, mode, func(t *testing.T) {
			opened := &recorder[router.Event]{}
			r := router.New(nil)
			r.Observe(func(e router.Event) {
				if e.Kind == router.EventOpened {
					opened.add(e)
				}
			})
			router.RPC(r, echo)
			router.Topic(r, "news", &router.TopicOptions{Authorize: func(*router.Context, router.TopicMatch) error { return nil }})
			client := newFallback(t, r, nil)
			events := client.open(mode)
			defer func() { events.close() }()
			next := func() sseEvent {
				if mode == "poll" {
					events.close()
					events = client.events(mode)
				}
				return client.receive(events)
			}
			client.up(`{"type":"ECHO","meta":{"correlationId":"1"},"payload":{"n":1}}`)
			assert.Contains(t, next().data, `"correlationId":"1"`)
			conns := collect(r)
			require.Len(t, conns, 1)
			assert.Equal(t, router.Transport("http-"+mode), conns[0].Transport())
			assert.Equal(t, []router.Event{{Kind: router.EventOpened, Transport: conns[0].Transport()}}, opened.all())
			require.NoError(t, conns[0].Subscribe("news"))
			require.NoError(t, r.Publish("news", Echo{N: 17}))
			assert.Contains(t, next().data, `17`)
			conns[0].Close(4001, "done")
			e := next()
			assert.Equal(t, "close", e.name)
			assert.JSONEq(t, `{"code":4001,"reason":"done"}`, e.data)
			_, err := events.next()
			assert.Error(t, err)
			synctest.Wait()
			assert.Empty(t, collect(r))
			assert.Equal(t, http.StatusNoContent, client.acknowledge())
			assert.Equal(t, http.StatusConflict, client.acknowledge(), "the connection is forgotten")
			time.Sleep(time.Minute)
		})
	}
}
