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
	"github.com/penstock-go/penstock/internal/sleep"
	"github.com/penstock-go/penstock/internal/wsframe"
)

func TestDecision_SecondFailureFallsBackForTenMinutes(t *testing.T) {
	for name, handshake := range map[string]func(*http.Request) (*http.Response, error){
		"refused by a proxy":     answers(http.StatusForbidden, false),
		"upgrade not understood": answers(http.StatusUpgradeRequired, false),
		"connection reset":       fails,
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := newScene(fallback.Options{})
				s.websocket = handshake
				s.expect(t, failing)
				s.expect(t, fallsBack)
				time.Sleep(10*time.Minute - time.Second)
				s.expect(t, byHTTP)
				time.Sleep(time.Second)
				s.expect(t, fallsBack)
			})
		})
	}
}

func TestDecision_ResponseOfAnOutageNeedsThreeFailures(t *testing.T) {
	for _, status := range []int{429, 502, 503, 504} {
		bubbleNamed(t, status, func(t *testing.T) {
			s := newScene(fallback.Options{})
			s.websocket = answers(status, false)
			s.expect(t, failing)
			s.expect(t, failing)
			s.expect(t, fallsBack)
		})
	}
}

func TestDecision_OutageIsNoFailure(t *testing.T) {
	for name, check := range map[string]func(*http.Request) (*http.Response, error){
		"no answer":         fails,
		"not ours":          answers(http.StatusNoContent, false),
		"page of a proxy":   answers(http.StatusOK, false),
		"unavailable":       answers(http.StatusServiceUnavailable, true),
		"too many requests": answers(http.StatusTooManyRequests, true),
		"slow": func(req *http.Request) (*http.Response, error) {
			if err := sleep.For(req.Context(), 3*time.Second); err != nil {
				return nil, err
			}
			return works(req)
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := newScene(fallback.Options{})
				s.check = check
				for range 10 {
					s.expect(t, failing)
				}
				s.check = works
				s.expect(t, failing)
				s.expect(t, fallsBack)
			})
		})
	}
}

func TestDecision_RefusalOfTheRouterIsNoFailure(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newScene(fallback.Options{})
		const refusal = `{"code":"UNAUTHENTICATED","message":"no token"}`
		s.websocket = func(*http.Request) (*http.Response, error) {
			resp := response(http.StatusUnauthorized, false)
			resp.Body = io.NopCloser(strings.NewReader(refusal))
			return resp, nil
		}
		resp, err := s.attempt(t)
		require.NoError(t, err)
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		assert.Equal(t, refusal, string(body))
		assert.Equal(t, byWebSocket, s.exchanges())
	})
}

func TestDecision_ConnectionWithoutMessageHasFailed(t *testing.T) {
	for name, connection := range map[string]struct {
		lasts  time.Duration
		frames [][]byte
	}{
		"reset":                     {lasts: 200 * time.Millisecond},
		"ping, then reset":          {frames: [][]byte{wsframe.AppendFrame(nil, wsframe.Server, wsframe.Ping, nil)}},
		"closed by a proxy":         {frames: [][]byte{closeFrame(1008)}},
		"closed by a proxy with no": {frames: [][]byte{closeFrame(wsframe.NoStatus)}},
		"silent":                    {lasts: time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := newScene(fallback.Options{})
				s.connect(t, connection.lasts, connection.frames...)
				assert.Equal(t, failing, s.exchanges())
				if name != "silent" {
					s.expect(t, fallsBack)
				}
				s.expect(t, byHTTP)
				assert.Empty(t, s.reports)
			})
		})
	}
}

func TestDecision_SilentConnectionIsGivenUpIfHTTPWorks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newScene(fallback.Options{})
		s.websocket = s.upgrades
		resp, err := s.attempt(t)
		require.NoError(t, err)
		start := time.Now()
		_, err = resp.Body.Read(make([]byte, 1))
		require.Error(t, err)
		assert.Equal(t, 5*time.Second, time.Since(start))
		s.expect(t, byHTTP)
	})
}

func TestDecision_SilentConnectionIsKeptDuringAnOutage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newScene(fallback.Options{})
		s.check = fails
		s.connect(t, time.Minute)
		s.websocket = answers(http.StatusForbidden, false)
		s.expect(t, failing)
	})
}

func TestDecision_SlowHandshakeIsGivenUpIfHTTPWorks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newScene(fallback.Options{})
		s.websocket = func(req *http.Request) (*http.Response, error) {
			<-req.Context().Done()
			return nil, req.Context().Err()
		}
		start := time.Now()
		s.expect(t, fallsBack)
		assert.Equal(t, 5*time.Second, time.Since(start))
	})
}

// A handshake may be accepted at the moment at which it is given up.
func TestDecision_HandshakeThatIgnoresItsContextIsGivenUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newScene(fallback.Options{})
		s.websocket = func(req *http.Request) (*http.Response, error) {
			<-req.Context().Done()
			synctest.Wait()
			return s.upgrades(req)
		}
		s.expect(t, fallsBack)
		_, err := s.server.Write([]byte("a"))
		assert.ErrorIs(t, err, io.ErrClosedPipe)
	})
}

func TestDecision_SlowHandshakeMaySucceedDuringAnOutage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newScene(fallback.Options{})
		s.check = fails
		s.websocket = func(req *http.Request) (*http.Response, error) {
			time.Sleep(8 * time.Second)
			return s.upgrades(req)
		}
		resp, err := s.attempt(t)
		require.NoError(t, err)
		assert.Equal(t, http.StatusSwitchingProtocols, resp.StatusCode)
		assert.Equal(t, failing, s.exchanges())
		require.NoError(t, resp.Body.Close())
	})
}

func TestDecision_CloseCodesOfTheServerProveWebSocket(t *testing.T) {
	for _, code := range []int{1012, 1013, 4000, 4401, 4999} {
		bubbleNamed(t, code, func(t *testing.T) {
			s := newScene(fallback.Options{})
			s.connect(t, 0, closeFrame(code))
			s.expect(t, failing)
			s.expect(t, failing)
			s.expect(t, fallsBack)
		})
	}
}

// The client has sent these codes itself, and the server repeats them.
func TestDecision_CloseCodesOfTheClientDecideNothing(t *testing.T) {
	for _, code := range []int{1000, 1001} {
		bubbleNamed(t, code, func(t *testing.T) {
			s := newScene(fallback.Options{})
			s.connect(t, 0, closeFrame(code))
			assert.Equal(t, byWebSocket, s.exchanges())
			s.expect(t, failing)
			s.expect(t, fallsBack)
		})
	}
}

func TestDecision_ConnectionsThatAreLostSoonFailThreeTimes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newScene(fallback.Options{})
		for range 3 {
			s.connect(t, 200*time.Millisecond, message("{}"))
			assert.Equal(t, failing, s.exchanges())
		}
		s.expect(t, byHTTP)
		assert.Equal(t, []string{"websocket"}, s.reports)
	})
}

func TestDecision_ConnectionThatLastsProvesWebSocket(t *testing.T) {
	for name, connection := range map[string]struct {
		lasts  time.Duration
		frames [][]byte
	}{
		"for 5 s":                 {6 * time.Second, [][]byte{message("{}")}},
		"until it is closed":      {0, [][]byte{message("{}"), closeFrame(1008)}},
		"with a message in parts": {6 * time.Second, [][]byte{message("{}")[:1], message("{}")[1:2], message("{}")[2:]}},
		"with a large message":    {6 * time.Second, [][]byte{message(strings.Repeat("a", 70_000))[:20]}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := newScene(fallback.Options{})
				s.connect(t, connection.lasts, connection.frames...)
				assert.Equal(t, byWebSocket, s.exchanges())
				s.expect(t, failing)
				s.expect(t, failing)
				s.check = fails // an outage: counting begins anew
				s.expect(t, failing)
				s.check = works
				s.expect(t, failing)
				s.expect(t, failing)
				s.connect(t, 6*time.Second, message("{}")) // likewise
				s.expect(t, failing)
				s.expect(t, failing)
				s.expect(t, fallsBack)
			})
		})
	}
}

func TestDecision_LateMessageProvesWebSocket(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newScene(fallback.Options{})
		s.check = fails
		s.websocket = s.upgrades
		resp, err := s.attempt(t)
		require.NoError(t, err)
		go func() { _, _ = io.Copy(io.Discard, resp.Body) }()
		time.Sleep(20 * time.Second)
		_, err = s.server.Write(message("{}"))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		synctest.Wait() // for the check that has failed
		s.websocket, s.check = answers(http.StatusForbidden, false), works
		s.expect(t, failing)
		s.expect(t, failing)
		s.expect(t, fallsBack)
	})
}

func TestDecision_ConnectionThatTheClientClosesDecidesNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newScene(fallback.Options{})
		s.websocket = s.upgrades
		resp, err := s.attempt(t)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		_, err = resp.Body.Read(make([]byte, 1))
		require.Error(t, err)
		time.Sleep(time.Minute)
		assert.Equal(t, byWebSocket, s.exchanges())
	})
}

func TestDecision_FailuresAtTheSameTimeCountOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newScene(fallback.Options{})
		s.connect(t, 6*time.Second, message("{}"))
		s.check = func(req *http.Request) (*http.Response, error) {
			time.Sleep(time.Second)
			return works(req)
		}
		s.websocket = func(*http.Request) (*http.Response, error) {
			time.Sleep(time.Second)
			return response(http.StatusForbidden, false), nil
		}
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				_, err := s.attempt(t)
				assert.EqualError(t, err, "the response is 403")
			})
		}
		all.Wait()
		s.expect(t, failing)
		s.expect(t, fallsBack)
	})
}

func TestDecision_ServerForbidsToFallBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newScene(fallback.Options{})
		s.check = func(*http.Request) (*http.Response, error) {
			resp := response(http.StatusNoContent, true)
			resp.Header.Set("Penstock-Fallback", "0")
			return resp, nil
		}
		s.expect(t, failing)
		s.expect(t, failing)
		assert.Equal(t, []string{"blocked"}, s.reports)
	})
}

func TestDecision_MeasureReportsOnly(t *testing.T) {
	for status, blocked := range map[int]bool{204: true, 200: true, 404: true, 405: true, 302: true, 429: false, 500: false, 503: false} {
		bubbleNamed(t, status, func(t *testing.T) {
			s := newScene(fallback.Options{Measure: true})
			s.check = answers(status, false)
			s.expect(t, failing)
			s.expect(t, failing)
			if blocked {
				assert.Equal(t, []string{"blocked"}, s.reports)
			} else {
				assert.Empty(t, s.reports)
			}
			s.connect(t, 6*time.Second, message("{}"))
			assert.Equal(t, "websocket", s.reports[len(s.reports)-1])
		})
	}
}

func TestDecision_BinaryFormatsStayWithWebSocket(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newScene(fallback.Options{})
		for range 4 {
			_, err := s.attempt(t, "bearer.secret", "penstock.v1.cbor")
			require.EqualError(t, err, "fallback: the response is 403; plain HTTP works, but cannot carry messages in the format penstock.v1.cbor")
			assert.Equal(t, failing, s.exchanges())
		}
		assert.Equal(t, []string{"blocked"}, s.reports)
		s.expect(t, fallsBack) // another client
	})
}

// Clients close themselves when a server refuses them with 403.
func TestDecision_RefusalOfAProxyReachesTheClientOnlyIfHTTPMayNotBeUsed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newScene(fallback.Options{})
		_, err := s.attempt(t)
		require.EqualError(t, err, "the response is 403")
		for name, s := range map[string]*scene{"outage": newScene(fallback.Options{}), "measure": newScene(fallback.Options{Measure: true})} {
			if name == "outage" {
				s.check = fails
			}
			for range 3 {
				resp, err := s.attempt(t)
				require.NoError(t, err)
				assert.Equal(t, http.StatusForbidden, resp.StatusCode)
			}
		}
	})
}

func TestRoundTrip_PassesOtherRequestsOn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newScene(fallback.Options{})
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
