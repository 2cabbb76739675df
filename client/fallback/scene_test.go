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
	"github.com/penstock-go/penstock/internal/wsframe"
)

// A scene is a server and a proxy of which a test says what they answer. It answers an open with
// 503, so that a handshake with that response has fallen back.
type scene struct {
	http.RoundTripper

	t         *testing.T
	websocket answer
	check     answer
	began     time.Time     // the last attempt
	body      io.ReadCloser // of the last "upgrade"

	mu       sync.Mutex
	requests []string
	reports  []string
	server   net.Conn // the other end of the last WebSocket
}

func newScene(t *testing.T, opts fallback.Options) *scene {
	s := &scene{t: t, websocket: answerOf(t, "403"), check: answerOf(t, "204 ours")}
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
func (s *scene) attempt(protocols ...string) (*http.Response, error) {
	s.mu.Lock()
	s.requests = nil
	s.mu.Unlock()
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, "http://example.com/ws", nil)
	require.NoError(s.t, err)
	req.Header.Set("Upgrade", "websocket")
	req.Header.Set("Sec-WebSocket-Protocol", strings.Join(protocols, ","))
	return s.RoundTrip(req)
}

func (s *scene) exchanges() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// expect requires that an attempt causes these exchanges.
func (s *scene) expect(exchanges ...string) {
	s.t.Helper()
	s.began = time.Now()
	resp, err := s.attempt()
	if err == nil {
		_ = resp.Body.Close()
	}
	require.Equal(s.t, exchanges, s.exchanges())
}

// connect opens a WebSocket, which writes frames and then lasts for a time.
func (s *scene) connect(lasts time.Duration, frames ...[]byte) {
	s.t.Helper()
	before := s.websocket
	s.websocket = s.upgrades
	resp, err := s.attempt()
	s.websocket = before
	require.NoError(s.t, err)
	require.Equal(s.t, http.StatusSwitchingProtocols, resp.StatusCode)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.Copy(io.Discard, resp.Body)
	}()
	for _, frame := range frames {
		_, err := s.server.Write(frame)
		require.NoError(s.t, err)
	}
	time.Sleep(lasts)
	_ = s.server.Close()
	<-ended
	synctest.Wait()
	require.NoError(s.t, resp.Body.Close())
}

func message(text string) []byte {
	return wsframe.AppendFrame(nil, wsframe.Server, wsframe.Text, []byte(text))
}

// frames returns what the server writes for a word of testdata/decisions.txt.
func frames(word string) [][]byte {
	if code, ok := strings.CutPrefix(word, "close:"); ok {
		n, _ := strconv.Atoi(code)
		return [][]byte{wsframe.AppendClose(nil, wsframe.Server, n, "")}
	}
	whole := message("{}")
	return map[string][][]byte{
		"{}":    {whole},
		"parts": {whole[:1], whole[1:2], whole[2:]},
		"large": {message(strings.Repeat("a", 70_000))[:20]},
		"ping":  {wsframe.AppendFrame(nil, wsframe.Server, wsframe.Ping, nil)},
	}[word]
}

func (s *scene) step(step, arguments string) {
	s.t.Helper()
	words := strings.Fields(arguments)
	switch step {
	case "websocket":
		s.websocket = answerOf(s.t, arguments)
	case "check":
		s.check = answerOf(s.t, arguments)
	case "try":
		times := 1
		if last := len(words) - 1; words[last][0] == 'x' {
			times, _ = strconv.Atoi(words[last][1:])
			words = words[:last]
		}
		for range times {
			s.expect(words...)
		}
	case "connect":
		var all [][]byte
		for _, word := range words[1:] {
			all = append(all, frames(word)...)
		}
		s.connect(duration(s.t, words[0]), all...)
	case "upgrade":
		before := s.websocket
		s.websocket = func(req *http.Request) (*http.Response, error) {
			time.Sleep(duration(s.t, arguments))
			return s.upgrades(req)
		}
		resp, err := s.attempt()
		require.NoError(s.t, err)
		s.websocket, s.body, s.began = before, resp.Body, time.Now()
	case "lost":
		_, err := s.body.Read(make([]byte, 1))
		require.Error(s.t, err)
	case "message":
		go func() { _, _ = io.Copy(io.Discard, s.body) }()
		_, err := s.server.Write(message("{}"))
		require.NoError(s.t, err)
	case "leave":
		require.NoError(s.t, s.body.Close())
		synctest.Wait()
	case "=":
		assert.Equal(s.t, words, s.exchanges())
	case "took":
		assert.Equal(s.t, duration(s.t, arguments), time.Since(s.began))
	case "wait":
		time.Sleep(duration(s.t, arguments))
	case "reports":
		assert.Equal(s.t, arguments, strings.Join(s.reports, " "))
	default:
		s.t.Fatal("no step:", step)
	}
}

func TestDecisions(t *testing.T) {
	runStories(t, "decisions", func(t *testing.T) func(step, arguments string) {
		s := newScene(t, fallback.Options{})
		return func(step, arguments string) {
			if step == "measure" {
				s = newScene(t, fallback.Options{Measure: true})
				return
			}
			s.step(step, arguments)
		}
	})
}
