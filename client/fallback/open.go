//go:build !js

package fallback

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/wsframe"
)

// opening is the body of an open.
type opening struct {
	Protocols []string `json:"protocols"`
	Query     string   `json:"query"`
	Mode      string   `json:"mode"`
}

// Modes of an open and a down.
const (
	modeStream = "stream"
	modePoll   = "poll"
)

// closing is how a connection is closed: in an up, and as the data of an event.
type closing struct {
	Code   int    `json:"code"`
	Reason string `json:"reason"`
}

// errUnopened is the end of a response that has not said whether the connection is open.
var errUnopened = errors.New("fallback: the response has ended before the connection was open")

// open answers a handshake with a connection over HTTP.
func (t *roundTripper) open(req *http.Request) (*http.Response, error) {
	t.mu.Lock()
	poll := t.poll
	t.mu.Unlock()
	if !poll {
		resp, err := t.openIn(modeStream, req)
		if !errors.Is(err, errMute) {
			return resp, err
		}
		t.mu.Lock()
		t.poll = true
		t.mu.Unlock()
	}
	return t.openIn(modePoll, req)
}

// openIn opens a connection in a mode. It returns errMute if a stream does not arrive.
func (t *roundTripper) openIn(mode string, req *http.Request) (*http.Response, error) {
	body, err := json.Marshal(opening{protocols(req), req.URL.RawQuery, mode})
	if err != nil {
		return nil, err
	}
	// The connection outlives the context of the handshake.
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(req.Context()))
	stop := context.AfterFunc(req.Context(), func() { cancel(context.Cause(req.Context())) })
	c := newConn(ctx, cancel, t, mode, ownHeader(req.Header))
	resp, err := c.handshake(body, req)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		stop()
		if err != nil {
			cancel(err)
		}
		return resp, err
	}
	if !stop() {
		return nil, context.Cause(ctx)
	}
	return resp, nil
}

// handshake sends an open, and returns the response to the handshake.
func (c *conn) handshake(body []byte, req *http.Request) (*http.Response, error) {
	r, err := c.begin("open", body)
	if err != nil {
		return nil, err
	}
	switch {
	case r.StatusCode != http.StatusOK:
		return c.refused(r)
	case !isOurs(r.Response):
		r.close()
		c.t.tryWebSocket()
		return nil, errUnopened
	}
	e, err := r.events.next()
	if err != nil {
		r.close()
		if errors.Is(err, io.EOF) {
			err = errUnopened
		}
		return nil, err
	}
	var opened struct {
		Secret   string `json:"secret"`
		Protocol string `json:"protocol"`
	}
	switch e.name {
	case "open":
		if err := json.Unmarshal(e.data, &opened); err != nil || opened.Secret == "" {
			r.close()
			return nil, fmt.Errorf("fallback: the server has sent an invalid event: %w", errors.Join(err, errUnopened))
		}
		c.secret = opened.Secret
		return c.accept(req, opened.Protocol, func() { c.run(r) }), nil
	case "close":
		var refusal closing
		err := json.Unmarshal(e.data, &refusal)
		r.close()
		if err != nil {
			return nil, fmt.Errorf("fallback: the server has sent an invalid event: %w", err)
		}
		return c.accept(req, "", func() { c.refuse(refusal) }), nil
	}
	r.close()
	return nil, errUnopened
}

// refused returns a response that is no stream of events, as the one to the handshake. What is not
// the server's refers to a fallback that is not there, or no longer.
func (c *conn) refused(r *response) (*http.Response, error) {
	switch {
	case r.StatusCode == http.StatusNotImplemented && c.mode == modeStream && isOurs(r.Response):
		r.close()
		return nil, errMute
	case r.StatusCode >= 400 && r.StatusCode < 500 && r.StatusCode != http.StatusTooManyRequests:
		c.t.tryWebSocket()
	}
	r.timer.Stop()
	r.Body = canceling{r.Body, func() { c.cancel(nil) }}
	return r.Response, nil
}

// accept returns the response to a handshake (RFC 6455, section 4.2.2), whose body is the client's
// end of the pipe. start begins to use the other end.
func (c *conn) accept(req *http.Request, protocol string, start func()) *http.Response {
	h := http.Header{}
	h.Set("Connection", "Upgrade")
	h.Set("Upgrade", "websocket")
	h.Set("Sec-WebSocket-Accept", wsframe.AcceptKey(req.Header.Get("Sec-WebSocket-Key")))
	if protocol != "" {
		h.Set("Sec-WebSocket-Protocol", protocol)
	}
	theirs, ours := net.Pipe()
	c.pipe = ours
	context.AfterFunc(c.ctx, func() { _ = ours.Close() })
	start()
	return &http.Response{
		Status: "101 " + http.StatusText(http.StatusSwitchingProtocols), StatusCode: http.StatusSwitchingProtocols,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: h, Body: clientEnd{theirs, c.ctx}, Request: req,
	}
}

// A clientEnd is the client's end of the pipe.
type clientEnd struct {
	net.Conn

	ctx context.Context //nolint:containedctx // of the connection
}

// Read implements io.Reader. Its error says why the connection was lost.
func (e clientEnd) Read(p []byte) (int, error) {
	n, err := e.Conn.Read(p)
	if cause := context.Cause(e.ctx); errors.Is(err, io.EOF) && cause != nil {
		err = cause
	}
	return n, err
}

// refuse closes a connection that the server has refused, on a goroutine that ends when the client
// has closed its end.
func (c *conn) refuse(refusal closing) {
	go func() {
		defer c.cancel(errEnded)
		frame := wsframe.AppendClose(nil, wsframe.Server, refusal.Code, refusal.Reason)
		if _, err := c.pipe.Write(frame); err == nil {
			_, _ = io.Copy(io.Discard, c.pipe)
		}
	}()
}

// ownHeader returns the header of a handshake without what only a handshake has.
func ownHeader(h http.Header) http.Header {
	own := h.Clone()
	for name := range own {
		if name == "Connection" || name == "Upgrade" || strings.HasPrefix(name, "Sec-Websocket-") {
			delete(own, name)
		}
	}
	return own
}
