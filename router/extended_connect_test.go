package router_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/router"
)

// TestHandshake_ExtendedConnect has the handshake of RFC 8441, as net/http passes it on.
func TestHandshake_ExtendedConnect(t *testing.T) {
	for _, visible := range []bool{false, true} {
		req := httptest.NewRequest(http.MethodConnect, "/ws", strings.NewReader(""))
		req.Proto, req.ProtoMajor, req.ProtoMinor, req.ContentLength = "HTTP/2.0", 2, 0, -1
		req.Header = http.Header{":protocol": {"websocket"}, "Sec-Websocket-Version": {"13"}}
		w := httptest.NewRecorder()
		router.New(discardLogs(router.Options{RefuseAfterUpgrade: visible})).ServeHTTP(w, req)
		assert.Equal(t, http.StatusNotImplemented, w.Code)
		assert.Contains(t, w.Body.String(), "does not support WebSocket over HTTP/2")
	}
}
