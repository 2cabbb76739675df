package router

import (
	"time"

	"github.com/penstock-go/penstock/internal/access"
	"github.com/penstock-go/penstock/internal/failure"
	"github.com/penstock-go/penstock/internal/registry"
	"github.com/penstock-go/penstock/internal/session"
	"github.com/penstock-go/penstock/router/observe"
	"github.com/penstock-go/penstock/tracing"
)

// usersTopic carries packets about the connections of users, and every node subscribes to it. It
// is the name of no application's topic, because it contains a control character.
const usersTopic = "\x00users"

// SendToUser sends a message to all connections of a user, on all nodes, and returns the number of
// those on this node. As with Publish, connections on other nodes receive it at most once; a loss
// is reported to Options.OnMessagesLost of their nodes with the topic "". SendToUser does nothing
// for the empty userID, which anonymous connections have. It returns an error if the message
// cannot be encoded, or the error of Options.Broker.
//
// With Options.UserHistory, SendToUser waits until the message is stored, for at most
// Timeouts.Call, and connections receive the messages of their user once and in one order, on all
// nodes. Sessions of the user whose clients are away receive them when they are resumed. After an
// error, no client receives the message, unless the code is errors.OutcomeUnknown.
func (r *Router) SendToUser(tenantID, userID string, m Message) (connsOnThisNode int, err error) {
	user := registry.User{TenantID: tenantID, UserID: userID}
	if r.members.UserLogs && userID != "" {
		return r.storeForUser(user, m)
	}
	var conns []*Conn
	if userID != "" {
		conns = r.conns.OfUser(user)
	}
	p, err := r.encodeAll(m, r.formats.ToPublish(r.formatsOf(conns), userID != "" && r.opts.Broker != nil))
	defer p.Free()
	if p.IsEmpty() || userID == "" {
		return 0, err
	}
	sendAll(&p, conns)
	if r.opts.Broker == nil {
		return len(conns), err
	}
	return len(conns), failure.Join(err, r.publishToNodes(access.NewMessage(session.User(user), r.formats.Packet(&p, tracing.TraceContext{}))))
}

// publishToNodes publishes a packet about users to other nodes, which may miss it.
func (r *Router) publishToNodes(packet []byte) error {
	if r.opts.Broker == nil {
		return nil
	}
	return r.node.Publish(usersTopic, packet)
}

// receiveUserPacket handles a packet that another node has published on usersTopic.
func (r *Router) receiveUserPacket(packet []byte) {
	switch packet[0] {
	case access.PacketSessionClaimed:
		r.sessions.Receive(session.PacketClaimed, packet[1:])
	case access.PacketSessionMoved:
		r.sessions.Receive(session.PacketMoved, packet[1:])
	case access.PacketMessage:
		if p, ok := access.ParsePacket(packet); ok {
			r.receiveUserMessage(registry.User(p.User), p.Message)
		}
	default:
		r.access.Receive(packet)
	}
}

func (r *Router) receiveUserMessage(user registry.User, packet []byte) {
	conns := r.conns.OfUser(user)
	used := r.formatsOf(conns)
	now := time.Now()
	p, published, ok := r.formats.ParsePacket(packet, used, now)
	if !ok {
		return
	}
	defer p.Free()
	r.hooks.Observe(observe.Event{Kind: observe.Delivered, Count: len(conns), Duration: max(now.Sub(published), 0)})
	sendAll(&p, conns)
	if p.Lacks(used) {
		r.messagesLost(usersTopic, 1)
	}
}
