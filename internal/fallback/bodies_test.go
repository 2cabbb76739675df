package fallback_test

import (
	"bufio"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/router"
)

// TestSlowBody_EndsItsHTTPConnection checks that the socket of a body that has not arrived is closed.
func TestSlowBody_EndsItsHTTPConnection(t *testing.T) {
	for _, operation := range []string{"open", "down", "up"} {
		runSynctest(t, operation, func(t *testing.T) {
			r, _ := recordingRouter(&router.Options{})
			server, dial := serveSockets(t, &http.Server{Handler: r.HTTPFallback(nil)})
			client := clientOf(t, server.Do)
			defer client.open("stream").close()
			conn := dial()
			defer func() { _ = conn.Close() }()
			start := time.Now()
			head := "POST /?" + operation + " HTTP/1.1\r\nHost: example.com\r\nContent-Length: 1000\r\n\r\n"
			_ = must(io.WriteString(conn, head+client.batch(1)))
			in := bufio.NewReader(conn)
			resp := must(http.ReadResponse(in, nil))
			assert.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
			_ = resp.Body.Close()
			require.ErrorIs(t, errorOf(in.ReadByte()), io.EOF)
			assert.Equal(t, 10*time.Second, time.Since(start))
		})
	}
}
