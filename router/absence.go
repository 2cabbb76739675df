package router

import (
	"context"

	"github.com/penstock-go/penstock/internal/registry"
	"github.com/penstock-go/penstock/internal/session"
	"github.com/penstock-go/penstock/internal/topic"
)

// This file keeps users present whose connections have been closed on this node.

// stayPresent lets the member of a closed connection stay in a topic until the client comes back.
// It reports false if it leaves now.
func (r *Router) stayPresent(c *Conn, t *topic.Topic) bool {
	return r.topics.SetAway(t, &c.sub, c.id, c.goesOn(t.Name)) && (c.session().inner().StayPresent(t.Name) || c.stayInGrace(t))
}

// stayInGrace waits for a user to come back, if the way in which the connection was closed and the
// topic permit that.
func (c *Conn) stayInGrace(t *topic.Topic) bool {
	if t.Pattern.PresenceGrace == 0 || c.Identity().UserID == "" || c.ctx.Err() == nil || c.goesOn(t.Name) {
		return false
	}
	if code, _ := c.sub.WS.Status(); endsSession(StatusCode(code)) || StatusCode(code) == StatusGoingAway {
		return false
	}
	if c.router.topics.Stay(t, &c.sub, c.id, topic.User(c.Identity().user())) {
		connID, topics := c.id, &c.router.topics
		c.router.sessions.Leave(session.User(c.Identity().user()), c.sessionConn().Address, func() { topics.LeaveAll(connID) })
	}
	return true
}

// endAbsence ends the presence of a user in topics whose clients are away, wherever they were
// connected, and of clients whose connections are lost and have handlers that run.
func (r *Router) endAbsence(user registry.User, matches func(topic string) bool) {
	for _, c := range r.conns.Leaving(user) {
		c.endPresence(func(t *topic.Topic) bool { return matches(t.Name) })
	}
	r.topics.EndAbsence(topic.User(user), matches)
}

// leaveForGood ends the presence of a connection that is about to be closed, where its user would
// otherwise stay for the time of PresenceGrace.
func (c *Conn) leaveForGood() {
	c.endPresence(func(t *topic.Topic) bool { return t.Pattern.PresenceGrace > 0 })
}

func (c *Conn) endPresence(matches func(*topic.Topic) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range c.sub.TopicsLocked() {
		if matches(t) {
			c.router.topics.EndPresence(t, &c.sub)
		}
	}
}

// reportPresence calls Options.OnPresence once, and goes on behind what waits in r.events.
func (r *Router) reportPresence() {
	event, ok := r.topics.NextPresence()
	if !ok {
		return
	}
	defer r.events.Add(r.reportPresence) // even if the hook does not return
	r.hook(context.Background(), "OnPresence", func() { r.opts.OnPresence(PresenceEvent{event.Topic, Member(event.Member), event.Joined}) })
}
