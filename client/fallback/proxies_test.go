//go:build !js

package fallback_test

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/penstock-go/penstock/errors"
)

// modes are those in which a connection receives events: as a stream, or with polls, because a
// proxy holds streams back.
var modes = map[string]func(req *http.Request, next http.RoundTripper) (*http.Response, error){
	"stream": func(req *http.Request, next http.RoundTripper) (*http.Response, error) { return next.RoundTrip(req) },
	"poll":   buffering,
}

// eachMode runs a test in both modes.
func eachMode(t *testing.T, f func(t *testing.T, mode string)) {
	t.Parallel()
	for mode := range modes {
		t.Run(mode, func(t *testing.T) { bubble(t, func(t *testing.T) { f(t, mode) }) })
	}
}

// buffering is a proxy that passes a response on when it is complete.
func buffering(req *http.Request, next http.RoundTripper) (*http.Response, error) {
	resp, err := next.RoundTrip(req)
	if err != nil || resp.StatusCode == http.StatusSwitchingProtocols {
		return resp, err
	}
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil {
		return nil, err
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return resp, nil
}

// A lossyProxy loses, delays and repeats requests and responses.
type lossyProxy struct {
	mode func(*http.Request, http.RoundTripper) (*http.Response, error)

	mu   sync.Mutex
	rand *rand.Rand
}

var errLossy = errors.New("lost by the proxy")

func (p *lossyProxy) oneOf(n int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rand.IntN(n) == 0
}

func (p *lossyProxy) roundTrip(req *http.Request, next http.RoundTripper) (*http.Response, error) {
	if exchange := exchangeOf(req); exchange != "up" && exchange != "down" {
		return p.mode(req, next)
	}
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	send := func() (*http.Response, error) {
		again := req.Clone(req.Context())
		again.Body = io.NopCloser(bytes.NewReader(body))
		return p.mode(again, next)
	}
	if p.oneOf(10) {
		return nil, errLossy
	}
	if p.oneOf(10) {
		time.Sleep(time.Second)
	}
	if p.oneOf(10) { // as proxies do that try another server
		if resp, err := send(); err == nil {
			_ = resp.Body.Close()
		}
	}
	resp, err := send()
	switch {
	case err != nil:
		return nil, err
	case !p.oneOf(5):
		return resp, nil
	case req.URL.RawQuery == "up":
		_ = resp.Body.Close()
		return nil, errLossy
	}
	resp.Body = &cutBody{resp.Body, 300}
	return resp, nil
}

// A cutBody ends with an error after some bytes.
type cutBody struct {
	io.ReadCloser

	left int
}

func (b *cutBody) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, errLossy
	}
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

type (
	join   struct{}
	joined struct{}
)

func (join) MessageType() string { return "JOIN" }

func (joined) MessageType() string { return "JOINED" }
