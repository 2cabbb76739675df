package fallback_test

import (
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/codec/cbor"
	"github.com/penstock-go/penstock/router"
)

// TestOpen_AuthenticateReceivesHandshake checks the request that the application sees.
func TestOpen_AuthenticateReceivesHandshake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		requests := make(chan *http.Request, 1)
		codec := cbor.New(nil)
		r := router.New(&router.Options{
			Codecs: []router.Codec{codec}, Subprotocols: []string{"chat.v1"},
			Authenticate: func(req *http.Request) (router.Identity, error) {
				requests <- req.Clone(req.Context())
				return router.Identity{UserID: router.Token(req)}, nil
			},
		})
		client := newClient(t, r.HTTPFallback(nil))
		client.header.Set("Cookie", "a=b")
		client.header.Set("Sec-WebSocket-Extensions", "permessage-deflate")
		client.header.Set("Sec-WebSocket-Protocol", "x")
		events := client.openWith(`{"protocols":["bearer.abc","` + codec.Subprotocol() + `","chat.v1"],"query":"q=1&r=%20","mode":"stream"}`)
		defer events.close()
		opened := must(events.next())
		assert.Contains(t, opened.data, `"protocol":"chat.v1"`, "a binary format is not selected")
		req := <-requests
		assert.Equal(t, http.MethodGet, req.Method)
		assert.Equal(t, "/ws/http?q=1&r=%20", req.RequestURI)
		assert.Equal(t, "1", req.FormValue("q"))
		assert.Equal(t, "example.com", req.Host)
		assert.Equal(t, "a=b", req.Header.Get("Cookie"))
		assert.Equal(t, "bearer.abc, "+codec.Subprotocol()+", chat.v1", req.Header.Get("Sec-WebSocket-Protocol"))
		assert.Empty(t, req.Header.Get("Sec-WebSocket-Extensions"))
		assert.Empty(t, req.Header.Get("Content-Type"))
		assert.Zero(t, req.ContentLength)
		assert.Equal(t, "abc", onlyConn(t, r).Identity().UserID)
	})
}

// refusedSlot opens a connection for which the server has no room.
func (c *client) refusedSlot() {
	c.t.Helper()
	resp := c.post("open", `{"mode":"poll"}`)
	assert.Equal(c.t, http.StatusServiceUnavailable, resp.StatusCode)
	assert.Equal(c.t, "1", resp.Header.Get("Retry-After"))
	require.NoError(c.t, resp.Body.Close())
}
