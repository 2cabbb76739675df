package simtest

import (
	"fmt"
	"strings"
	"time"
)

// When all is quiet, a publication to each topic shows who is subscribed: whatever has happened before, that is known.
func restFeature() feature {
	return feature{
		verbs: []verb{
			{name: "endWhileAway", weight: [3]int{0, 4, 3}, draw: func(d *draw, s *step) {
				d.client(s)
				d.node(s)
				d.topic(s, "log", "join", "join", "room")
				s.N = d.IntN(3)
				s.For = 7*time.Second + d.span(15*time.Second)
			}, run: (*world).endWhileAway},
		},
		check: (*world).checkRest,
	}
}

// endWhileAway ends access of a user while the network of a client is away for the time For. N chooses what ends: the access to
// the topic, or all sessions, and whether a node is killed.
func (w *world) endWhileAway(s step) {
	w.fault()
	host := w.clients[s.Client].host
	w.cluster.Cut(host)
	w.cluster.Stall(host, s.For)
	w.begin(func() {
		time.Sleep(s.For / 2)
		switch s.N {
		case 0:
			w.revoke(s)
		case 1: // the client connects again
			w.disconnectUser(s)
		case 2: // the node that has the client's session, perhaps
			w.kill(step{Node: s.Node%w.plan.Nodes + 1, For: s.For})
			s.N = 1
			w.disconnectUser(s)
		}
	})
}

// probed are the topics to which checkRest publishes.
var probed = []string{"log/1", "log/2", "live/1", "live/2", "join/1", "join/2"}

// checkRest publishes to each topic, and compares who receives that.
func (w *world) checkRest() {
	probes := map[string]string{} // IDs by topic
	for _, topic := range probed {
		id := w.newID("rest")
		ctx, cancel := timeout(20 * time.Second)
		if err := w.app(1).publish(ctx, topic, item{ID: id}, id); err != nil {
			w.Errorf("at rest, publishing to %s failed: %v", topic, err)
		}
		cancel()
		probes[topic] = id
	}
	w.cluster.Wait(time.Minute)
	for _, s := range w.watches() {
		if id := probes[s.topic]; id != "" && s.alive() && !s.received(id) {
			w.Errorf("at rest, client %d is subscribed to %s, and did not receive %s", s.life.device.index, s.topic, id)
		}
	}
	if w.storeLost() { // the records of sessions, too
		return
	}
	for _, d := range w.clients {
		if l := d.life(); l != nil {
			w.checkJoinedAtRest(l, probes)
		}
		for _, topic := range probed {
			w.checkDeniedAtRest(d, topic, probes[topic])
		}
	}
}

func (s *watch) received(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.happened {
		if h.id == id {
			return true
		}
	}
	return false
}

// storingTime is longer than a node needs to store what has changed in a session, and a client to learn that its node was killed
// meanwhile.
const storingTime = 25 * time.Second

// checkJoinedAtRest checks that a client is in the topics to which handlers have subscribed it, and in no others.
func (w *world) checkJoinedAtRest(l *life, probes map[string]string) {
	for _, topic := range []string{"join/1", "join/2"} {
		last := w.lastStay(l, topic)
		if last == nil {
			continue
		}
		in, out := w.joinedAtRest(last)
		switch received := l.hasReceived(probes[topic]); {
		case in && !received:
			w.Errorf("at rest, client %d is subscribed to %s by a handler, and did not receive %s; it has joined at %v; its connections: %s", l.device.index, topic, probes[topic], last.confirmed.Sub(w.began), l.connections())
		case out && received:
			w.Errorf("at rest, client %d has left %s, and received %s", l.device.index, topic, probes[topic])
		}
	}
}

// lastStay returns the last time for which a handler has subscribed a client to a topic, or nil.
func (w *world) lastStay(l *life, topic string) (last *stay) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range record[*joinedRecord](w).stays {
		if t.life == l && t.topic == topic {
			last = t
		}
	}
	return last
}

// joinedAtRest reports whether the client of a last stay must or must not be in its topic. Both are false if that cannot be known.
func (w *world) joinedAtRest(last *stay) (in, out bool) {
	l := last.life
	w.mu.Lock()
	defer w.mu.Unlock()
	var left time.Time // the last ending was acknowledged; zero if its outcome is unknown
	for _, e := range record[*joinedRecord](w).endings {
		if e.match(last) {
			left = e.acknowledged
			if e.ended.IsZero() || !e.ended.Before(last.begun) && !e.begun.After(last.confirmed) {
				return false, false
			}
		}
	}
	if last.left.IsZero() {
		return l.device.Resume && l.staysConnected(last.confirmed), false
	}
	return false, left.After(last.confirmed) && l.staysConnected(left)
}

// staysConnected reports whether the connection at a time has lasted until what has changed was stored, and all later ones have
// resumed its session.
func (l *life) staysConnected(at time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	found := false
	for _, c := range l.conns {
		switch {
		case c.from.After(at):
			if !c.resumed {
				return false
			}
		case c.to.IsZero() || c.to.Sub(at) > storingTime:
			found = true
		}
	}
	return found
}

// connections describes the connections of a client.
func (l *life) connections() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var b strings.Builder
	for _, c := range l.conns {
		fmt.Fprintf(&b, "\n\t%s from %v, resumed %v, until %v: %v", c.connID, c.from.Sub(l.device.world.began), c.resumed, c.to.Sub(l.device.world.began), c.err)
	}
	return b.String()
}

// checkDeniedAtRest checks that the clients of a user who has lost access receive nothing.
func (w *world) checkDeniedAtRest(d *simClient, topic, id string) {
	if w.mayRead(d.User, topic) == nil || !w.isRevoked(d.User, topic) {
		return
	}
	l := d.life()
	if l == nil {
		return
	}
	received := l.hasReceived(id)
	for _, s := range w.watches() {
		received = received || s.life == l && s.topic == topic && s.received(id)
	}
	if received {
		w.Errorf("at rest, client %d received %s of %s, which %s must not read", d.index, id, topic, d.User)
	}
}

// isRevoked reports whether the last end of a user's access was acknowledged.
func (w *world) isRevoked(user, topic string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	revoked := false
	for _, v := range record[*usersRecord](w).revocations {
		if v.user == user && v.topic == topic {
			revoked = v.err == nil && !v.ended.IsZero()
		}
	}
	return revoked
}
