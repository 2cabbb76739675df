//go:build !js

package fallback

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/penstock-go/penstock/errors"
)

// How long a response may be silent.
const (
	muteTimeout = 3 * time.Second  // a stream, until its first byte
	idleTimeout = 40 * time.Second // a stream, in which the server writes a comment every 15 s
	pollTimeout = 35 * time.Second // a poll, which the server ends after 25 s
)

var (
	errMute = errors.New("fallback: a stream of the server does not arrive; a proxy may hold it back")
	errIdle = errors.New("fallback: the server is silent")
)

// request returns a request to the fallback.
func (t *roundTripper) request(ctx context.Context, method, exchange string, h http.Header, body []byte) *http.Request {
	u := *t.url
	u.RawQuery = exchange
	req := (&http.Request{Method: method, URL: &u, Host: u.Host, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: h.Clone()}).WithContext(ctx)
	req.Header.Set("Accept-Encoding", "identity") // compression may hold events back
	if body != nil {
		req.Header.Set("Content-Type", "text/plain;charset=UTF-8")
		req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	}
	return req
}

// repeatable lets net/http send a request again if it has reused a connection that was closed
// meanwhile.
func repeatable(req *http.Request) *http.Request {
	req.Header["Idempotency-Key"] = []string{} // not sent; see http.Transport
	return req
}

// A response is one with events. Its request is canceled when it is silent for too long.
type response struct {
	*http.Response

	events *eventReader
	ctx    context.Context //nolint:containedctx // of the request
	cancel context.CancelCauseFunc
	timer  *time.Timer // calls cancel
	idle   time.Duration
	heard  atomic.Bool // a byte has arrived
}

// begin sends an open or a down in the mode of the connection.
func (c *conn) begin(exchange string, body []byte) (*response, error) {
	ctx, cancel := context.WithCancelCause(c.ctx)
	r := &response{ctx: ctx, cancel: cancel, idle: idleTimeout}
	first := muteTimeout
	if c.mode == modePoll {
		first, r.idle = pollTimeout, pollTimeout
	}
	r.timer = time.AfterFunc(first, func() {
		if c.mode == modeStream && !r.heard.Load() {
			cancel(errMute)
		} else {
			cancel(errIdle)
		}
	})
	req := c.t.request(ctx, http.MethodPost, exchange, c.header, body)
	if exchange != "open" {
		req = repeatable(req)
	}
	resp, err := c.t.base.RoundTrip(req)
	if err != nil {
		return nil, r.failed(err)
	}
	r.Response = resp
	r.events = newEventReader(r, maxEventBytes)
	return r, nil
}

// Read reads the body.
func (r *response) Read(p []byte) (int, error) {
	if r.heard.Load() {
		r.timer.Reset(r.idle)
	}
	n, err := r.Body.Read(p)
	if n > 0 {
		r.heard.Store(true)
		r.timer.Stop() // while the client handles what has arrived
	}
	if err != nil && !errors.Is(err, io.EOF) {
		err = r.failed(err)
	}
	return n, err
}

// failed releases what a request holds, and returns why it has failed.
func (r *response) failed(err error) error {
	r.timer.Stop()
	if cause := context.Cause(r.ctx); cause != nil {
		err = cause
	}
	r.cancel(err)
	return err
}

// close ends the request.
func (r *response) close() {
	r.timer.Stop()
	_ = r.Body.Close()
	r.cancel(nil)
}
