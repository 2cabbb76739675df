//go:build !js

package fallback_test

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/client/fallback"
	"github.com/penstock-go/penstock/internal/wsframe"
)

// A script is a server of the fallback whose answers are those of a test, written from the
// protocol, section 15.
type script struct {
	t *testing.T

	// The functions are those of the test. nil: a stream, and 204.
	open, down, up func(req *http.Request) (*http.Response, error)

	mu       sync.Mutex
	requests []request // open, down and up
	streams  []stream
}

// A request is one that the client has sent.
type request struct {
	exchange, body string
	header         http.Header
	at             time.Time
}

// bodyOf returns the body of a request, whose bytes the script has read.
func bodyOf(req *http.Request) string {
	text, _ := req.Context().Value(bodyKey{}).(string)
	return text
}

type bodyKey struct{}

func (s *script) RoundTrip(req *http.Request) (*http.Response, error) {
	exchange := exchangeOf(req)
	answer := map[string]func(*http.Request) (*http.Response, error){"open": s.open, "down": s.down, "up": s.up}[exchange]
	switch exchange {
	case "websocket": // silent
		<-req.Context().Done()
		return nil, context.Cause(req.Context())
	case "probe":
		return response(http.StatusForbidden, false), nil
	case "check":
		return response(http.StatusNoContent, true), nil
	}
	body, err := io.ReadAll(req.Body)
	require.NoError(s.t, err)
	s.mu.Lock()
	s.requests = append(s.requests, request{exchange, string(body), req.Header, time.Now()})
	s.mu.Unlock()
	switch {
	case answer != nil:
		return answer(req.WithContext(context.WithValue(req.Context(), bodyKey{}, string(body))))
	case exchange == "up":
		return response(http.StatusNoContent, true), nil
	}
	resp := s.stream(req.Context())
	if exchange == "open" {
		s.send("event: open\ndata: {\"secret\":\"s3cret\",\"protocol\":\"\"}\n\n")
	} else {
		s.send(":\n\n")
	}
	return resp, nil
}

// A stream is a response that goes on.
type stream struct {
	*io.PipeWriter

	events chan string // that are written, in order
}

// stream returns a response to which send writes from now on.
func (s *script) stream(ctx context.Context) *http.Response {
	r, w := io.Pipe()
	events := make(chan string, 10)
	context.AfterFunc(ctx, func() { _ = w.CloseWithError(context.Cause(ctx)) })
	go func() {
		for {
			select {
			case text := <-events:
				_, _ = io.WriteString(w, text)
			case <-ctx.Done():
				return
			}
		}
	}()
	resp := response(http.StatusOK, true)
	resp.Body = r
	s.mu.Lock()
	defer s.mu.Unlock()
	s.streams = append(s.streams, stream{w, events})
	return resp
}

// last returns the stream to which send writes.
func (s *script) last() stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.streams[len(s.streams)-1]
}

// send writes events without waiting until they are read.
func (s *script) send(events string) { s.last().events <- events }

// sent returns the bodies of the requests of an exchange.
func (s *script) sent(exchange string) (bodies []string) {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.requests {
		if r.exchange == exchange {
			bodies = append(bodies, r.body)
		}
	}
	return bodies
}

// An endpoint is a WebSocket client without a library.
type endpoint struct {
	*wsframe.Reader
	io.ReadWriteCloser

	t    *testing.T
	resp *http.Response
}

// connect opens a connection over HTTP.
func (s *script) connect(t *testing.T, header http.Header) *endpoint {
	t.Helper()
	resp, err := s.handshake(t, header)
	require.NoError(t, err)
	require.Equal(t, http.StatusSwitchingProtocols, resp.StatusCode)
	body := resp.Body.(io.ReadWriteCloser)
	e := &endpoint{wsframe.NewReader(bufio.NewReader(body), 100<<20, nil), body, t, resp}
	t.Cleanup(func() { _ = body.Close() })
	return e
}

func (s *script) handshake(t *testing.T, header http.Header) (*http.Response, error) {
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://example.com/ws?a=b&c=%20", nil)
	require.NoError(t, err)
	if header != nil {
		req.Header = header
	}
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", "websocket")
	req.Header.Set("Sec-WebSocket-Version", "13")
	req.Header.Set("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")
	return fallback.New("http://example.com/ws/http", &fallback.Options{Base: s}).RoundTrip(req)
}

func (e *endpoint) write(op wsframe.Opcode, text string) {
	_, err := e.Write(wsframe.AppendFrame(nil, wsframe.Client, op, []byte(text)))
	require.NoError(e.t, err)
}

func (e *endpoint) next() string {
	message, op, err := e.Append(nil)
	require.NoError(e.t, err)
	assert.Equal(e.t, wsframe.Text, op)
	return string(message)
}

// ended requires that the connection ends with an error, which is a close frame if it has a code.
func (e *endpoint) ended(code int, text string) {
	e.t.Helper()
	_, _, err := e.Append(nil)
	if code == 0 {
		assert.ErrorContains(e.t, err, text)
		return
	}
	assert.Equal(e.t, &wsframe.CloseError{Code: code, Reason: text}, err)
}
