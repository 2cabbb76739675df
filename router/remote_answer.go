package router

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"math"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/ask"
	"github.com/penstock-go/penstock/internal/envelope"
	"github.com/penstock-go/penstock/internal/failure"
	"github.com/penstock-go/penstock/internal/registry"
	"github.com/penstock-go/penstock/internal/wire"
	"github.com/penstock-go/penstock/internal/wsconn"
)

// This file connects package ask, which asks other nodes and answers them, with the connections of
// this node.

// initAsks must be called when the session is known, and before it subscribes to topics.
func (r *Router) initAsks() {
	r.asks.Init(ask.Config{
		Node: r.node, UsersTopic: usersTopic, MaxOpen: remoteCalls(r.opts.Limits.Concurrency),
		ByID: func(connID string) ask.Clients {
			if c := r.conns.ByID(connID); c != nil {
				return askedClients([]*Conn{c}, nil)
			}
			return ask.Clients{}
		},
		ByUser: func(tenantID, userID string) ask.Clients {
			return askedClients(r.conns.OfUser(registry.User{TenantID: tenantID, UserID: userID}), nil)
		},
	})
	r.nodeTopic = r.asks.Topic()
}

// remoteCalls returns how many calls to and from other nodes may be in progress.
func remoteCalls(concurrency int) int {
	const perCall = 64
	if concurrency > math.MaxInt/perCall {
		return Unlimited
	}
	return perCall * concurrency
}

// newConnID returns the ID of a new connection.
func (r *Router) newConnID() string {
	if r.opts.Broker == nil {
		return rand.Text()
	}
	return r.asks.NewConnID()
}

// askedClients returns connections for package ask. They are called with m, or with what another
// node has encoded if m is nil.
func askedClients(conns []*Conn, m Message) ask.Clients {
	clients := make([]ask.Client, min(len(conns), ask.MaxListed))
	for i, c := range conns[:len(clients)] {
		clients[i].Conn = ask.Conn{ConnID: c.id, NodeID: c.router.NodeID(), IP: c.ip, Subprotocol: c.Subprotocol(), OpenedAt: c.OpenedAt()}
		clients[i].Call = func(ctx context.Context, encoded *ask.Message) ask.Outcome {
			if encoded != nil {
				return c.callAsked(ctx, encodedMessage{encoded})
			}
			return c.callAsked(ctx, m)
		}
	}
	return ask.Clients{First: clients, Total: len(conns)}
}

// OpenedAt returns when the router accepted the connection.
func (c *Conn) OpenedAt() time.Time {
	return c.router.created.Add(time.Duration(c.sub.Number)).Round(0)
}

// callAsked calls the client.
func (c *Conn) callAsked(ctx context.Context, m Message) (o ask.Outcome) {
	in, err := c.call(ctx, m, time.Now())
	if err != nil {
		return ask.Outcome{Err: toAskError(err)}
	}
	defer in.release()
	if in.codec != nil {
		o.Subprotocol = in.codec.Subprotocol()
	}
	o.Message = bytes.Clone(in.Bytes)
	return o
}

// toAskError replaces the LimitExceeded that ends a call.
func toAskError(err error) error {
	if l, ok := failure.AsType[*LimitExceeded](err); ok {
		return &ask.Limit{Kind: string(l.Kind), Observed: l.Observed, Limit: l.Limit, RetryAfter: l.RetryAfter}
	}
	return err
}

// fromAskError undoes toAskError.
func fromAskError(err error) error {
	if l, ok := failure.AsType[*ask.Limit](err); ok {
		return &LimitExceeded{Kind: LimitKind(l.Kind), Observed: l.Observed, Limit: l.Limit, RetryAfter: l.RetryAfter}
	}
	return err
}

// encodeForNodes encodes a message in all formats in which that is possible, or returns the error.
// The message must be shorter than Limits.QueueBytes, which are assumed to be those of other nodes,
// too.
func (r *Router) encodeForNodes(ctx context.Context, m Message) (*ask.Message, error) {
	encoded := &ask.Message{Trace: r.spans.Inject(ctx)}
	var failed error
	for f := range r.formats.End() {
		head := wire.OutgoingHead{At: r.created}
		frame, err := envelope.Encode(r.formats.Codec(f), m, head)
		if err != nil {
			failed = failure.Join(failed, err)
			continue
		}
		size, limit := len(frame.Text()), r.opts.Limits.QueueBytes
		if size > limit {
			frame.Release()
			return nil, &LimitExceeded{Kind: LimitQueue, Observed: int64(size), Limit: int64(limit), RetryAfter: errors.Never}
		}
		head.Type, _ = envelope.MessageType(m) // Encode has called it
		encoded.Type = head.Type
		encoded.Payloads = append(encoded.Payloads, ask.Payload{Subprotocol: r.formats.Subprotocol(f), Bytes: bytes.Clone(envelope.Payload(frame, f, head))})
		frame.Release()
	}
	if encoded.Type == "" {
		return nil, failed
	}
	return encoded, nil
}

// An encodedMessage is a call that another node has encoded, except for the head.
type encodedMessage struct{ *ask.Message }

// MessageType returns the type of the message.
func (m encodedMessage) MessageType() string { return m.Type }

// frame returns the message as a call to a connection.
func (m encodedMessage) frame(c *Conn, head wire.OutgoingHead) (*wsconn.Frame, error) {
	head.Type = m.Type
	subprotocol := c.router.formats.Subprotocol(c.sub.Format)
	for _, p := range m.Payloads {
		if p.Subprotocol != subprotocol {
			continue
		}
		return envelope.EncodePayload(c.binary(), p.Bytes, head), nil
	}
	err := fmt.Errorf("router: call %s: the calling node has not encoded it for the subprotocol %q; all nodes must have the same Options.Codecs", m.Type, subprotocol)
	return nil, &errors.Error{Code: errors.Internal, Err: err}
}
