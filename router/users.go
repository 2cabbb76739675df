package router

import (
	"context"
	"time"

	"github.com/penstock-go/penstock/internal/failure"
	"github.com/penstock-go/penstock/internal/registry"
	"github.com/penstock-go/penstock/internal/session"
	"github.com/penstock-go/penstock/internal/userpacket"
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
	if r.access != nil && userID != "" {
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
	return len(conns), failure.Join(err, r.publishToNodes(func() []byte {
		return userpacket.NewMessage(session.User(user), r.formats.Packet(&p, tracing.TraceContext{}))
	}))
}

// DisconnectUser closes all connections of a user, on all nodes, as [Conn.Close] does, ends their
// sessions, including those of clients that are away, and returns the number of connections on this
// node. Clients may connect again; to prevent that, make Options.Authenticate refuse them first.
// DisconnectUser does nothing for the empty userID.
//
// It returns the error of Options.Broker: sessions may then have remained, or connections on other
// nodes, so call it again. Other nodes are notified at most once. If one misses that, which
// Options.OnMessagesLost reports with the topic "", connections with a session are closed within a
// third of Resume.Within, and others remain.
//
// With Options.UserHistory, a node that was cut off closes these connections when it returns, after
// the messages that were sent to the user before: those that were authenticated before this call,
// or while the node was cut off. If it was cut off for longer than a day, or missed more than
// 10,000 calls of DisconnectUser and Revoke, or the store has lost its data, the node does not know
// which: it closes all connections that have a user with 1013, so that their clients connect again.
func (r *Router) DisconnectUser(tenantID, userID string, code StatusCode, reason string) (connsOnThisNode int, err error) {
	if userID == "" {
		return 0, nil
	}
	user := registry.User{TenantID: tenantID, UserID: userID}
	if r.access != nil {
		return r.access.storeDisconnect(user, code, reason)
	}
	connsOnThisNode = r.disconnect(user, code, reason) // even if the store does not answer
	ctx, cancel := context.WithTimeout(context.Background(), revocationTimeout)
	defer cancel()
	err = r.sessions.EndSessions(ctx, session.User(user), session.End{Code: validCode(code), Reason: reason})
	if r.resumes() {
		r.disconnect(user, code, reason) // those that have resumed meanwhile
	}
	return connsOnThisNode, failure.Join(err, r.publishToNodes(func() []byte {
		return userpacket.NewDisconnect(session.User(user), int(code), reason)
	}))
}

// disconnect closes the connections of a user on this node.
func (r *Router) disconnect(user registry.User, code StatusCode, reason string) int {
	if r.access == nil {
		r.disconnects.AddNext(user, CloseError{code, reason}) // before the connections that are registered are looked up
	}
	conns := r.conns.OfUser(user)
	for _, c := range conns {
		c.discardSession()
		c.leaveForGood()
		c.Close(code, reason)
	}
	r.sessions.EndWaiting(session.User(user), func(uint32) bool { return true })
	r.endAbsence(user, func(string) bool { return true })
	r.disconnectElsewhere(user, nil, CloseError{code, reason})
	return len(conns)
}

func (r *Router) publishToNodes(packet func() []byte) error {
	if r.opts.Broker == nil {
		return nil
	}
	return r.node.Publish(usersTopic, packet())
}

// receiveUserPacket handles a packet that another node has published on usersTopic.
func (r *Router) receiveUserPacket(packet []byte) {
	switch stored := packet[0] == userpacket.Stored; {
	case packet[0] == userpacket.SessionClaimed:
		r.sessions.Receive(session.PacketClaimed, packet[1:])
		return
	case packet[0] == userpacket.SessionMoved:
		r.sessions.Receive(session.PacketMoved, packet[1:])
		return
	case stored && r.access == nil && len(packet) > 1:
		packet = packet[1:]
	case stored:
		return // this node follows the log
	}
	p, ok := userpacket.Parse(packet)
	if !ok {
		return
	}
	user := registry.User(p.User)
	switch p.Kind {
	case userpacket.Message:
		r.receiveUserMessage(user, p.Message)
	case userpacket.Revocation:
		r.revokeLocal(user, p.Change, p.Topics)
	case userpacket.Disconnect:
		r.disconnect(user, StatusCode(p.Code), p.Reason)
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
	r.observe(observe.Event{Kind: observe.Delivered, Count: len(conns), Duration: max(now.Sub(published), 0)})
	sendAll(&p, conns)
	if p.Lacks(used) {
		r.messagesLost(usersTopic, 1)
	}
}
