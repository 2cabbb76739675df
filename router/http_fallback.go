package router

import (
	"fmt"
	"net/http"
	"net/netip"

	"github.com/penstock-go/penstock/internal/ask"
	"github.com/penstock-go/penstock/internal/fallback"
	"github.com/penstock-go/penstock/internal/host"
	"github.com/penstock-go/penstock/internal/rules"
)

// A Transport is how a client is connected.
type Transport string

// The transports.
const (
	TransportWebSocket  Transport = "websocket"
	TransportHTTPStream Transport = "http-stream" // a response that goes on carries messages to the client
	TransportHTTPPoll   Transport = "http-poll"   // a response for each batch of messages to the client
)

// Transport returns how the client is connected.
func (c *Conn) Transport() Transport {
	if t := c.extra().transport; t != "" {
		return t
	}
	return TransportWebSocket
}

// FallbackOptions configure [Router.HTTPFallback]. The zero value is a working configuration.
type FallbackOptions struct {
	// MaxConns bounds the connections of this node over HTTP, with those that ended less than ten seconds ago;
	// further clients receive the status 503. They also count in Limits.Conns. One address, as Limits.ConnsPerIP
	// counts them, may have half of MaxConns, and at most twice Limits.ConnsPerIP. If 0, MaxConns is 1000.
	MaxConns int

	// MeasureOnly lets clients find out that they could connect over HTTP, and refuses to: they report that
	// WebSocket is blocked for them, and keep trying it.
	MeasureOnly bool
}

// HTTPFallback returns a handler for clients whose network blocks WebSocket: it serves the same connections over
// plain HTTP, as the protocol, section 15, defines. A connection is a [Conn] like any other, with the same
// Options, and its [Conn.Transport] says how the client is connected. Requests of a client may reach any node of
// Options.Broker; there is no need for sticky sessions. Messages are JSON, whatever Options.Codecs has.
//
// The handler may be mounted at any path, which clients are configured with. Options.Authenticate receives the
// request of the client with this path, with the method GET and the query that the client would use for a
// WebSocket. Instead of Timeouts.Pong, a client has ten seconds to answer. What has arrived of the bodies of requests
// counts in a second Limits.InboundBytes, of which one address may have half. Middlewares must leave the ResponseWriter
// able to flush; otherwise clients poll. The http.Server must not be shut down before [Router.Shutdown] has returned.
//
// HTTPFallback panics if an option is invalid, if it is called twice, or if the router has begun to serve.
func (r *Router) HTTPFallback(opts *FallbackOptions) http.Handler {
	r.mustNotBeServing("HTTPFallback")
	if r.fallback {
		panic("router: HTTPFallback is called twice; mount its handler at several paths instead")
	}
	r.fallback = true
	var o FallbackOptions
	if opts != nil {
		o = *opts
	}
	if o.MaxConns < 0 {
		panic(fmt.Sprintf("router: FallbackOptions.MaxConns is %d; it must not be negative", o.MaxConns))
	}
	if o.MaxConns == 0 {
		o.MaxConns = 1000
	}
	s := fallback.New(fallback.Config{
		MaxConns: o.MaxConns, MaxPerClient: 2 * min(r.opts.Limits.ConnsPerIP, o.MaxConns),
		MaxMessageBytes: r.maxReadBytes, MaxBodyBytes: r.opts.Limits.InboundBytes,
		WriteTimeout: r.opts.Timeouts.Message, MeasureOnly: o.MeasureOnly,
		Serve:   r.serveFallback,
		Refuses: r.refusesHandshakes,
		Full: func(req *http.Request) {
			limit := LimitExceeded{Kind: LimitConnections, Option: "router.FallbackOptions.MaxConns", Observed: int64(o.MaxConns) + 1, Limit: int64(o.MaxConns)}
			(&Conn{router: r, ip: r.opts.TrustedProxies.ClientIP(req)}).reportRefusedRequest(req, refusedByLimit(&limit))
		},
		Allow:  func(req *http.Request) bool { return r.origins.Allow(req, r.opts.TrustedProxies) },
		Client: func(req *http.Request) netip.Prefix { return rules.PrefixOf(r.opts.TrustedProxies.ClientIP(req)) },
		Unflushable: func(req *http.Request, w http.ResponseWriter) {
			r.log.Unflushable(req.Context(), fmt.Sprintf("%T", w))
		},
		Peers: fallback.Peers{Name: r.NodeID(), Nodes: r.node.Nodes, Ask: r.asks.AskOwner},
	})
	const perConn = 2 // a down and an up
	answerBytes := fallback.MaxAnswerBytes(r.opts.Limits.QueueBytes)
	r.asks.AnswerOwned(s.Answer, ask.QuestionBounds{Open: perConn * o.MaxConns, AnswerBytes: answerBytes, TotalBytes: answerBytes})
	r.shutdowns = append(r.shutdowns, host.Shutdown{Begin: s.Shutdown, End: s.Drain})
	return s
}

// refusesHandshakes reports whether a handshake of a client would be refused now, with any credentials. It counts as
// one.
func (r *Router) refusesHandshakes(req *http.Request) bool {
	c := &Conn{router: r, ip: r.opts.TrustedProxies.ClientIP(req)}
	if r.chargeHandshake(c) != nil || r.acquireSlot(c) != nil {
		return true
	}
	r.conns.Release(c.address)
	return false
}

// serveFallback handles the handshake of a connection over HTTP.
func (r *Router) serveFallback(w http.ResponseWriter, req *http.Request, mode fallback.Mode) {
	c := &Conn{router: r}
	c.ownExtra().transport = TransportHTTPStream
	if mode == fallback.Poll {
		c.ownExtra().transport = TransportHTTPPoll
	}
	r.serve(w, req, c)
}
