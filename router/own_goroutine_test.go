package router_test

import (
	"bytes"
	"net/http/httptest"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/router"
)

// TestRoute_OwnGoroutine looks at the stacks of handlers.
func TestRoute_OwnGoroutine(t *testing.T) {
	for name, own := range map[string]bool{"on the event loop": false, "on its own goroutine": true} {
		t.Run(name, func(t *testing.T) {
			r := router.New(discardLogs(router.Options{}))
			stacks := make(chan []byte, 1)
			route := router.RPC(r, func(_ *router.Context, m Blob) (Blob, error) {
				buf := make([]byte, 16<<10)
				stacks <- buf[:runtime.Stack(buf, false)]
				return m, nil
			})
			if own {
				route.OwnGoroutine()
			}
			server := httptest.NewServer(r)
			defer server.Close()
			client := dialStream(t, server)
			onLoop := 0
			for n := 0; n < 100 || (!own && onLoop == 0 && n < 10_000); n++ {
				require.NoError(t, client.send(`{"type":"BLOB","meta":{"correlationId":"1"},"payload":{"text":"a"}}`))
				answer, err := client.next()
				require.NoError(t, err)
				assert.Contains(t, string(answer), `"text":"a"`)
				if bytes.Contains(<-stacks, []byte("netpoll.(*loop)")) {
					onLoop++
				}
			}
			switch {
			case own:
				assert.Zero(t, onLoop)
			case runtime.GOOS == "linux":
				assert.NotZero(t, onLoop, "other goroutines read while the loop is busy, but not every message")
			}
		})
	}
}

func TestRoute_OwnGoroutineAfterServingPanics(t *testing.T) {
	r := router.New(discardLogs(router.Options{}))
	route := router.RPC(r, func(_ *router.Context, m Blob) (Blob, error) { return m, nil })
	r.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
	assert.PanicsWithValue(t, "router: OwnGoroutine called after the router began to serve; call it before the first request", func() { route.OwnGoroutine() })
}
