package router

import (
	"context"
	"iter"
	"math"
	"net/netip"
	"reflect"
	"time"

	"github.com/penstock-go/penstock/internal/ask"
	"github.com/penstock-go/penstock/internal/calls"
	"github.com/penstock-go/penstock/internal/registry"
	"github.com/penstock-go/penstock/internal/wsconn"
)

// This file makes calls to clients that are connected to any node, by internal/ask.

// Call sends a message to a client as a call, and waits for its answer, which must be a Reply or
// an error. The client must support such calls; see the protocol, section 9. Reply is a message
// type, as for [RPC]; the answer is decoded and validated like any message. An answer passes ingress
// and the size limit, too: the client may repeat one that they refuse.
//
// Call returns the first of these errors that applies:
//
//   - the error with which the client answers: an *errors.Error with the client's code, message,
//     details and delay, and a private part that names the connection. A message is cut after 1,024
//     bytes, and details above 4,096 bytes are left out.
//   - FAILED_PRECONDITION if the answer is invalid or of another type. The message is constant; the
//     private part of the error says what is wrong.
//   - [context.Cause] of ctx if ctx is done first.
//   - DEADLINE_EXCEEDED if Timeouts.Call passes first.
//   - UNAVAILABLE if the connection is closed first.
//   - a [*LimitExceeded] if Limits.Concurrency calls have no answer, or the message is longer than
//     Limits.QueueBytes.
//   - INTERNAL if the message cannot be encoded, or Reply cannot be registered.
//
// Without an answer, the client may have handled the call nevertheless. An error of the client is
// in the client's own words, so only the client that has sent it receives it from a handler that
// returns it: any other one receives FAILED_PRECONDITION instead.
//
// Call may be called concurrently and by handlers. An event's handler delays the later messages of
// its connection meanwhile. Answers overtake these messages, but not while the connection is not
// read because too many of them wait; see Limits.InboundBytes. Options.OnOpen must not wait for a
// Call to its connection, which is not read before OnOpen has returned; a goroutine that OnOpen
// starts may. During Shutdown, answers are received until the connection is closed.
func Call[Reply Message](ctx context.Context, c *Conn, m Message) (reply Reply, err error) {
	decoded, err := c.router.asks.Call(ctx, (*askedConn)(c), m, c.router.expect(m, receivedTypeOf[Reply]()))
	if err != nil {
		return reply, publicLimit(err)
	}
	return *decoded.(*Reply), nil
}

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
	reply, err := r.asks.CallConn(ctx, connID, m, r.expect(m, receivedTypeOf[Reply]()))
	if err != nil {
		var none Reply
		return none, publicLimit(err)
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
		if userID == "" {
			return
		}
		for d := range r.asks.CallUser(ctx, tenantID, userID, m, r.expect(m, receivedTypeOf[Reply]())) {
			reply := ClientReply[Reply]{ConnID: d.ConnID, NodeID: d.Node, Err: publicLimit(d.Err)}
			if d.Err == nil {
				reply.Reply = *d.Reply.(*Reply)
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

// UserConns are the connections of a user on all nodes; see [Router.UserConns].
type UserConns struct {
	Conns []UserConn // at most 1,000, the oldest first
	Total int        // connections on the nodes that have answered: more than len(Conns) if that is not all

	// Silent are the nodes that have not answered within 5 seconds, and those that have left or
	// failed before they answered. How many connections they have is not known.
	Silent []string
}

// A UserConn is an open connection of a user.
type UserConn struct {
	ConnID      string     // as Conn.ID; for CallConn
	NodeID      string     // as Router.NodeID of its node; "" without a broker
	IP          netip.Addr // as Conn.IP
	Subprotocol string     // as Conn.Subprotocol
	OpenedAt    time.Time  // when its node accepted it, according to that node's clock
}

// UserConns returns the open connections of a user on all nodes. Clients that have lost their
// connection, and may resume their session, have none. UserConns returns nothing for the empty
// userID, which anonymous connections have.
//
// If it returns an error, what it returns besides may be incomplete: the code is UNAVAILABLE if
// there are Silent nodes, or if this node does not know all others at the moment, as within two
// seconds after it has started; a [*LimitExceeded] if 64 times Limits.Concurrency are in progress; or the
// error is [context.Cause] of ctx. A connection that moves from one node to another meanwhile may
// be missing, or be listed with its old one.
func (r *Router) UserConns(ctx context.Context, tenantID, userID string) (found UserConns, err error) {
	if userID == "" {
		return found, nil
	}
	if ctx.Err() != nil {
		return found, context.Cause(ctx)
	}
	listing, err := r.asks.ListUser(ctx, tenantID, userID)
	found.Total, found.Silent = listing.Total, listing.Silent
	for _, c := range listing.Conns {
		found.Conns = append(found.Conns, UserConn(c))
	}
	return found, publicLimit(err)
}

// expect returns what package ask needs of the type of the replies to m.
func (r *Router) expect(m Message, typ receivedType) ask.ReplyType {
	if r.hints != nil {
		r.hints.Call(m, typ.Type)
	}
	return ask.ReplyType{Type: typ.Type, Validate: func(reply any) error {
		return validate(reply, typ.value, typ.Kind() == reflect.Pointer, r.opts.Validate)
	}}
}

// publicLimit returns the LimitExceeded for a limit of package ask, and any other error as it is.
func publicLimit(err error) error {
	if l, ok := err.(*ask.Limit); ok { //nolint:errorlint // never wrapped
		return &LimitExceeded{Kind: LimitKind(l.Kind), Option: l.Option(), Observed: l.Observed, Limit: l.Limit, RetryAfter: l.RetryAfter}
	}
	return err
}

// initAsks must be called when the session is known, and before it subscribes to topics.
func (r *Router) initAsks() {
	limits := &r.opts.Limits
	r.asks.Init(ask.Config{
		Node: r.node, UsersTopic: usersTopic, MaxOpen: 64 * min(limits.Concurrency, math.MaxInt/64),
		Timeout: r.opts.Timeouts.Call, Concurrency: limits.Concurrency, QueueBytes: limits.QueueBytes,
		Formats: &r.formats, Elements: limits.Elements, RejectUnknown: r.opts.RejectUnknownFields,
		Spans: &r.spans, Observe: r.hooks.Observe,
		ByID: func(connID string) ask.Clients {
			if c := r.conns.ByID(connID); c != nil {
				return askedClients([]*Conn{c})
			}
			return ask.Clients{}
		},
		ByUser: func(tenantID, userID string) ask.Clients {
			return askedClients(r.conns.OfUser(registry.User{TenantID: tenantID, UserID: userID}))
		},
	})
	r.nodeTopic = r.asks.Topic()
}

// An askedConn is a connection whose client is called, or listed.
type askedConn Conn

func askedClients(conns []*Conn) ask.Clients {
	clients := make([]ask.Client, min(len(conns), ask.MaxListed))
	for i := range clients {
		clients[i] = (*askedConn)(conns[i])
	}
	return ask.Clients{First: clients, Total: len(conns)}
}

// Describe returns what UserConns returns.
func (c *askedConn) Describe() ask.Conn {
	conn := (*Conn)(c)
	return ask.Conn{ConnID: c.member.ID, NodeID: c.router.NodeID(), IP: c.ip, Subprotocol: conn.Subprotocol(), OpenedAt: conn.OpenedAt()}
}

// Called returns what a call needs.
func (c *askedConn) Called() ask.Called {
	extra := (*Conn)(c).ownExtra()
	if extra.clientCalls.Load() == nil {
		extra.clientCalls.CompareAndSwap(nil, new(calls.Outgoing[wsconn.Message]))
	}
	return ask.Called{
		ConnID: c.member.ID, WS: c.member.WS, Format: c.member.Format, Calls: extra.clientCalls.Load(), Closed: c.ctx.Done(),
		Greeted: c.member.HasGreeted(), Traced: extra.traced.Load(),
	}
}

// OpenedAt returns when the router accepted the connection.
func (c *Conn) OpenedAt() time.Time {
	return c.router.created.Add(time.Duration(c.member.Number)).Round(0)
}
