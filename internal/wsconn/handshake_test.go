package wsconn_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/wsconn"
)

// A lazyWriter delays the status until the body, as the writer of gin does.
type lazyWriter struct {
	http.ResponseWriter
}

func (*lazyWriter) WriteHeader(int) {}

func (w *lazyWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(w.ResponseWriter).Hijack()
}

// A wrapper implements Unwrap for http.ResponseController, and no optional interface.
type wrapper struct{ w http.ResponseWriter }

func (w wrapper) Header() http.Header         { return w.w.Header() }
func (w wrapper) Write(p []byte) (int, error) { return w.w.Write(p) }
func (w wrapper) WriteHeader(status int)      { w.w.WriteHeader(status) }
func (w wrapper) Unwrap() http.ResponseWriter { return w.w }

// An opaqueWriter has no method Hijack. That of a brokenWriter fails.
type opaqueWriter struct{ http.ResponseWriter }

type brokenWriter struct{ http.ResponseWriter }

func (brokenWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) { return nil, nil, io.ErrClosedPipe }

func TestAccept_HijacksBeforeItWrites(t *testing.T) {
	for name, tt := range map[string]struct {
		wrap func(http.ResponseWriter) http.ResponseWriter
		code errors.Code // of the error
	}{
		"a writer that delays the status": {func(w http.ResponseWriter) http.ResponseWriter { return &lazyWriter{w} }, ""},
		"a writer with Unwrap":            {func(w http.ResponseWriter) http.ResponseWriter { return wrapper{w} }, ""},
		"a writer without Hijack":         {func(w http.ResponseWriter) http.ResponseWriter { return opaqueWriter{w} }, errors.Unimplemented},
		"a writer whose Hijack fails":     {func(w http.ResponseWriter) http.ResponseWriter { return brokenWriter{w} }, errors.Internal},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("X-Outer", "kept")
				c, err := wsconn.Accept(tt.wrap(w), r, "", deflating(), newHandler())
				if tt.code == "" && assert.NoError(t, err) {
					go func() { _ = echo(c) }()
					return
				}
				assert.Equal(t, tt.code, errors.CodeOf(err))
				assert.Empty(t, w.Header().Get("Sec-WebSocket-Accept"))
				w.WriteHeader(http.StatusTeapot) // the caller answers
			}))
			defer server.Close()
			conn, err := net.Dial("tcp", server.Listener.Addr().String())
			require.NoError(t, err)
			defer func() { _ = conn.Close() }()
			_, err = io.WriteString(conn, handshake)
			require.NoError(t, err)
			r := bufio.NewReader(conn)
			resp, err := http.ReadResponse(r, nil)
			require.NoError(t, err)
			assert.Equal(t, "kept", resp.Header.Get("X-Outer"))
			if tt.code != "" {
				assert.Equal(t, http.StatusTeapot, resp.StatusCode)
				return
			}
			require.Equal(t, http.StatusSwitchingProtocols, resp.StatusCode)
			assert.Equal(t, "ICX+Yqv66kxgM0FcWaLWlFLwTAI=", resp.Header.Get("Sec-WebSocket-Accept"))
			c := &rawClient{conn, r, t}
			c.send(clientFrame(fin|text, "hello"))
			_, payload := c.next()
			assert.Equal(t, "hello", payload)
		})
	}
}

func TestAccept_RejectedHandshakeNegotiatesNothing(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := wsconn.Accept(w, r, "chat", deflating(), newHandler())
		assert.ErrorIs(t, err, wsconn.ErrAnswered)
	}))
	defer server.Close()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
	require.NoError(t, err)
	for name, value := range map[string]string{
		"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "12",
		"Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==", "Sec-WebSocket-Extensions": "permessage-deflate", "Sec-WebSocket-Protocol": "chat",
	} {
		req.Header.Set(name, value)
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	assert.Equal(t, http.StatusBadRequest, resp.StatusCode)
	assert.Equal(t, "13", resp.Header.Get("Sec-WebSocket-Version"))
	assert.Empty(t, resp.Header.Get("Sec-WebSocket-Extensions"))
	assert.Empty(t, resp.Header.Get("Sec-WebSocket-Protocol"))
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	assert.True(t, strings.Contains(string(text), "Sec-WebSocket-Version must be 13"), "%s", text)
}
