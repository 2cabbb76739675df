package router

import (
	"context"
	"fmt"
	"iter"

	"github.com/penstock-go/penstock/internal/ask"
	"github.com/penstock-go/penstock/internal/registry"
	"github.com/penstock-go/penstock/internal/wire"
)

// This file makes calls to clients that are connected to any node.

// CallConn is [Call] for the client of the open connection with an ID, which may be connected to
// any node. It returns the errors of Call, and:
//
//   - NOT_FOUND if no node has the connection. A client that has resumed its session has another
//     one.
//   - UNAVAILABLE if the node of the connection leaves, fails, or does not take the call within 5
//     seconds, or if this node does not know all others at the moment, as within two seconds after
//     it has started. The private part of the error names the node.
//   - a [*LimitExceeded] if 64 times Limits.Concurrency calls are in progress on this node or on the other
//     one.
//
// An answer that is lost between nodes ends the call with its timeout, like a client that does not
// answer. Options.Codecs of the nodes must be the same.
func CallConn[Reply Message](ctx context.Context, r *Router, connID string, m Message) (Reply, error) {
	if c := r.Conn(connID); c != nil {
		return Call[Reply](ctx, c, m)
	}
	reply, err := r.callConn(ctx, connID, m, receivedTypeOf[Reply]())
	if err != nil {
		var none Reply
		return none, err
	}
	return *reply.(*Reply), nil
}

// A ClientReply is what a call to one of a user's connections has returned, or the error of a node;
// see [CallUser].
type ClientReply[Reply Message] struct {
	ConnID string // "" if Err is the error of a node: its connections are not known
	NodeID string // as Router.NodeID of the node; "" if it is not known
	Reply  Reply  // if Err is nil
	Err    error  // as CallConn returns it
}

// CallUser calls the clients of all connections of a user, on all nodes, at the same time. It
// iterates over their answers in the order in which these arrive, so that
//
//   - a loop over all of them ends when the last client has answered, at most after Timeouts.Call;
//   - a loop that ends with the first good answer lets the others know ($ws:abort) that theirs is
//     not needed.
//
// The clients are called when the iteration begins, and again by another one. There is one
// ClientReply for each connection, and one for each node that does not say which connections it
// has; there is none if the user has no connections, or is the empty one of anonymous connections.
// If a user has more than 256 connections on a node, none of them is called, and the node's error
// is a [*LimitExceeded]. A connection that moves from one node to another meanwhile may be called
// by both or by none.
func CallUser[Reply Message](ctx context.Context, r *Router, tenantID, userID string, m Message) iter.Seq[ClientReply[Reply]] {
	return func(yield func(ClientReply[Reply]) bool) {
		for d := range r.callUser(ctx, registry.User{TenantID: tenantID, UserID: userID}, m, receivedTypeOf[Reply]()) {
			reply := ClientReply[Reply]{ConnID: d.ConnID, NodeID: d.Node, Err: d.err}
			if d.err == nil {
				reply.Reply = *d.reply.(*Reply)
			}
			if !yield(reply) {
				return
			}
		}
	}
}

// NodeID returns the name of this node, as other nodes know it and as Options.Logger receives it
// when the node leaves. It is different after each start, and "" without a broker.
func (r *Router) NodeID() string { return r.asks.Name() }

// remoteRoute returns a route that decodes replies of a type, like replyRoute.
func (r *Router) remoteRoute(ctx context.Context, m Message, typ receivedType) (*Route, error) {
	if r.hints != nil {
		r.hints.Call(m, typ.Type)
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return replyRoute(r, typ)
}

// callConn calls a client of another node. It returns a pointer to the reply.
func (r *Router) callConn(ctx context.Context, connID string, m Message, typ receivedType) (reply any, err error) {
	call := r.startClientCall(ctx, m)
	ctx = call.ctx
	defer func() {
		call.report(err)
		call.end(err)
	}()
	rt, err := r.remoteRoute(ctx, m, typ)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, r.opts.Timeouts.Call, errNoAnswer)
	defer cancel()
	encoded, err := r.encodeForNodes(ctx, m)
	if err != nil {
		return nil, err
	}
	o := r.asks.CallConn(ctx, connID, encoded)
	return r.decodeOutcome(rt, &o)
}

// A decoded is an outcome whose reply is decoded.
type decoded struct {
	*ask.Outcome

	reply any // a pointer; nil after an error
	err   error
}

// callUser calls the clients of a user.
func (r *Router) callUser(ctx context.Context, user registry.User, m Message, typ receivedType) iter.Seq[decoded] {
	return func(yield func(decoded) bool) {
		if user.UserID == "" {
			return
		}
		call := r.startClientCall(ctx, m)
		ctx := call.ctx
		rt, err := r.remoteRoute(ctx, m, typ)
		defer func() { call.end(err) }()
		if err != nil {
			call.report(err)
			yield(decoded{Outcome: new(ask.Outcome), err: err})
			return
		}
		ctx, cancel := context.WithTimeoutCause(ctx, r.opts.Timeouts.Call, errNoAnswer)
		defer cancel()
		own := askedClients(r.conns.OfUser(user), m)
		for o := range r.asks.CallUser(ctx, user.TenantID, user.UserID, own, func() (*ask.Message, error) { return r.encodeForNodes(ctx, m) }) {
			d := decoded{Outcome: o}
			d.reply, d.err = r.decodeOutcome(rt, o)
			call.report(d.err)
			if err = d.err; !yield(d) {
				return
			}
		}
	}
}

// decodeOutcome decodes the reply of a client, and returns a pointer to it.
func (r *Router) decodeOutcome(rt *Route, o *ask.Outcome) (reply any, err error) {
	defer r.recoverAnswer(&err)
	if o.Err != nil {
		return nil, fromAskError(o.Err)
	}
	f, known := r.formats.BySubprotocol([]byte(o.Subprotocol))
	if !known {
		return nil, invalidAnswer(fmt.Errorf("this node has no codec for its subprotocol %q; all nodes must have the same Options.Codecs", o.Subprotocol))
	}
	parse, codec := wire.Parse, r.formats.Codec(f)
	if codec != nil {
		parse = wire.ParseBinary
	}
	envelope, err := parse(o.Message)
	if err != nil {
		return nil, invalidAnswer(err)
	}
	return r.decodeReply(rt, codec, &envelope, o.ConnID)
}
