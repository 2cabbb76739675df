//go:build !js

package routertest

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/coder/websocket"
)

// An Option changes the request that opens a connection.
type Option func(*http.Request)

// Token passes a token the way that router.Token reads it.
func Token(token string) Option {
	return func(r *http.Request) {
		q := r.URL.Query()
		q.Set("access_token", token)
		r.URL.RawQuery = q.Encode()
	}
}

// Header sets a header of the request.
func Header(key, value string) Option {
	return func(r *http.Request) { r.Header.Set(key, value) }
}

// RemoteAddr makes the request come from an address such as "192.0.2.1:1234",
// which is also the default.
func RemoteAddr(addr string) Option {
	return func(r *http.Request) { r.RemoteAddr = addr }
}

// Dial opens a connection to a handler, usually a router. It is closed when the
// test ends. A refused connection fails the test.
func Dial(t testing.TB, h http.Handler, opts ...Option) *Conn {
	t.Helper()
	transport := &pipeTransport{handler: h, opts: opts}
	ws, resp, err := transport.dial()
	if err != nil {
		if resp != nil {
			t.Fatalf("routertest: connection refused with %s", resp.Status)
		}
		t.Fatalf("routertest: %v", err)
	}
	return newConn(t, ws, transport.client)
}

// Refused tries to open a connection that must be refused, and returns the
// answer.
func Refused(t testing.TB, h http.Handler, opts ...Option) *http.Response {
	t.Helper()
	ws, resp, err := (&pipeTransport{handler: h, opts: opts}).dial()
	if err == nil {
		_ = ws.CloseNow()
		t.Fatal("routertest: connection was not refused")
	}
	if resp == nil {
		t.Fatalf("routertest: %v", err)
	}
	return resp
}

// A pipeTransport is an http.RoundTripper that calls a handler, which may hijack
// the connection.
type pipeTransport struct {
	handler http.Handler
	opts    []Option
	client  *pipe // nil until hijacked
}

func (p *pipeTransport) dial() (*websocket.Conn, *http.Response, error) {
	// The client's library must know what a Header option offers, to accept the
	// server's choice.
	offer := httptest.NewRequest(http.MethodGet, "/ws", nil)
	for _, opt := range p.opts {
		opt(offer)
	}
	return websocket.Dial(context.Background(), "ws://example.com/ws", &websocket.DialOptions{
		HTTPClient:   &http.Client{Transport: p},
		Subprotocols: strings.Split(offer.Header.Get("Sec-WebSocket-Protocol"), ", "),
	})
}

// RoundTrip calls the handler on a goroutine of its own, as a server does, and returns
// its response: what it writes to the hijacked connection, or else to the ResponseWriter.
func (p *pipeTransport) RoundTrip(out *http.Request) (*http.Response, error) {
	in := out.Clone(context.Background())
	in.RemoteAddr, in.Host = "192.0.2.1:1234", out.URL.Host
	for _, opt := range p.opts {
		opt(in)
	}
	w := &pipeWriter{ResponseRecorder: httptest.NewRecorder(), hijacked: make(chan *pipe, 1)}
	served := make(chan any, 1)
	go func() {
		defer func() { served <- recover() }()
		p.handler.ServeHTTP(w, in)
	}()
	select {
	case p.client = <-w.hijacked:
		return p.upgraded(out, served)
	case panicked := <-served:
		panicAgain(panicked)
		return w.Result(), nil
	}
}

func (p *pipeTransport) upgraded(out *http.Request, served <-chan any) (*http.Response, error) {
	resp, err := http.ReadResponse(p.client.r, out)
	if err != nil {
		return nil, err
	}
	resp.Body = p.client
	panicAgain(<-served)
	return resp, nil
}

// panicAgain repeats a panic of the handler on the goroutine of the test.
func panicAgain(panicked any) {
	if panicked != nil {
		panic(panicked)
	}
}

// A pipeWriter is a ResponseWriter whose Hijack opens a pipe.
type pipeWriter struct {
	*httptest.ResponseRecorder
	hijacked chan *pipe
}

// Hijack implements [http.Hijacker].
func (w *pipeWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	client, server := net.Pipe()
	w.hijacked <- &pipe{Conn: client, r: bufio.NewReader(client), closed: make(chan struct{})}
	return server, bufio.NewReadWriter(bufio.NewReader(server), bufio.NewWriter(server)), nil
}

// A pipe is the client's end. Once frozen, what comes is lost; while held, it
// waits at the server.
type pipe struct {
	net.Conn

	r *bufio.Reader // of Conn

	mu     sync.Mutex
	held   chan struct{} // closed to go on; nil if nothing is held
	frozen atomic.Bool
	once   sync.Once
	closed chan struct{}
}

// Read reads what the server has written.
func (p *pipe) Read(b []byte) (int, error) {
	p.mu.Lock()
	held := p.held
	p.mu.Unlock()
	if held != nil {
		select {
		case <-held:
		case <-p.closed:
		}
	}
	n, err := p.r.Read(b)
	if err == nil && p.frozen.Load() {
		<-p.closed
		return 0, net.ErrClosed
	}
	return n, err
}

// Close closes both ends.
func (p *pipe) Close() error {
	p.once.Do(func() { close(p.closed) })
	return p.Conn.Close()
}
