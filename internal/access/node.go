package access

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/failure"
	"github.com/penstock-go/penstock/internal/host"
	"github.com/penstock-go/penstock/internal/present"
	"github.com/penstock-go/penstock/internal/session"
	"github.com/penstock-go/penstock/internal/topic"
	"github.com/penstock-go/penstock/internal/topicname"
)

// A Conn is a connection of a user as the ends of access concern it.
type Conn interface {
	// Since returns the [Node.Now] before the user was authenticated. ok is false if the connection has no user.
	Since() (number uint32, ok bool)

	// Revoke ends the subscriptions to topics. change is zero, or what the store has of it.
	Revoke(topics topicname.Matcher, change session.Change)

	// Disconnect ends the session and the presence of the client, and closes the connection. Close only does the latter.
	Disconnect(end session.End)
	Close(end session.End)
}

// A Host is what a Node needs of the router. All fields but Resumes and Durability are required.
type Host struct {
	Topics     *topic.Topics
	Sessions   *session.Node
	Away       *present.Table
	Resumes    bool              // sessions are enabled
	Durability broker.Durability // of the log

	OfUser      func(session.User) []Conn                                // the open connections of a user
	All         func() []Conn                                            // all open connections
	EndPresence func(user session.User, matches func(topic string) bool) // of lost connections with handlers that run
	Ended       func(host.AccessEnd)                                     // is called for what is no connection
	Publish     func(packet []byte) error                                // to other nodes, which may miss it
	Lost        func(messages int)                                       // messages of the log are lost
}

// A Node ends the access of users on one node, and notifies the others: by a log if Follow was called, and otherwise by
// packets that they may miss. A Node without a log is ready for use when Host is set.
type Node struct {
	Host

	log    *log          // nil without a log
	latest atomic.Uint32 // the number of the latest disconnect, without a log
}

// storeTimeout bounds how long an end of access waits for the store.
const storeTimeout = 5 * time.Second

// HasLog reports whether Follow was called.
func (n *Node) HasLog() bool { return n.log != nil }

// EndOf returns how a user was disconnected after an authentication. ok is false if that has not happened.
func (n *Node) EndOf(user session.User, since uint32) (end session.End, ok bool) {
	code, reason, ok := n.Away.DisconnectOf(present.User(user), func(number uint32) bool { return Precedes(since, number) })
	if ok && code == 0 {
		return UnknownEnd(1), user.UserID != ""
	}
	return session.End{Code: code, Reason: reason}, ok
}

// Revoke ends the access of a user to the topics that match, on all nodes. An error means that it may not have ended
// everywhere.
func (n *Node) Revoke(ctx context.Context, user session.User, pattern string) error {
	topics := topicname.NewMatcher(pattern)
	n.revokeLocal(user, session.Change{}, topics) // even if the store does not answer
	stored, err := n.Sessions.Revoke(ctx, user, pattern)
	n.revokeLocal(user, stored, topics)
	packet := NewRevocation(user, stored, pattern)
	if n.log != nil {
		return failure.Join(err, n.store(ctx, packet))
	}
	return failure.Join(err, n.Publish(packet))
}

// revokeLocal ends the access of the user's connections on this node.
func (n *Node) revokeLocal(user session.User, change session.Change, topics topicname.Matcher) {
	for _, c := range n.OfUser(user) {
		c.Revoke(topics, change)
	}
	n.revokeElsewhere(user, nil, topics)
}

// revokeElsewhere ends the access of what a user has on this node besides connections. before is nil,
// or reports which authentications it concerns.
func (n *Node) revokeElsewhere(user session.User, before func(uint32) bool, topics topicname.Matcher) {
	n.EndPresence(user, topics.Matches) // first: a connection that leaves meanwhile is then away
	n.Away.Revoke(present.User(user), topics.Matches)
	n.Ended(host.AccessEnd{TenantID: user.TenantID, UserID: user.UserID, Before: before, Topics: topics.Matches})
}

// Disconnect closes all connections of a user, on all nodes, and ends their sessions. It returns the number of
// connections on this node. end has a code that a close frame may have.
func (n *Node) Disconnect(user session.User, end session.End) (connsOnThisNode int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	packet := NewDisconnect(user, end.Code, end.Reason)
	if n.log == nil {
		connsOnThisNode = n.disconnect(user, end) // even if the store does not answer
		err = n.Sessions.EndSessions(ctx, user, end)
		if n.Resumes {
			n.disconnect(user, end) // those that have resumed meanwhile
		}
		return connsOnThisNode, failure.Join(err, n.Publish(packet))
	}
	connsOnThisNode = len(n.OfUser(user))
	err = n.Sessions.EndSessions(ctx, user, end)
	stored := n.store(ctx, packet)
	if stored != nil {
		n.disconnect(user, end)
	}
	return connsOnThisNode, failure.Join(err, stored)
}

// disconnect closes the connections of a user on this node.
func (n *Node) disconnect(user session.User, end session.End) int {
	if n.log == nil {
		n.Away.Disconnected(present.User(user), n.latest.Add(1), end.Code, end.Reason) // before the connections that are registered are looked up
	}
	conns := n.OfUser(user)
	for _, c := range conns {
		c.Disconnect(end)
	}
	n.EndPresence(user, func(string) bool { return true })
	n.Away.EndAccess(present.User(user), func(uint32) bool { return true })
	n.Ended(host.AccessEnd{TenantID: user.TenantID, UserID: user.UserID, Code: end.Code, Reason: end.Reason})
	return len(conns)
}

// Receive handles a packet from another node about an end of access. A packet that is in the log, too, has
// PacketStored before it.
func (n *Node) Receive(packet []byte) {
	if packet[0] == PacketStored {
		if n.log != nil || len(packet) == 1 {
			return // this node follows the log
		}
		packet = packet[1:]
	}
	switch p, ok := ParsePacket(packet); {
	case !ok:
	case p.Kind == PacketRevocation:
		n.revokeLocal(p.User, p.Change, p.Topics)
	case p.Kind == PacketDisconnect:
		n.disconnect(p.User, session.End{Code: p.Code, Reason: p.Reason})
	}
}
