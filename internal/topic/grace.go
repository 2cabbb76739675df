package topic

import (
	"sync"
	"time"
)

// This file keeps users present whose connections have been closed on this node, for the time of
// Options.PresenceGrace. Sessions do the same, in internal/session.

// A User is a user whose members are in topics.
type User struct{ TenantID, UserID string }

// graceMembers are the connections without sessions that have been closed and are still present.
type graceMembers struct {
	mu     sync.Mutex // may be acquired under Topic.mu; nothing is called under it
	byConn map[string]*graceConn
}

// A graceConn is a closed connection of a user, and the timers after which it leaves its topics. It
// subscribes to them, and receives nothing. graceMembers.mu guards it.
type graceConn struct {
	conn   *Subscriber
	user   User
	timers map[*Topic]*time.Timer
}

// Stay lets the member of a closed connection stay in a topic for the time of its PresenceGrace. It
// reports whether the topic is the first one of the connection.
func (ts *Topics) Stay(t *Topic, c *Subscriber, connID string, user User) (first bool) {
	g := &ts.grace
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.byConn == nil {
		g.byConn = map[string]*graceConn{}
	}
	e := g.byConn[connID]
	if e == nil {
		first, e = true, &graceConn{c, user, map[*Topic]*time.Timer{}}
		g.byConn[connID] = e
	}
	e.timers[t] = time.AfterFunc(t.Pattern.PresenceGrace, func() {
		ts.leave(connID, func(other *Topic) bool { return other == t })
	})
	return first
}

// Staying returns the number of closed connections with which users stay present.
func (ts *Topics) Staying() int {
	ts.grace.mu.Lock()
	defer ts.grace.mu.Unlock()
	return len(ts.grace.byConn)
}

// hasten makes a connection leave a topic soon, in which it is not present any more. It may be
// called with Topic.mu held.
func (g *graceMembers) hasten(connID string, t *Topic) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if e := g.byConn[connID]; e != nil && e.timers[t] != nil && e.timers[t].Stop() {
		e.timers[t].Reset(0)
	}
}

// leave makes a connection leave topics, if it is still in them.
func (ts *Topics) leave(connID string, matches func(*Topic) bool) {
	c, topics := ts.grace.remove(connID, matches)
	for _, t := range topics {
		ts.Remove(t, c, true)
	}
}

// LeaveAll makes a connection leave the topics in which it has stayed.
func (ts *Topics) LeaveAll(connID string) { ts.leave(connID, func(*Topic) bool { return true }) }

func (g *graceMembers) remove(connID string, matches func(*Topic) bool) (c *Subscriber, topics []*Topic) {
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

// EndAbsence ends the presence of a user in topics whose clients are away, wherever they were
// connected.
func (ts *Topics) EndAbsence(user User, matches func(topic string) bool) {
	for _, connID := range ts.grace.ofUser(user) {
		ts.leave(connID, func(t *Topic) bool { return matches(t.Name) })
	}
	for _, h := range ts.held.of(user) {
		if matches(h.topic.Name) {
			ts.endHeld(h)
		}
	}
}

// ofUser returns the IDs of the connections of a user.
func (g *graceMembers) ofUser(user User) (connIDs []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for id, e := range g.byConn {
		if e.user == user {
			connIDs = append(connIDs, id)
		}
	}
	return connIDs
}

// Close ends the waiting for members, which other nodes let stay, and calls of Tail.
func (ts *Topics) Close() {
	ts.close()
	g := &ts.grace
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, e := range g.byConn {
		for _, timer := range e.timers {
			timer.Stop()
		}
	}
	g.byConn = nil
}

// EndPresence ends the presence of a connection that remains subscribed.
func (ts *Topics) EndPresence(t *Topic, c *Subscriber) {
	t.mu.Lock()
	defer t.mu.Unlock()
	ts.removeLocalMemberLocked(t, c, true)
}
