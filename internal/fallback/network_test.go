package fallback_test

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/router"
)

// This file has tests on sockets and with middlewares.

// newSocketClient returns a client of a server on loopback, which a test has configured.
func newSocketClient(t *testing.T, h http.Handler, configure func(*httptest.Server)) (*client, *httptest.Server) {
	t.Helper()
	server := httptest.NewUnstartedServer(h)
	server.EnableHTTP2 = true
	configure(server)
	if server.TLS == nil && server.URL == "" {
		server.Start()
	}
	t.Cleanup(server.Close)
	client := clientOf(t, server.Client().Do)
	client.url = server.URL + "/ws/http"
	return client, server
}

// TestNetwork_HTTP2 runs calls over HTTP/2; the other tests use HTTP/1.1.
func TestNetwork_HTTP2(t *testing.T) {
	r := router.New(nil)
	router.RPC(r, echo)
	client, _ := newSocketClient(t, r.HTTPFallback(nil), func(s *httptest.Server) { s.StartTLS() })
	events := client.open("stream")
	assert.Equal(t, 2, events.resp.ProtoMajor)
	for i := range 50 {
		client.up(call(i, i))
		assert.Contains(t, client.receive(events).data, fmt.Sprintf(`{"n":%d}`, i))
	}
	onlyConn(t, r).Close(4000, "")
	assert.Equal(t, "close", client.receive(events).name)
	events.close()
}

// TestNetwork_TimeoutsOfTheServerDoNotEndStreams has timeouts that bound ordinary requests, and a connection that is used
// again after a stream.
func TestNetwork_TimeoutsOfTheServerDoNotEndStreams(t *testing.T) {
	runSynctest(t, "", func(t *testing.T) {
		r := router.New(&router.Options{Timeouts: router.Timeouts{Ping: time.Hour}})
		server := &http.Server{Handler: r.HTTPFallback(nil), ReadTimeout: 5 * time.Second, WriteTimeout: 5 * time.Second}
		client := clientOf(t, serveInMemory(t, server).Do)
		events := client.open("stream")
		conn := onlyConn(t, r)
		for range 3 {
			for range 3 {
				time.Sleep(20 * time.Second)
				require.NoError(t, conn.Send(Echo{N: 1}))
				client.receive(events)
			}
			client.acknowledge()
			next := client.events("stream")
			_, err := events.next() // so that its connection can be used again
			require.Equal(t, io.EOF, err)
			events = next
		}
		events.close()
	})
}

// A plainWriter is a ResponseWriter of a middleware that can only write.
type plainWriter struct{ w http.ResponseWriter }

func (p plainWriter) Header() http.Header         { return p.w.Header() }
func (p plainWriter) Write(b []byte) (int, error) { return p.w.Write(b) }
func (p plainWriter) WriteHeader(status int)      { p.w.WriteHeader(status) }

// TestNetwork_MiddlewareThatCannotFlush refuses streams, and serves polls.
func TestNetwork_MiddlewareThatCannotFlush(t *testing.T) {
	runSynctest(t, "", func(t *testing.T) {
		log := &strings.Builder{}
		var limits []string
		r := router.New(&router.Options{
			Logger:          slog.New(slog.NewTextHandler(log, nil)),
			OnLimitExceeded: func(l router.LimitExceeded) { limits = append(limits, l.Error()) },
		})
		router.RPC(r, echo)
		h := r.HTTPFallback(&router.FallbackOptions{MaxConns: 1})
		client := newClient(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { h.ServeHTTP(plainWriter{w}, req) }))
		for range 2 {
			assert.Equal(t, http.StatusNotImplemented, client.status("open", `{"mode":"stream"}`))
		}
		assert.Contains(t, log.String(), "the ResponseWriter fallback_test.plainWriter cannot flush")
		client.open("poll").close()
		assert.Equal(t, http.StatusServiceUnavailable, client.status("open", `{"mode":"poll"}`))
		assert.Equal(t, []string{"connections limit exceeded: 2 of 1, set by router.FallbackOptions.MaxConns"}, limits)
		client.up(call(1, 1))
		resp := client.down("stream")
		assert.Equal(t, http.StatusNotImplemented, resp.StatusCode)
		require.NoError(t, resp.Body.Close())
		events := client.events("poll")
		assert.Contains(t, client.receive(events).data, `{"n":1}`)
		events.close()
	})
}

// TestNetwork_RawRequests has what http.Client does not send.
func TestNetwork_RawRequests(t *testing.T) {
	r := router.New(nil)
	_, server := newSocketClient(t, r.HTTPFallback(nil), func(*httptest.Server) {})
	for request, want := range map[string]string{
		"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: h2c\r\n\r\n":                                             "HTTP/1.1 400",
		"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\n\r\n":                                       "HTTP/1.1 400",
		"POST /?open HTTP/1.0\r\nContent-Length: 15\r\n\r\n{\"mode\":\"poll\"}":                         "HTTP/1.0 200",
		"POST /?up HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n{}":                        "HTTP/1.1 413",
		"POST /?open&down HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n0\r\n\r\n": "HTTP/1.1 400",
	} {
		conn := must(net.Dial("tcp", server.Listener.Addr().String()))
		must(conn.Write([]byte(request)))
		got := make([]byte, len(want))
		must(io.ReadFull(conn, got))
		assert.Equal(t, want, string(got), request)
		require.NoError(t, conn.Close())
	}
}
