package interop_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	chimiddleware "github.com/go-chi/chi/v5/middleware"
	"github.com/gorilla/handlers"
	"github.com/gorilla/mux"
	"github.com/labstack/echo/v4"
	echomiddleware "github.com/labstack/echo/v4/middleware"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
)

// other responds to requests that are not handshakes.
var other = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "other") })

// frameworks mount ws at /ws and other at /other, behind common middleware.
var frameworks = map[string]func(ws http.Handler) http.Handler{
	"http.ServeMux": func(ws http.Handler) http.Handler {
		m := http.NewServeMux()
		m.Handle("GET /ws", ws)
		m.Handle("/other", other)
		return m
	},
	"chi": func(ws http.Handler) http.Handler {
		m := chi.NewRouter()
		m.Use(
			chimiddleware.RequestID,
			chimiddleware.RequestLogger(&chimiddleware.DefaultLogFormatter{Logger: discard{}}),
			chimiddleware.Recoverer,
			chimiddleware.Compress(5),
			chimiddleware.Timeout(time.Minute),
			chimiddleware.Throttle(100),
		)
		m.Handle("/ws", ws)
		m.Handle("/other", other)
		return m
	},
	"echo": func(ws http.Handler) http.Handler {
		e := echo.New()
		e.Use(echomiddleware.RequestLoggerWithConfig(echomiddleware.RequestLoggerConfig{
			LogStatus:     true,
			LogValuesFunc: func(echo.Context, echomiddleware.RequestLoggerValues) error { return nil },
		}), echomiddleware.Recover(), echomiddleware.Gzip())
		e.GET("/ws", echo.WrapHandler(ws))
		e.GET("/other", echo.WrapHandler(other))
		return e
	},
	"gin": func(ws http.Handler) http.Handler {
		gin.SetMode(gin.ReleaseMode)
		g := gin.New()
		g.Use(gin.LoggerWithWriter(io.Discard), gin.Recovery())
		g.GET("/ws", gin.WrapH(ws))
		g.GET("/other", gin.WrapH(other))
		return g
	},
	"gorilla": func(ws http.Handler) http.Handler {
		m := mux.NewRouter()
		m.Handle("/ws", ws)
		m.Handle("/other", other)
		return handlers.RecoveryHandler()(handlers.LoggingHandler(io.Discard, handlers.CompressHandler(m)))
	},
	"a wrapper with Unwrap": func(ws http.Handler) http.Handler {
		return wrapped(ws, func(w http.ResponseWriter) http.ResponseWriter { return unwrapper{plain{w}, w} })
	},
	"two wrappers with Unwrap": func(ws http.Handler) http.Handler {
		return wrapped(ws, func(w http.ResponseWriter) http.ResponseWriter {
			inner := unwrapper{plain{w}, w}
			return unwrapper{plain{inner}, inner}
		})
	},
}

// unable mount ws in servers whose connections cannot be hijacked.
var unable = map[string]struct {
	mount  func(ws http.Handler) http.Handler
	status int
}{
	"http.TimeoutHandler": {func(ws http.Handler) http.Handler {
		return wrapped(http.TimeoutHandler(ws, time.Minute, ""), func(w http.ResponseWriter) http.ResponseWriter { return w })
	}, http.StatusNotImplemented},
	"neither Hijack nor Unwrap": {func(ws http.Handler) http.Handler {
		return wrapped(ws, func(w http.ResponseWriter) http.ResponseWriter { return plain{w} })
	}, http.StatusNotImplemented},
	"Unwrap to a writer without Hijack": {func(ws http.Handler) http.Handler {
		return wrapped(ws, func(w http.ResponseWriter) http.ResponseWriter { return unwrapper{plain{w}, plain{w}} })
	}, http.StatusNotImplemented},
	"Hijack is not supported": {func(ws http.Handler) http.Handler {
		return wrapped(ws, func(w http.ResponseWriter) http.ResponseWriter { return failing{plain{w}, http.ErrNotSupported} })
	}, http.StatusNotImplemented},
	"Hijack fails": {func(ws http.Handler) http.Handler {
		return wrapped(ws, func(w http.ResponseWriter) http.ResponseWriter {
			return failing{plain{w}, errors.New("out of order")}
		})
	}, http.StatusInternalServerError},
}

func wrapped(ws http.Handler, wrap func(http.ResponseWriter) http.ResponseWriter) http.Handler {
	m := http.NewServeMux()
	m.HandleFunc("/ws", func(w http.ResponseWriter, req *http.Request) { ws.ServeHTTP(wrap(w), req) })
	m.Handle("/other", other)
	return m
}

// A plain writer hides the optional interfaces of the writer that it wraps.
type plain struct{ http.ResponseWriter }

// An unwrapper hides them too, except from http.ResponseController.
type unwrapper struct {
	plain

	inner http.ResponseWriter
}

func (u unwrapper) Unwrap() http.ResponseWriter { return u.inner }

type failing struct {
	plain

	err error
}

func (f failing) Hijack() (net.Conn, *bufio.ReadWriter, error) { return nil, nil, f.err }

type discard struct{}

func (discard) Print(...any) {}

// withCookie sets a cookie before the handshake, as a middleware for sessions does.
func withCookie(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		http.SetCookie(w, &http.Cookie{Name: "session", Value: "abc"})
		next.ServeHTTP(w, req)
	})
}

func TestFrameworks_UpgradeAndCall(t *testing.T) {
	for name, mount := range frameworks {
		t.Run(name, func(t *testing.T) {
			addr := serve(t, "tcp", withCookie(mount(newRouter(router.Options{}))))
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			defer cancel()
			ws, resp, err := websocket.Dial(ctx, "ws://"+addr+"/ws", nil) // which checks Sec-WebSocket-Accept
			require.NoError(t, err)
			assert.Equal(t, []string{"session=abc"}, resp.Header.Values("Set-Cookie"))
			c := newClient(t, ws)
			assert.Equal(t, "127.0.0.1", c.whoAmI())
			c.close()
		})
	}
}

const handshake = "GET /ws HTTP/1.1\r\nHost: example.com\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
	"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"

// maskedCall is a call of WHO_AM_I in a frame that is masked with zeros.
func maskedCall() string {
	const text = `{"type":"WHO_AM_I","meta":{"correlationId":"1"},"payload":{}}`
	return "\x81" + string([]byte{0x80 | byte(len(text))}) + "\x00\x00\x00\x00" + text
}

// TestFrameworks_AcceptKeyAndEarlyCall is RFC 6455, section 1.3, with a call in the same segment.
func TestFrameworks_AcceptKeyAndEarlyCall(t *testing.T) {
	for name, mount := range frameworks {
		t.Run(name, func(t *testing.T) {
			conn := dialRaw(t, serve(t, "tcp", withCookie(mount(newRouter(router.Options{})))))
			_, err := io.WriteString(conn, handshake+maskedCall())
			require.NoError(t, err)
			r := bufio.NewReader(conn)
			resp, err := http.ReadResponse(r, nil)
			require.NoError(t, err)
			require.Equal(t, http.StatusSwitchingProtocols, resp.StatusCode)
			assert.Equal(t, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=", resp.Header.Get("Sec-WebSocket-Accept"))
			assert.Equal(t, []string{"session=abc"}, resp.Header.Values("Set-Cookie"))
			frame, err := r.Peek(1)
			require.NoError(t, err)
			assert.Equal(t, "\x81", string(frame), "a frame of text must follow")
		})
	}
}

func dialRaw(t *testing.T, addr string) *net.TCPConn {
	conn, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(timeout)))
	return conn.(*net.TCPConn)
}

// TestFrameworks_WithoutHijackAreAnsweredOnce sends what belongs into a tunnel behind the
// handshake.
func TestFrameworks_WithoutHijackAreAnsweredOnce(t *testing.T) {
	for name, tt := range unable {
		for kind, behind := range map[string]string{
			"nothing":   "",
			"a frame":   maskedCall(),
			"a request": "GET /other HTTP/1.1\r\nHost: example.com\r\n\r\n",
		} {
			t.Run(name+" and "+kind+" behind", func(t *testing.T) {
				conn := dialRaw(t, serve(t, "tcp", tt.mount(newRouter(router.Options{}))))
				_, err := io.WriteString(conn, handshake+behind)
				require.NoError(t, err)
				r := bufio.NewReader(conn)
				resp, err := http.ReadResponse(r, nil)
				require.NoError(t, err)
				assert.Equal(t, tt.status, resp.StatusCode)
				assert.Equal(t, "application/json", resp.Header.Get("Content-Type"))
				assert.Empty(t, resp.Header.Get("Sec-WebSocket-Accept"))
				body, err := io.ReadAll(resp.Body)
				require.NoError(t, err)
				var payload struct{ Code string }
				require.NoError(t, json.Unmarshal(body, &payload), "%s", body)
				assert.NotEmpty(t, payload.Code)

				_ = conn.CloseWrite() // the server may have closed the connection
				rest, err := io.ReadAll(r)
				require.NoError(t, err)
				assertNotTunneled(t, string(rest))
			})
		}
	}
}

// assertNotTunneled checks what an HTTP server sends for the bytes that follow a request: nothing,
// the response to a further request, or an error.
func assertNotTunneled(t *testing.T, rest string) {
	if rest == "" {
		return
	}
	resp, err := http.ReadResponse(bufio.NewReader(strings.NewReader(rest)), nil)
	require.NoError(t, err, "%q", rest)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	if resp.StatusCode == http.StatusOK {
		assert.Equal(t, "other", string(body))
		return
	}
	assert.Equal(t, http.StatusBadRequest, resp.StatusCode, "%q", rest)
}
