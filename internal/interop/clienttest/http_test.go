package clienttest_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/client/fallback"
	"github.com/penstock-go/penstock/internal/conformance"
)

// A blockingProxy answers WebSocket handshakes with 403.
type blockingProxy struct {
	http.RoundTripper

	poll bool // streams are not understood either
	down bool // it also answers for the server: HTTP works, and is refused
}

func (p *blockingProxy) RoundTrip(req *http.Request) (*http.Response, error) {
	answer := func(status int) (*http.Response, error) {
		h := http.Header{"Penstock-Fallback": {"1"}}
		return &http.Response{StatusCode: status, Status: http.StatusText(status), Header: h, Body: http.NoBody, Request: req}, nil
	}
	switch {
	case req.Header.Get("Upgrade") != "":
		return answer(http.StatusForbidden)
	case p.down && req.Method == http.MethodGet:
		return answer(http.StatusNoContent)
	case p.down && p.poll && req.URL.RawQuery == "open":
		p.poll = false // the first attempt is a stream
		return answer(http.StatusNotImplemented)
	case p.down && req.URL.RawQuery == "open":
		return answer(http.StatusServiceUnavailable)
	}
	return p.RoundTripper.RoundTrip(req)
}

// overHTTP returns an HTTP client for a client whose connections are all over HTTP, as streams or
// polls, because it has found out already that WebSocket is blocked.
func overHTTP(t *testing.T, base http.RoundTripper, poll bool) *http.Client {
	t.Helper()
	proxy := &blockingProxy{RoundTripper: base, poll: poll, down: true}
	transport := fallback.New("http://example.com"+conformance.HTTPPath, &fallback.Options{Base: proxy})
	status := 0
	for range 2 {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://example.com/", nil)
		require.NoError(t, err)
		req.Header.Set("Upgrade", "websocket")
		if resp, err := transport.RoundTrip(req); err == nil {
			status = resp.StatusCode
			require.NoError(t, resp.Body.Close())
		}
	}
	require.Equal(t, http.StatusServiceUnavailable, status)
	proxy.down = false
	return &http.Client{Transport: transport}
}
