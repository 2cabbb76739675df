package router

import (
	"context"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/access"
	"github.com/penstock-go/penstock/internal/calls"
	"github.com/penstock-go/penstock/internal/host"
	"github.com/penstock-go/penstock/internal/registry"
	"github.com/penstock-go/penstock/internal/session"
	"github.com/penstock-go/penstock/internal/topic"
	"github.com/penstock-go/penstock/internal/topicname"
	"github.com/penstock-go/penstock/internal/wsconn"
)

// This file ends the access of users to topics, and closes connections. internal/access notifies the other nodes.

// initAccess sets Router.access, whose log enableUserLogs follows.
func (r *Router) initAccess() {
	r.access.Host = access.Host{
		Topics: &r.topics, Sessions: r.sessions, Away: r.away, Resumes: r.resumes(),
		OfUser: func(user session.User) []access.Conn { return accessConns(r.conns.OfUser(registry.User(user))) },
		All:    func() []access.Conn { return accessConns(r.conns.List()) },
		EndPresence: func(user session.User, matches func(string) bool) {
			for _, c := range r.conns.Leaving(registry.User(user)) {
				r.members.EndPresence(&c.member, func(t *topic.Topic) bool { return matches(t.Name) })
			}
		},
		Ended:   r.accessEnds.Call,
		Publish: r.publishToNodes,
		Lost:    func(messages int) { r.messagesLost("", messages) },
	}
}

// An accessConn is a connection as the ends of access concern it.
type accessConn Conn

func accessConns(conns []*Conn) []access.Conn {
	all := make([]access.Conn, len(conns))
	for i, c := range conns {
		all[i] = (*accessConn)(c)
	}
	return all
}

// Since returns the access.Node.Now before the user was authenticated.
func (c *accessConn) Since() (number uint32, ok bool) {
	id := c.identity.Load()
	if id == nil || id.UserID == "" {
		return 0, false
	}
	return id.since, true
}

// Revoke ends the subscriptions to topics.
func (c *accessConn) Revoke(topics topicname.Matcher, change session.Change) {
	c.router.members.Revoke(&c.member, topics, change)
}

// Disconnect ends the session and the presence of the client, and closes the connection.
func (c *accessConn) Disconnect(end session.End) {
	c.member.DiscardSession()
	(*Conn)(c).leaveForGood()
	c.Close(end)
}

// Close closes the connection.
func (c *accessConn) Close(end session.End) { (*Conn)(c).Close(StatusCode(end.Code), end.Reason) }

// Revoke ends the access of a user to a topic, or to all topics that match a pattern in the syntax of
// [Topic]: on all nodes, the user's connections are unsubscribed, whether a handler or the client has
// subscribed them, and sessions that the user resumes later do not bring the topic back. Clients that
// know the protocol are notified with $ws:unsubscribed. What is granted afterwards is not affected.
//
// Revoke does not prevent new subscriptions: before the call, change what TopicOptions.Authorize and
// handlers decide by. Authorize is asked again for a subscription during which Revoke is called; a
// handler that has asked before, and subscribes afterwards, grants access again.
// When Revoke has returned, no answer about a topic, publication or item of a run is queued on this node that Authorize
// does not permit any more. What is in the send queue before that is sent.
//
// An error means that the access may not have ended everywhere: call Revoke again. It then has the
// code INVALID_ARGUMENT if userID is empty or topic is no name and no pattern, or it is that of
// Options.Broker, which cannot be reached. Another node is notified at most once. If it misses
// that, which Options.OnMessagesLost reports with the topic "", connections with a session are
// unsubscribed within a third of Resume.Within, and others stay subscribed. With
// Options.UserHistory, they are unsubscribed when the node returns, as [Router.DisconnectUser]
// says.
func (r *Router) Revoke(ctx context.Context, tenantID, userID, topic string) error {
	if err := topicname.Check(topic); err != nil {
		return err
	}
	if userID == "" {
		return errors.Errorf(errors.InvalidArgument, "the user ID is empty; connections without a user have no access to revoke")
	}
	return r.access.Revoke(ctx, session.User{TenantID: tenantID, UserID: userID}, topic)
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
	return r.access.Disconnect(session.User{TenantID: tenantID, UserID: userID}, session.End{Code: validCode(code), Reason: reason})
}

// validCode returns the code, or that of an internal error if no close frame may contain it.
func validCode(code StatusCode) int {
	if !wsconn.ValidCloseCode(int(code)) {
		code = StatusInternalError
	}
	return int(code)
}

// guardAccess makes the call ask decide again before it sends anything, if Revoke was called since guardAccess.
func (c *Context) guardAccess(decide func() error) *calls.Guard {
	return c.conn.ownExtra().guards.Add(&c.root().call, &c.conn.member.Revocations, decide)
}

// accessEndOf returns how a user was disconnected after an authentication, for clients that are no connections of the router.
func (r *Router) accessEndOf(tenantID, userID string, since uint32) (host.AccessEnd, bool) {
	end, ok := r.access.EndOf(session.User{TenantID: tenantID, UserID: userID}, since)
	return host.AccessEnd{TenantID: tenantID, UserID: userID, Code: end.Code, Reason: end.Reason}, ok
}

// checkAccess closes a connection whose user was disconnected after it was authenticated, and before
// it was registered.
func (c *Conn) checkAccess() {
	id := c.identity.Load()
	if id == nil {
		return
	}
	if end, ok := c.router.access.EndOf(session.User(id.user()), id.since); ok {
		(*accessConn)(c).Close(end)
	}
}
