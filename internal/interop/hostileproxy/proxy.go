// Package hostileproxy has reverse proxies that treat WebSockets and HTTP requests as some proxies,
// firewalls and antivirus programs do, for tests of clients and servers behind them.
package hostileproxy

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"testing"
)

// A Fault is a middleware around the forwarding of requests.
type Fault func(forward http.Handler) http.Handler

// A Proxy forwards HTTP/1.1 requests and upgraded connections to a server. It is safe for concurrent use.
type Proxy struct {
	URL string // http://127.0.0.1:port

	forward http.Handler
	faulty  atomic.Pointer[http.Handler] // forward with faults
}

// Start starts a proxy in front of the server at a URL, until the test ends. The first fault sees a request
// first.
func Start(t testing.TB, server string, faults ...Fault) *Proxy {
	t.Helper()
	target, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 100}
	p := &Proxy{forward: &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Host = r.In.Host // which the origin check compares
		},
		Transport: transport,
		ErrorLog:  slog.NewLogLogger(slog.DiscardHandler, 0),
	}}
	p.Use(faults...)
	front := httptest.NewUnstartedServer(p)
	front.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	front.Start()
	p.URL = front.URL
	t.Cleanup(func() {
		front.CloseClientConnections() // before Close, which waits for streams
		front.Close()
		transport.CloseIdleConnections()
	})
	return p
}

// Use replaces the faults for later requests. Without faults, the proxy is repaired. What is open already is
// treated as before.
func (p *Proxy) Use(faults ...Fault) {
	h := p.forward
	for i := range faults {
		h = faults[len(faults)-1-i](h)
	}
	p.faulty.Store(&h)
}

func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) { (*p.faulty.Load()).ServeHTTP(w, r) }
