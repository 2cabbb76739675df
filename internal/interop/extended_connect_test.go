package interop_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"

	"github.com/penstock-go/penstock/router"
)

// TestExtendedConnect sends the handshake of RFC 8441 to a server that announces it, which is a setting of the process.
func TestExtendedConnect(t *testing.T) {
	const setting = "http2xconnect=1"
	if os.Getenv("GODEBUG") != setting {
		cmd := exec.Command(os.Args[0], "-test.run=^TestExtendedConnect$", "-test.v")
		cmd.Env = append(os.Environ(), "GODEBUG="+setting)
		output, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", output)
		assert.Contains(t, string(output), "--- PASS: TestExtendedConnect")
		return
	}
	for _, refuseAfterUpgrade := range []bool{false, true} {
		server := httptest.NewUnstartedServer(newRouter(router.Options{RefuseAfterUpgrade: refuseAfterUpgrade}))
		server.EnableHTTP2 = true
		server.StartTLS()
		defer server.Close()
		trusted := server.Client().Transport.(*http.Transport).TLSClientConfig
		var client http.RoundTripper = &http2.Transport{TLSClientConfig: trusted} //nolint:staticcheck // http.Transport refuses the header :protocol
		body, stream := io.Pipe()
		defer func() { _ = stream.Close() }()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodConnect, server.URL+"/ws", body)
		require.NoError(t, err)
		req.Header = http.Header{":protocol": {"websocket"}, "Sec-Websocket-Version": {"13"}, "Origin": {server.URL}}
		resp, err := client.RoundTrip(req)
		require.NoError(t, err)
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		assert.Equal(t, http.StatusNotImplemented, resp.StatusCode)
		assert.Contains(t, string(text), "does not support WebSocket over HTTP/2")
	}
}
