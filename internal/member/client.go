package member

import (
	"context"
	"math"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/protocol"
	"github.com/penstock-go/penstock/internal/session"
	"github.com/penstock-go/penstock/internal/topic"
	"github.com/penstock-go/penstock/internal/topicname"
)

// This file subscribes connections for handlers, and for clients that may subscribe, and waits for the store.

// A Request is that of a handler which subscribes a connection.
type Request struct {
	Present bool // the connection becomes present
	Info    string
	Hidden  bool // it is not present, even if all subscribers are

	// Join is (*Node).JoinHistory if the subscription begins at a position, or nil. It is a value, so that only the
	// options that need histories link them.
	Join  func(n *Node, ctx context.Context, c Conn, name string, req Request) (topic.JoinResult, error)
	State bool // with the state
	Since broker.Position
	Last  int
}

// Add adds what another request asks for.
func (r *Request) Add(other *Request) {
	r.State = r.State || other.State
	if other.Join != nil {
		r.Join = other.Join
	}
	if other.Present || other.Hidden {
		r.Present, r.Info, r.Hidden = other.Present, other.Info, other.Hidden
	}
	if other.Since != (broker.Position{}) {
		r.Since = other.Since
	}
	if other.Last != 0 {
		r.Last = other.Last
	}
}

// maxInfoBytes bounds the info of a member.
const maxInfoBytes = 1024

// Subscribe subscribes a connection for a handler. The result is zero without Request.Join.
func (n *Node) Subscribe(ctx context.Context, c Conn, name string, req *Request) (result topic.JoinResult, err error) {
	if len(req.Info) > maxInfoBytes {
		return result, errors.Errorf(errors.InvalidArgument, "the info for topic %q has %d bytes; it must have at most %d", name, len(req.Info), maxInfoBytes)
	}
	m := c.Member()
	if req.Join != nil {
		if result, err = req.Join(n, ctx, c, name, *req); err != nil {
			return result, err
		}
	}
	t, added, err := n.grant(c, m, name, session.Grant{Joined: req.Present, Info: req.Info, Hidden: req.Hidden})
	if err != nil {
		return result, err
	}
	if err = n.awaitStart(ctx, t); err != nil {
		if added {
			n.Unsubscribe(m, name)
		}
		return result, err
	}
	if s := m.Session(); s != nil && !s.AwaitSave(ctx) {
		return result, ErrSuperseded
	}
	return result, nil
}

// awaitStart waits until a connection receives everything that is published to a topic from then on.
func (n *Node) awaitStart(ctx context.Context, t *topic.Topic) error {
	if t.HasStarted() {
		return nil
	}
	ctx, cancel := n.withDeadline(ctx)
	defer cancel()
	return t.AwaitStart(ctx)
}

// withDeadline returns ctx with a deadline: its own, or after Timeout.
func (n *Node) withDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, n.Timeout)
}

// errNegativeLast refuses a subscription that asks for less than no publications.
var errNegativeLast = &errors.Error{Code: errors.InvalidArgument, Message: "the number of latest messages is negative; it must be at least 0"}

// JoinHistory subscribes a connection from a position on.
func (n *Node) JoinHistory(ctx context.Context, c Conn, name string, req Request) (result topic.JoinResult, err error) {
	m := c.Member()
	if err := topicname.Check(name); err != nil {
		return result, err
	}
	if err := n.Topics.CheckHistory(name); err != nil {
		return result, err
	}
	if req.Last < 0 {
		return result, errNegativeLast
	}
	if err := n.admits(m.Session(), name, session.Grant{}); err != nil {
		return result, err
	}
	ctx, cancel := n.withDeadline(ctx)
	defer cancel()
	result, err = n.subscribeSince(ctx, m, name, topic.JoinRequest{Since: req.Since, State: req.State, Last: req.Last})
	if err == nil {
		subscribed := protocol.Subscribed{Topic: name}
		addRecovery(&subscribed, result)
		n.grantSince(m, session.Grant{Epoch: result.Position.Epoch, Offset: result.Position.Offset, State: req.State}, subscribed)
		err = n.admits(m.Session(), name, session.Grant{}) // another connection may have got it meanwhile
	}
	n.sendHeld(c, m, name)
	return result, err
}

// SubscribeClient subscribes a client, which may, to a topic of pattern p. It waits for the store if the
// client asks for positions, with the grant of req and what reads its missed publications. Nothing about
// the topic is sent before StartTopic is called.
func (n *Node) SubscribeClient(ctx context.Context, c Conn, p *topic.Pattern, request protocol.Subscribe, req topic.JoinRequest) (protocol.Subscribed, error) {
	m, name, reply := c.Member(), request.Topic, protocol.Subscribed{Topic: request.Topic}
	subscribed := m.Subscribed(name)
	if request.Last < 0 {
		return protocol.Subscribed{}, errNegativeLast
	}
	if p.HasHistory() && (request.Positions || request.State || request.Last > 0 || request.Epoch != "") {
		m.ExpectPositions()
		req.Since, req.State = broker.Position{Epoch: request.Epoch, Offset: request.Offset}, request.State
		req.Last = int(min(request.Last, math.MaxInt32))
		result, err := n.subscribeSince(ctx, m, name, req)
		if err != nil {
			return protocol.Subscribed{}, err
		}
		addRecovery(&reply, result)
		c.Charge(result.Read + result.State)
	}
	t, members, err := n.subscribeForClient(c, m, &request, reply.Recovery != nil)
	if err != nil {
		return reply, err
	}
	reply.Members = members
	if len(members) > 0 {
		c.Charge(len(members))
	}
	err = n.awaitStart(ctx, t)
	switch {
	case subscribed:
	case err == nil && n.Within > 0:
		m.markOwn(name)
	case err != nil && reply.Recovery == nil:
		n.Leave(m, name, false)
	}
	return reply, err
}

// addRecovery adds the result to the answer to a client.
func addRecovery(reply *protocol.Subscribed, r topic.JoinResult) {
	reply.Position = &protocol.Position{Epoch: r.Position.Epoch, Offset: r.Position.Offset}
	reply.Recovery = &protocol.Recovery{Recovered: r.Recovered, More: r.More}
	if r.HasState {
		reply.State = &r.State
	}
	if r.Ended != nil {
		reply.Ended = &protocol.Position{Epoch: r.Ended.Epoch, Offset: r.Ended.Offset}
	}
}

// StartTopic sends what is held until the client has the answer to its request for a topic.
func (n *Node) StartTopic(c Conn, name string) {
	m := c.Member()
	n.Topics.StartFeed(name, &m.Subscriber)
	n.sendHeld(c, m, name)
}

// sendHeld sends what has been held for a connection in a topic, when the answer has been queued.
func (n *Node) sendHeld(c Conn, m *Member, name string) {
	if s := n.Topics.SendHeld(name, &m.Subscriber); s != nil {
		go n.sendState(c, s)
	}
}

// sendState sends what is left of a state, on a goroutine of its own. It ends the subscription if that fails.
func (n *Node) sendState(c Conn, s *topic.StateSender) {
	err := s.Run(c.Context())
	if err == nil {
		return
	}
	if failed := n.Inspect(err, "state"); n.endState(c.Member(), s, failed.Payload) {
		c.ReportState(failed)
	}
}
