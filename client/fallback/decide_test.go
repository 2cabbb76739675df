//go:build !js

package fallback_test

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/client/fallback"
)

func TestDecision_RefusalOfTheRouterIsNoFailure(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newScene(t, fallback.Options{})
		const refusal = `{"code":"UNAUTHENTICATED","message":"no token"}`
		s.websocket = func(*http.Request) (*http.Response, error) {
			resp := response(http.StatusUnauthorized, false)
			resp.Body = io.NopCloser(strings.NewReader(refusal))
			return resp, nil
		}
		resp, err := s.attempt()
		require.NoError(t, err)
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		assert.Equal(t, refusal, string(body))
		assert.Equal(t, []string{"websocket"}, s.exchanges())
	})
}

// A handshake may be accepted at the moment at which it is given up.
func TestDecision_HandshakeThatIgnoresItsContextIsGivenUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newScene(t, fallback.Options{})
		s.websocket = func(req *http.Request) (*http.Response, error) {
			<-req.Context().Done()
			synctest.Wait()
			return s.upgrades(req)
		}
		s.expect("websocket", "check", "open")
		_, err := s.server.Write([]byte("a"))
		assert.ErrorIs(t, err, io.ErrClosedPipe)
	})
}

func TestDecision_FailuresAtTheSameTimeCountOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newScene(t, fallback.Options{})
		s.connect(6*time.Second, message("{}"))
		s.check, s.websocket = answerOf(t, "1s 204 ours"), answerOf(t, "1s 403")
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				_, err := s.attempt()
				assert.EqualError(t, err, "the response is 403")
			})
		}
		all.Wait()
		s.expect("websocket", "check")
		s.expect("websocket", "check", "open")
	})
}

func TestDecision_BinaryFormatsStayWithWebSocket(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newScene(t, fallback.Options{})
		for range 4 {
			_, err := s.attempt("bearer.secret", "penstock.v1.cbor")
			require.EqualError(t, err, "fallback: the response is 403; plain HTTP works, but cannot carry messages in the format penstock.v1.cbor")
			assert.Equal(t, []string{"websocket", "check"}, s.exchanges())
		}
		assert.Equal(t, []string{"blocked"}, s.reports)
		s.expect("websocket", "check", "open") // another client
	})
}

// Clients close themselves when a server refuses them with 403.
func TestDecision_RefusalOfAProxyReachesTheClientOnlyIfHTTPMayNotBeUsed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newScene(t, fallback.Options{})
		_, err := s.attempt()
		require.EqualError(t, err, "the response is 403")
		for name, s := range map[string]*scene{"outage": newScene(t, fallback.Options{}), "measure": newScene(t, fallback.Options{Measure: true})} {
			if name == "outage" {
				s.check = answerOf(t, "reset")
			}
			for range 3 {
				resp, err := s.attempt()
				require.NoError(t, err)
				assert.Equal(t, http.StatusForbidden, resp.StatusCode)
			}
		}
	})
}

func TestRoundTrip_PassesOtherRequestsOn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newScene(t, fallback.Options{})
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://example.com/api?anything", nil)
		require.NoError(t, err)
		resp, err := s.RoundTrip(req)
		require.NoError(t, err)
		assert.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
		assert.Equal(t, []string{"anything"}, s.exchanges())
	})
}

func TestNew_PanicsWithoutAnAbsoluteURL(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"", "/ws/http", "wss://example.com/ws/http", "https://example.com/ws/http?a=b", "https://example.com/#a", "https://", "https://exa mple"} {
		assert.Panics(t, func() { fallback.New(url, nil) }, url)
	}
}
