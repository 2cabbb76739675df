package router

import (
	"context"
	"slices"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/calls"
	"github.com/penstock-go/penstock/internal/failure"
	"github.com/penstock-go/penstock/internal/host"
	"github.com/penstock-go/penstock/internal/protocol"
	"github.com/penstock-go/penstock/internal/registry"
	"github.com/penstock-go/penstock/internal/session"
	"github.com/penstock-go/penstock/internal/topicname"
	"github.com/penstock-go/penstock/internal/userpacket"
	"github.com/penstock-go/penstock/internal/wsconn"
)

// This file ends the access of users to topics. internal/session stores it for sessions whose
// clients are away.

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
	user, matcher := registry.User{TenantID: tenantID, UserID: userID}, topicname.NewMatcher(topic)
	r.revokeLocal(user, session.Change{}, matcher) // even if the store does not answer
	stored, err := r.sessions.Revoke(ctx, session.User(user), topic)
	r.revokeLocal(user, stored, matcher)
	packet := userpacket.NewRevocation(session.User(user), stored, topic)
	if r.access != nil {
		return failure.Join(err, r.access.store(ctx, packet))
	}
	return failure.Join(err, r.publishToNodes(func() []byte { return packet }))
}

// revokeLocal ends the access of the user's connections on this node.
func (r *Router) revokeLocal(user registry.User, change session.Change, topics topicname.Matcher) {
	r.revokeConns(r.conns.OfUser(user), change, topics)
	r.revokeElsewhere(user, nil, topics)
}

// revokeElsewhere ends the access of what a user has on this node besides connections. before is nil,
// or reports which authentications it concerns.
func (r *Router) revokeElsewhere(user registry.User, before func(uint32) bool, topics topicname.Matcher) {
	r.endAbsence(user, topics.Matches) // first: a connection that leaves meanwhile is then a session that waits
	r.sessions.EndPresence(session.User(user), topics)
	r.accessEnds.Call(host.AccessEnd{TenantID: user.TenantID, UserID: user.UserID, Before: before, Topics: topics.Matches})
}

// disconnectElsewhere is revokeElsewhere for what closes connections.
func (r *Router) disconnectElsewhere(user registry.User, before func(uint32) bool, end CloseError) {
	r.accessEnds.Call(host.AccessEnd{TenantID: user.TenantID, UserID: user.UserID, Before: before, Code: validCode(end.Code), Reason: end.Reason})
}

// validCode returns the code, or that of an internal error if no close frame may contain it.
func validCode(code StatusCode) int {
	if !wsconn.ValidCloseCode(int(code)) {
		code = StatusInternalError
	}
	return int(code)
}

// revokeConns ends the access of connections.
func (r *Router) revokeConns(conns []*Conn, change session.Change, topics topicname.Matcher) {
	for _, c := range conns {
		c.mu.Lock()
		c.revokeLocked(topics)
		if s := c.session(); s != nil {
			s.Follow(change)
		}
		c.mu.Unlock()
	}
}

// revokeLocked ends the subscriptions to topics.
func (c *Conn) revokeLocked(topics topicname.Matcher) {
	// Subscriptions that are being made, and each calls.Guard, compare the number before and after.
	c.revocations.Add(1)
	c.sub.WS.AwaitQueuing() // after that, no call sends what it was permitted to before
	for _, t := range slices.Clone(c.sub.TopicsLocked()) {
		if !topics.Matches(t.Name) {
			continue
		}
		if c.sub.HasGreeted() {
			_ = c.send(encodeProtocol(c.codec(), protocol.Unsubscribed{Topic: t.Name})) // fails only if the connection is closed
		}
		c.unsubscribeLocked(t.Name)
	}
	if s := c.session(); s != nil {
		s.DropMatching(topics)
	}
}

// guardAccess makes the call ask decide again before it sends anything, if Revoke was called since guardAccess.
func (c *Context) guardAccess(decide func() error) *calls.Guard {
	return c.conn.ownExtra().guards.Add(&c.root().call, &c.conn.revocations, decide)
}

// revocationTimeout bounds how long DisconnectUser waits for the store.
const revocationTimeout = 5 * time.Second

// errRevoked is the result of a resumed topic to which the client has lost access.
var errRevoked = &errors.Error{Code: errors.PermissionDenied, Message: "the access to this topic has ended"}
