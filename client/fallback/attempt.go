//go:build !js

package fallback

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-go/penstock/errors"
)

// attemptTimeout is how long an attempt may take until a message arrives, and how long a connection
// must last.
const attemptTimeout = 5 * time.Second

var errSilent = errors.New("no message has arrived in 5 s")

// An attempt is one to connect by WebSocket, up to its outcome.
type attempt struct {
	t      *roundTripper
	header http.Header
	format string // other than JSON
	cancel context.CancelFunc
	timer  *time.Timer

	received atomic.Bool // a message has arrived

	mu      sync.Mutex
	opened  time.Time          // zero before
	body    io.ReadWriteCloser // nil before
	settled bool               // the outcome is known
	givenUp bool               // because it is silent, and HTTP is used instead
}

// dial sends a handshake. The outcome of a failed one is decided when dial returns. A response is
// the server's unless it has the status 101 or an error is returned.
func (t *roundTripper) dial(req *http.Request, format string) (*http.Response, error) {
	ctx, cancel := context.WithCancel(req.Context())
	a := &attempt{t: t, header: ownHeader(req.Header), format: format, cancel: cancel}
	a.mu.Lock()
	a.timer = time.AfterFunc(attemptTimeout, a.expire)
	a.mu.Unlock()
	resp, err := t.base.RoundTrip(req.WithContext(ctx))
	switch body, ok := upgradedBody(resp, err); {
	case ok && a.watch(resp, body):
		return resp, nil
	case ok: // it was given up meanwhile
		_ = body.Close()
		cancel()
		return nil, errSilent
	case err != nil && req.Context().Err() != nil: // the client has given up
		a.settle()
		cancel()
		return nil, err
	case err != nil:
		a.fail(req.Context(), err)
		cancel()
		return nil, err
	case isRefusal(resp):
		a.settle()
	default:
		refusal := newStatusError(resp)
		a.fail(req.Context(), refusal)
		if t.suspects() { // a client would believe that the server has refused it for good
			_ = resp.Body.Close()
			cancel()
			return nil, refusal
		}
	}
	resp.Body = canceling{resp.Body, cancel}
	return resp, nil
}

// upgradedBody returns the connection of a response that has accepted a handshake.
func upgradedBody(resp *http.Response, err error) (io.ReadWriteCloser, bool) {
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		return nil, false
	}
	body, ok := resp.Body.(io.ReadWriteCloser)
	return body, ok
}

// canceling is the body of a response, whose request ends when it is closed.
type canceling struct {
	io.ReadCloser

	cancel context.CancelFunc
}

func (c canceling) Close() error {
	defer c.cancel()
	return c.ReadCloser.Close()
}

// isRefusal reports whether a response is the router's refusal of a handshake, which has an error
// as body, and not that of a proxy.
func isRefusal(resp *http.Response) bool {
	const maxErrorBytes = 4 << 10
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorBytes))
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(text), resp.Body), resp.Body}
	var refusal struct {
		Code string `json:"code"`
	}
	return json.Unmarshal(text, &refusal) == nil && refusal.Code != ""
}

// settle reports whether the outcome was unknown.
func (a *attempt) settle() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.settled {
		return false
	}
	a.settled = true
	a.timer.Stop()
	return true
}

// fail decides the outcome of an attempt whose handshake has failed.
func (a *attempt) fail(ctx context.Context, cause error) {
	if !a.settle() {
		a.t.awaitCheck(ctx)
		return
	}
	select {
	case <-a.t.failed(a, cause):
	case <-ctx.Done():
	}
}

// expire decides the outcome after attemptTimeout. An attempt that is silent is given up if the
// client falls back.
func (a *attempt) expire() {
	a.mu.Lock()
	if rest := attemptTimeout - time.Since(a.opened); a.received.Load() && rest > 0 && !a.settled {
		a.timer.Reset(rest)
		a.mu.Unlock()
		return
	}
	a.mu.Unlock()
	if !a.settle() {
		return
	}
	if a.received.Load() {
		a.t.works()
		return
	}
	<-a.t.failed(a, errSilent)
	if !a.t.usesHTTP() || a.received.Load() {
		return
	}
	a.cancel()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.givenUp = true
	if a.body != nil {
		_ = a.body.Close()
	}
}
