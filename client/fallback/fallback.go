//go:build !js

package fallback

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

// A Transport is how a client is connected, or is not.
type Transport string

// The transports. The first three have the names that the server's metrics use.
const (
	WebSocket  Transport = "websocket"
	HTTPStream Transport = "http-stream" // a response that goes on carries messages to the client
	HTTPPoll   Transport = "http-poll"   // a response for each batch of messages to the client
	Blocked    Transport = "blocked"     // WebSocket is blocked, and HTTP is not used
)

// Options configure [New]. The zero value is a working configuration.
type Options struct {
	// Base sends the requests. The default is http.DefaultTransport.
	Base http.RoundTripper

	// Measure keeps to WebSocket, and reports Blocked where the client would fall back. The server
	// needs no HTTPFallback: any URL of it will do that is answered with a status below 500 and
	// other than 429.
	Measure bool

	// OnTransport is called when the transport is known, and when it changes. cause is the failure
	// of the last attempt by WebSocket, or nil if it works. Calls may be concurrent, and must not
	// block.
	OnTransport func(t Transport, cause error)
}

// A roundTripper is what New returns.
type roundTripper struct {
	url  *url.URL // where the fallback is mounted
	base http.RoundTripper
	opts Options

	// mu guards everything below. It is not held during a request.
	mu        sync.Mutex
	worked    bool          // a message has arrived by WebSocket
	failures  int           // in a row since a connection has lasted, while plain HTTP worked
	permitted bool          // HTTP may be used
	until     time.Time     // HTTP is used until then
	cause     error         // of the last failure
	poll      bool          // a stream was mute
	checking  chan struct{} // closed when the check in progress has ended; nil if there is none
	probeWait time.Duration
	reported  Transport
}

// New returns an http.RoundTripper that opens WebSocket connections, or connections over HTTP if
// WebSocket is blocked. address is the absolute URL where the server has mounted HTTPFallback; its
// scheme is http or https. If opts is nil, the zero Options apply. New panics if address is not
// such a URL.
func New(address string, opts *Options) http.RoundTripper {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		panic(fmt.Sprintf("fallback: the URL is %q; it must have the scheme http or https, a host, and no query", address))
	}
	t := &roundTripper{url: u, base: http.DefaultTransport, probeWait: minProbeWait}
	if opts != nil {
		t.opts = *opts
	}
	if t.opts.Base != nil {
		t.base = t.opts.Base
	}
	return t
}

// RoundTrip implements [http.RoundTripper].
func (t *roundTripper) RoundTrip(req *http.Request) (*http.Response, error) {
	if !strings.EqualFold(req.Header.Get("Upgrade"), "websocket") {
		return t.base.RoundTrip(req)
	}
	t.awaitCheck(req.Context())
	format := binaryFormat(req)
	if t.usesHTTP() && format == "" {
		return t.open(req)
	}
	resp, err := t.dial(req, format)
	switch {
	case err == nil || req.Context().Err() != nil:
		return resp, err
	case format != "" && t.suspects():
		return nil, fmt.Errorf("fallback: %w; plain HTTP works, but cannot carry messages in the format %s", err, format)
	case format != "" || !t.usesHTTP():
		return nil, err
	}
	return t.open(req)
}

// binaryFormat returns the subprotocol of a format other than JSON that a handshake offers, or "".
// They have names of the protocol, section 11.
func binaryFormat(req *http.Request) string {
	for _, name := range protocols(req) {
		if strings.HasPrefix(name, "penstock.v1.") {
			return name
		}
	}
	return ""
}

// protocols returns the subprotocols that a handshake offers.
func protocols(req *http.Request) []string {
	names := []string{}
	for name := range strings.SplitSeq(strings.Join(req.Header.Values("Sec-WebSocket-Protocol"), ","), ",") {
		if name = strings.TrimSpace(name); name != "" {
			names = append(names, name)
		}
	}
	return names
}

// report calls OnTransport if the transport has changed.
func (t *roundTripper) report(transport Transport, cause error) {
	t.mu.Lock()
	changed := t.reported != transport
	t.reported = transport
	t.mu.Unlock()
	if changed && t.opts.OnTransport != nil {
		t.opts.OnTransport(transport, cause)
	}
}
