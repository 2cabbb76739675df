//go:build !js

package fallback_test

import (
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/client/fallback"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/wsframe"
)

// A scene is a server and a proxy of which a test says what they answer. It answers an open with
// 503, so that a handshake with that response has fallen back.
type scene struct {
	http.RoundTripper

	websocket func(req *http.Request) (*http.Response, error)
	check     func(req *http.Request) (*http.Response, error)

	mu       sync.Mutex
	requests []string
	reports  []string
	server   net.Conn // the other end of the last WebSocket
}

func works(*http.Request) (*http.Response, error) { return response(http.StatusNoContent, true), nil }

func fails(*http.Request) (*http.Response, error) { return nil, errors.New("unreachable") }

func answers(status int, ours bool) func(*http.Request) (*http.Response, error) {
	return func(*http.Request) (*http.Response, error) { return response(status, ours), nil }
}

func newScene(opts fallback.Options) *scene {
	s := &scene{websocket: answers(http.StatusForbidden, false), check: works}
	opts.Base = roundTripFunc(func(req *http.Request) (*http.Response, error) {
		exchange := exchangeOf(req)
		s.mu.Lock()
		s.requests = append(s.requests, exchange)
		s.mu.Unlock()
		switch exchange {
		case "websocket":
			return s.websocket(req)
		case "check":
			return s.check(req)
		}
		return response(http.StatusServiceUnavailable, true), nil
	})
	opts.OnTransport = func(t fallback.Transport, _ error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.reports = append(s.reports, string(t))
	}
	s.RoundTripper = fallback.New("http://example.com/ws/http", &opts)
	return s
}

// upgrades answers a handshake with a WebSocket.
func (s *scene) upgrades(*http.Request) (*http.Response, error) {
	client, server := net.Pipe()
	s.server = server
	resp := response(http.StatusSwitchingProtocols, false)
	resp.Body = client
	return resp, nil
}

// attempt sends a handshake, and returns the exchanges that followed.
func (s *scene) attempt(t *testing.T, protocols ...string) (*http.Response, error) {
	s.mu.Lock()
	s.requests = nil
	s.mu.Unlock()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://example.com/ws", nil)
	require.NoError(t, err)
	req.Header.Set("Upgrade", "websocket")
	req.Header.Set("Sec-WebSocket-Protocol", strings.Join(protocols, ","))
	return s.RoundTrip(req)
}

func (s *scene) exchanges() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

var (
	byWebSocket = []string{"websocket"}
	failing     = []string{"websocket", "check"}
	fallsBack   = []string{"websocket", "check", "open"}
	byHTTP      = []string{"open"}
)

// expect requires that an attempt causes these exchanges.
func (s *scene) expect(t *testing.T, exchanges []string) {
	t.Helper()
	resp, err := s.attempt(t)
	if err == nil {
		_ = resp.Body.Close()
	}
	assert.Equal(t, exchanges, s.exchanges())
}

// connect opens a WebSocket, which writes frames and then lasts for a time.
func (s *scene) connect(t *testing.T, lasts time.Duration, frames ...[]byte) {
	t.Helper()
	before := s.websocket
	s.websocket = s.upgrades
	resp, err := s.attempt(t)
	s.websocket = before
	require.NoError(t, err)
	require.Equal(t, http.StatusSwitchingProtocols, resp.StatusCode)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.Copy(io.Discard, resp.Body)
	}()
	for _, frame := range frames {
		_, err := s.server.Write(frame)
		require.NoError(t, err)
	}
	time.Sleep(lasts)
	_ = s.server.Close()
	<-ended
	synctest.Wait()
	require.NoError(t, resp.Body.Close())
}

func message(text string) []byte {
	return wsframe.AppendFrame(nil, wsframe.Server, wsframe.Text, []byte(text))
}

func closeFrame(code int) []byte { return wsframe.AppendClose(nil, wsframe.Server, code, "") }

// bubble runs a test in virtual time.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, f)
}

func bubbleNamed(t *testing.T, name int, f func(t *testing.T)) {
	t.Helper()
	t.Run(strconv.Itoa(name), func(t *testing.T) { bubble(t, f) })
}
