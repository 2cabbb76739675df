package router_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// The tests of connections over HTTP are those of internal/fallback.

func TestHTTPFallback_MistakesPanic(t *testing.T) {
	assert.PanicsWithValue(t, "router: FallbackOptions.MaxConns is -1; it must not be negative", func() {
		router.New(nil).HTTPFallback(&router.FallbackOptions{MaxConns: -1})
	})
	r := router.New(nil)
	r.HTTPFallback(nil)
	assert.PanicsWithValue(t, "router: HTTPFallback is called twice; mount its handler at several paths instead", func() { r.HTTPFallback(nil) })
	r = router.New(nil)
	routertest.Dial(t, r)
	assert.PanicsWithValue(t, "router: HTTPFallback called after the router began to serve; call it before the first request", func() { r.HTTPFallback(nil) })
	assert.Equal(t, router.TransportWebSocket, collect(r)[0].Transport())
}
