package router

import "github.com/penstock-go/penstock/internal/protocol"

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
}
