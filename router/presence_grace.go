package router

import (
	"sync"
	"time"
)

// This file keeps users present whose connections have been closed on this node, for the time of
// TopicOptions.PresenceGrace. Sessions do the same, in away.go.

// graceMembers are the connections without sessions that have been closed and are still present.
type graceMembers struct {
	mu     sync.Mutex // may be acquired under topic.mu; nothing is called under it
	byConn map[string]*graceConn
}

// A graceConn is a closed connection, and the timers after which it leaves its topics. It
// subscribes to them, and receives nothing. graceMembers.mu guards it.
type graceConn struct {
	conn   *Conn
	timers map[*topic]*time.Timer
}

// stayPresent lets the member of a closed connection stay in a topic until the client comes back.
// It reports false if it leaves now.
func (r *Router) stayPresent(c *Conn, t *topic) bool {
	return r.topics.setAway(t, c) && (r.away.stay(c, t) || r.grace.stay(c, t))
}

// stay waits for a user to come back, if the way in which the connection was closed and the topic
// permit that.
func (g *graceMembers) stay(c *Conn, t *topic) bool {
	grace := t.pattern.opts.PresenceGrace
	if grace == 0 || c.Identity().UserID == "" || c.ctx.Err() == nil || c.goesOn(t.name) {
		return false
	}
	if code, _ := c.ws.Status(); endsSession(StatusCode(code)) || StatusCode(code) == StatusGoingAway {
		return false
	}
	if g.add(c, t, grace) {
		c.router.leaveGrace(c)
	}
	return true
}

// add sets the timer of a topic. It reports whether the topic is the first one of the connection.
func (g *graceMembers) add(c *Conn, t *topic, grace time.Duration) (first bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.byConn == nil {
		g.byConn = map[string]*graceConn{}
	}
	e := g.byConn[c.id]
	if e == nil {
		first, e = true, &graceConn{c, map[*topic]*time.Timer{}}
		g.byConn[c.id] = e
	}
	e.timers[t] = time.AfterFunc(grace, func() { g.leave(c.id, func(other *topic) bool { return other == t }) })
	return first
}

// hasten makes a connection leave a topic soon, in which it is not present any more. It may be
// called with topic.mu held.
func (g *graceMembers) hasten(c *Conn, t *topic) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if e := g.byConn[c.id]; e != nil && e.timers[t] != nil && e.timers[t].Stop() {
		e.timers[t].Reset(0)
	}
}

// leave makes a connection leave topics, if it is still in them.
func (g *graceMembers) leave(connID string, matches func(*topic) bool) {
	c, topics := g.remove(connID, matches)
	for _, t := range topics {
		c.router.topics.remove(t, c)
	}
}

func (g *graceMembers) remove(connID string, matches func(*topic) bool) (c *Conn, topics []*topic) {
	g.mu.Lock()
	defer g.mu.Unlock()
	e := g.byConn[connID]
	if e == nil {
		return nil, nil
	}
	for t, timer := range e.timers {
		if matches(t) {
			timer.Stop()
			delete(e.timers, t)
			topics = append(topics, t)
		}
	}
	if len(e.timers) == 0 {
		delete(g.byConn, connID)
	}
	return e.conn, topics
}

// end ends the presence of a user in topics.
func (g *graceMembers) end(user userKey, matches func(topic string) bool) {
	for _, connID := range g.ofUser(user) {
		g.leave(connID, func(t *topic) bool { return matches(t.name) })
	}
}

// ofUser returns the IDs of the connections of a user.
func (g *graceMembers) ofUser(user userKey) (connIDs []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for id, e := range g.byConn {
		if e.conn.Identity().user() == user {
			connIDs = append(connIDs, id)
		}
	}
	return connIDs
}

// stop ends the waiting. Other nodes let the members stay.
func (g *graceMembers) stop() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, e := range g.byConn {
		for _, timer := range e.timers {
			timer.Stop()
		}
	}
	g.byConn = nil
}

// endAbsence ends the presence of a user in topics whose clients are away, wherever they were
// connected.
func (r *Router) endAbsence(user userKey, matches func(topic string) bool) {
	r.grace.end(user, matches)
	r.topics.endHeldOf(user, matches)
}

// leaveForGood ends the presence of a connection that is about to be closed, where its user would
// otherwise stay for the time of PresenceGrace.
func (c *Conn) leaveForGood() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range c.topics.all() {
		if t.pattern.opts.PresenceGrace > 0 {
			c.router.topics.endPresence(t, c)
		}
	}
}

func (ts *topics) endPresence(t *topic, c *Conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	ts.removeLocalMemberLocked(t, c, true)
}
