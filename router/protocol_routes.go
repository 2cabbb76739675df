package router

import (
	"time"

	"github.com/penstock-go/penstock/internal/envelope"
	"github.com/penstock-go/penstock/internal/protocol"
	"github.com/penstock-go/penstock/internal/wire"
	"github.com/penstock-go/penstock/internal/wsconn"
)

// This file registers the calls that the protocol itself defines. They pass the pipeline like
// any other message, so limits apply to them.

// protocolCall registers a call of the protocol with the ingress functions and the middleware of
// the router. Its effects are visible to later messages of the connection.
func protocolCall[M, Reply protocol.Message](r *Router, handle func(*Context, M) (Reply, error)) *Route {
	var zero M
	message := receivedTypeOf[M]()
	return addRoute(r, message, withReply(&Route{
		name: zero.MessageType(), parent: &r.root, rpc: true, protocol: true, run: callHandler(handle),
	}, message, replyTypeOf[M, Reply]()))
}

// registerProtocolRoutes registers the calls that every router serves. The greeting and the refresh
// skip the application's middleware, which may refuse clients that are not authenticated yet.
func (r *Router) registerProtocolRoutes() {
	protocolCall(r, r.refreshIdentity).skipsMiddleware = true
	greeting := protocolCall(r, greet)
	greeting.skipsMiddleware, greeting.decoding.MayBeAbsent = true, true
	r.registerTopicRoutes()
	if r.resumes() {
		greeting.afterAnswer = func(ctx *Context) { ctx.conn.announceTopics(nil) }
		protocolCall(r, r.handleResume).afterAnswer = (*Context).releaseResumed
	}
}

// encodeProtocol encodes a message of the protocol, which cannot fail: it contains only strings and
// numbers, and is JSON in every format.
func encodeProtocol(codec Codec, m protocol.Message) *wsconn.Frame {
	frame, _ := envelope.Encode(codec, m, wire.OutgoingHead{At: time.Now()})
	return frame
}
