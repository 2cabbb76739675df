package router

import (
	"context"
	"slices"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/protocol"
	"github.com/penstock-go/penstock/internal/registry"
	"github.com/penstock-go/penstock/internal/session"
	"github.com/penstock-go/penstock/internal/topic"
	"github.com/penstock-go/penstock/internal/topicname"
	"github.com/penstock-go/penstock/tracing"
)

// This file keeps the messages of SendToUser in a history for each user, if Options.UserHistory is
// set. It is that of a topic: the connections of the user subscribe to it when they are accepted,
// and in a session it is a topic that a handler has granted.

// userLogName returns the name of a user's log.
func userLogName(user registry.User) string { return topicname.UserLog(user.TenantID, user.UserID) }

// nameUserLog replaces the name that a client uses for the log of its user. Without one, it stays,
// and is refused as no topic has it.
func (r *Router) nameUserLog(topics []protocol.Subscribe, user registry.User) {
	if !r.opts.UserHistory.enabled() || user.UserID == "" {
		return
	}
	if i := slices.IndexFunc(topics, func(t protocol.Subscribe) bool { return t.Topic == "" }); i >= 0 {
		topics[i].Topic = userLogName(user)
	}
}

// openUserLogs begins to follow what ends the access of users. It panics if the broker keeps no
// histories.
func (r *Router) openUserLogs() {
	h := r.opts.UserHistory
	if !h.enabled() {
		return
	}
	r.mustHaveHistories("UserHistory", "keeps no histories")
	r.topics.DeclareUserLogs(h.retention(), r.resumes())
	openAccessLog(r)
}

// storeForUser is SendToUser with a history.
func (r *Router) storeForUser(user registry.User, m Message) (connsOnThisNode int, err error) {
	p, err := r.encodeAll(m, r.formats.All())
	defer p.Free()
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), r.opts.Timeouts.Call)
	defer cancel()
	h := r.opts.UserHistory
	a := broker.Append{Topic: userLogName(user), Retention: h.retention(), Durability: h.Durability, Packet: r.formats.Packet(&p, tracing.TraceContext{})}
	if _, err := r.topics.Store(ctx, a); err != nil {
		return 0, err
	}
	return len(r.conns.OfUser(user)), nil
}

// joinUserLog subscribes a connection to the log of its user.
func (c *Conn) joinUserLog() {
	if !c.router.opts.UserHistory.enabled() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.joinUserLogLocked()
}

// joinUserLogLocked returns the log of the user, or nil if the connection is anonymous or has left.
func (c *Conn) joinUserLogLocked() *topic.Topic {
	user := c.Identity().user()
	if user.UserID == "" || c.left {
		return nil
	}
	return c.router.topics.SubscribeUserLogLocked(userLogName(user), &c.sub)
}

// changeUserLogLocked makes a connection whose user has changed leave the log of the previous one,
// and join that of the new one, from now on.
func (c *Conn) changeUserLogLocked() {
	if !c.router.opts.UserHistory.enabled() {
		return
	}
	s := c.session()
	if t := c.sub.UserLogLocked(); t != nil {
		if s != nil {
			s.announceEnd(t.Name)
		}
		c.unsubscribeLocked(t.Name)
	}
	if t := c.joinUserLogLocked(); t != nil && s != nil {
		s.Grant(t.Name, session.Grant{})
		s.announce(t)
	}
}
