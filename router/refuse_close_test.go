package router_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
)

// TestRefusedHandshake_ClosesConnection sends a second handshake right behind a refused one, which a
// proxy that tunnels after the first would pass on. The server must not read it.
func TestRefusedHandshake_ClosesConnection(t *testing.T) {
	const upgrade = "GET / HTTP/1.1\r\nHost: example.com\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
	for name, tt := range map[string]struct {
		opts    router.Options
		request string
		status  int
	}{
		"no handshake":     {router.Options{}, "GET / HTTP/1.1\r\nHost: example.com\r\n", http.StatusUpgradeRequired},
		"another version":  {router.Options{}, strings.Replace(upgrade, "13", "12", 1), http.StatusBadRequest},
		"body":             {router.Options{}, upgrade + "Content-Length: 1\r\n", http.StatusBadRequest},
		"another origin":   {router.Options{}, upgrade + "Origin: https://evil.example\r\n", http.StatusForbidden},
		"no connections":   {router.Options{Limits: router.Limits{Conns: 1}}, upgrade, http.StatusTooManyRequests},
		"unauthenticated":  {refusing(errors.Unauthenticated), upgrade, http.StatusUnauthorized},
		"not permitted":    {refusing(errors.PermissionDenied), upgrade, http.StatusForbidden},
		"failing server":   {refusing(errors.Internal), upgrade, http.StatusInternalServerError},
		"not available":    {refusing(errors.Unavailable), upgrade, http.StatusServiceUnavailable},
		"too many for now": {refusing(errors.ResourceExhausted), upgrade, http.StatusTooManyRequests},
	} {
		t.Run(name, func(t *testing.T) {
			r := router.New(discardLogs(tt.opts))
			server := httptest.NewServer(r)
			defer server.Close()
			if tt.opts.Limits.Conns > 0 {
				dialServer(t, server)
				require.Eventually(t, func() bool { return len(collect(r)) == 1 }, time.Minute, time.Millisecond)
			}
			conn, err := net.Dial("tcp", server.Listener.Addr().String())
			require.NoError(t, err)
			defer func() { _ = conn.Close() }()
			require.NoError(t, conn.SetDeadline(time.Now().Add(20*time.Second)))
			_, err = fmt.Fprint(conn, tt.request+"\r\n"+upgrade+"\r\n")
			require.NoError(t, err)
			answers := bufio.NewReader(conn)
			response, err := http.ReadResponse(answers, nil)
			require.NoError(t, err)
			_, err = io.Copy(io.Discard, response.Body)
			require.NoError(t, err)
			assert.Equal(t, tt.status, response.StatusCode)
			assert.True(t, response.Close, "Connection: close")
			rest, _ := io.ReadAll(answers) // a reset also ends the connection
			assert.Empty(t, string(rest), "the second request is not answered")
		})
	}
}

// refusing returns options with which every request is refused.
func refusing(code errors.Code) router.Options {
	return router.Options{Authenticate: func(*http.Request) (router.Identity, error) {
		return router.Identity{}, &errors.Error{Code: code, Message: "no"}
	}}
}
