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

	"github.com/penstock-go/penstock/router"
)

// An Option changes the request that opens a connection.
type Option func(*http.Request)

// Token sets a token as the query parameter access_token, where [router.Token]
// reads it.
func Token(token string) Option {
	return func(r *http.Request) {
		q := r.URL.Query()
		q.Set("access_token", token)
		r.URL.RawQuery = q.Encode()
	}
}

// Header sets a header field of the request, such as Origin or
// Sec-WebSocket-Protocol.
func Header(key, value string) Option {
	return func(r *http.Request) { r.Header.Set(key, value) }
}

// RemoteAddr sets the client's address and port. The default is
// "192.0.2.1:1234".
func RemoteAddr(addr string) Option {
	return func(r *http.Request) { r.RemoteAddr = addr }
}

// Dial connects to a handler, usually a router, over an in-memory pipe. The
// connection is closed when the test ends. A refused handshake fails the test.
//
// So does a message of the server that clients do not know. If the handler is a router that declares any message
// which it sends (see [router.DeclareMessage] and TopicOptions.Messages), every message that the connection
// receives must be declared, and every reply to [Start] and [Call] must be the declared one. If a route declares
// errors (see [router.RouteDoc]), so must be every error with which it answers, and its details must have the
// declared type. To leave messages undeclared, pass http.HandlerFunc(r.ServeHTTP).
func Dial(t testing.TB, h http.Handler, opts ...Option) *Conn {
	t.Helper()
	transport := &pipeTransport{handler: h, opts: opts}
	ws, resp, err := transport.dial()
	if err != nil {
		if resp != nil {
			t.Fatalf("routertest: handshake was refused with status %s", resp.Status)
		}
		t.Fatalf("routertest: %v", err)
	}
	codec := transport.codec
	if codec != nil && ws.Subprotocol() != codec.Subprotocol() {
		t.Fatalf("routertest: the server selected the subprotocol %q and not %q of the codec; add the codec to Options.Codecs", ws.Subprotocol(), codec.Subprotocol())
	}
	return newConn(t, ws, transport.client, codec, declarationsOf(h))
}

// Refused sends a handshake that the handler must refuse, and returns the HTTP
// response. An accepted handshake fails the test.
func Refused(t testing.TB, h http.Handler, opts ...Option) *http.Response {
	t.Helper()
	ws, resp, err := (&pipeTransport{handler: h, opts: opts}).dial()
	if err == nil {
		_ = ws.CloseNow()
		t.Fatal("routertest: handshake was accepted; it must be refused")
	}
	if resp == nil {
		t.Fatalf("routertest: %v", err)
	}
	return resp
}

// A pipeTransport is an http.RoundTripper that calls a handler in this process. The
// handler may hijack the connection.
type pipeTransport struct {
	handler http.Handler
	opts    []Option
	client  *pipe // nil until the handler hijacks the connection
	codec   router.Codec
}

func (p *pipeTransport) dial() (*websocket.Conn, *http.Response, error) {
	// The client library accepts only a subprotocol that it offers itself, so the ones
	// that a Header option sets must be in its options, too.
	offer := httptest.NewRequest(http.MethodGet, "/ws", nil)
	for _, opt := range p.opts {
		opt(offer)
	}
	p.codec, _ = offer.Context().Value(codecKey{}).(router.Codec)
	return websocket.Dial(context.Background(), "ws://example.com/ws", &websocket.DialOptions{
		HTTPClient:   &http.Client{Transport: p},
		Subprotocols: strings.Split(offer.Header.Get("Sec-WebSocket-Protocol"), ", "),
	})
}

// RoundTrip calls the handler on a new goroutine, as an HTTP server does, and returns
// the response that the handler writes to the hijacked connection or, without a hijack,
// to the ResponseWriter.
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
		repanic(panicked)
		return w.Result(), nil
	}
}

func (p *pipeTransport) upgraded(out *http.Request, served <-chan any) (*http.Response, error) {
	resp, err := http.ReadResponse(p.client.r, out)
	if err != nil {
		return nil, err
	}
	resp.Body = p.client
	repanic(<-served)
	return resp, nil
}

// repanic raises a panic of the handler again on the test's goroutine.
func repanic(panicked any) {
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
	client, server := newPipe()
	w.hijacked <- &pipe{Conn: client, r: bufio.NewReader(client), closed: make(chan struct{})}
	return server, bufio.NewReadWriter(bufio.NewReader(server), bufio.NewWriter(server)), nil
}

// A pipe is the client side of a connection. A frozen pipe discards what the server
// writes; a paused pipe does not read, so the server's writes block.
type pipe struct {
	net.Conn

	r *bufio.Reader // reads from Conn

	mu     sync.Mutex
	paused chan struct{} // closed by Resume; nil while the pipe is not paused
	frozen atomic.Bool
	once   sync.Once
	closed chan struct{}
}

// Read reads what the server has written.
func (p *pipe) Read(b []byte) (int, error) {
	p.mu.Lock()
	paused := p.paused
	p.mu.Unlock()
	if paused != nil {
		select {
		case <-paused:
		case <-p.closed:
			return 0, net.ErrClosed
		}
	}
	n, err := p.r.Read(b)
	if err == nil && p.frozen.Load() {
		<-p.closed
		return 0, net.ErrClosed
	}
	return n, err
}

// Close closes the pipe and unblocks a paused or frozen Read.
func (p *pipe) Close() error {
	p.once.Do(func() { close(p.closed) })
	return p.Conn.Close()
}
