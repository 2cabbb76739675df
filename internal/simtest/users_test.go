package simtest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/penstock-go/penstock/client"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
)

// A sent is a message to a user.
type sent struct {
	id, user     string
	begun, ended time.Time
	err          error
}

// A revocation is an end of access.
type revocation struct {
	user, topic  string
	begun, ended time.Time
	err          error
	granted      time.Time // the user may read again; zero while not
}

// A disconnect is a call of DisconnectUser.
type disconnect struct {
	user  string
	code  int
	begun time.Time
	ended time.Time
	err   error
}

type usersRecord struct { // guarded by world.mu
	sent        []*sent
	revocations []*revocation
	disconnects []*disconnect
}

// Servers send messages to users, end their access, and disconnect them.
func usersFeature() feature {
	user := func(d *draw, s *step) { d.node(s); s.Client = d.IntN(len(d.plan.Clients)) }
	return feature{
		begin: func(*world) any { return &usersRecord{} },
		verbs: []verb{
			{name: "sendToUser", weight: [3]int{8, 8, 8}, draw: func(d *draw, s *step) { user(d, s); s.N = 1 + d.IntN(3) }, run: (*world).sendToUser},
			{name: "revoke", weight: [3]int{3, 3, 3}, draw: func(d *draw, s *step) {
				user(d, s)
				d.topic(s, "log", "join", "live", "room")
			}, run: (*world).revoke},
			{name: "grant", weight: [3]int{3, 3, 3}, draw: func(d *draw, s *step) {
				user(d, s)
				d.topic(s, "log", "join", "live", "room")
			}, run: (*world).grant},
			{name: "disconnectUser", weight: [3]int{1, 2, 2}, draw: func(d *draw, s *step) { user(d, s); s.N = d.IntN(2) }, run: (*world).disconnectUser},
			{name: "off", weight: [3]int{3, 3, 3}, draw: (*draw).client, run: func(w *world, s step) { w.begin(w.clients[s.Client].off) }},
			{name: "openAndSend", weight: [3]int{4, 3, 3}, draw: func(d *draw, s *step) { user(d, s); s.N = 1 }, run: (*world).openAndSend},
			{name: "on", weight: [3]int{10, 10, 10}, draw: (*draw).client, run: func(w *world, s step) { w.clients[s.Client].open() }},
		},
		check: (*world).checkUsers,
	}
}

func (w *world) sendToUser(s step) {
	a, user := w.app(s.Node), w.plan.Clients[s.Client].User
	if a == nil {
		return
	}
	r := record[*usersRecord](w)
	w.begin(func() {
		for range s.N {
			m := &sent{id: w.newID("l"), user: user, begun: time.Now()}
			w.mu.Lock()
			r.sent = append(r.sent, m)
			w.mu.Unlock()
			_, err := a.SendToUser("", user, letter{ID: m.id})
			w.mu.Lock()
			if !a.killed {
				m.ended, m.err = time.Now(), err
			}
			calm := !w.faulty && a.Healthy() // a node that shuts down refuses at the end
			w.mu.Unlock()
			if err != nil && calm {
				w.Errorf("calm: sending %s to %s failed: %v", m.id, user, err)
			}
		}
	})
}

// openAndSend turns a device on, perhaps after it was on, and makes a node send to its user as soon as it is connected.
func (w *world) openAndSend(s step) {
	d := w.clients[s.Client]
	w.begin(func() {
		d.off()
		d.open()
		l := d.life()
		for began := time.Now(); l != nil && time.Since(began) < time.Second; time.Sleep(time.Millisecond) {
			if _, ok := l.Connection(); ok {
				break
			}
		}
		time.Sleep(time.Millisecond)
		w.sendToUser(s)
	})
}

// mayRead is what the application decides by.
func (w *world) mayRead(user, topic string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.denied[user+" "+topic] {
		return errors.Errorf(errors.PermissionDenied, "%s may not read %s", user, topic)
	}
	return nil
}

func (w *world) revoke(s step) {
	a, user := w.app(s.Node), w.plan.Clients[s.Client].User
	if a == nil {
		return
	}
	v := &revocation{user: user, topic: s.Topic, begun: time.Now()}
	r := record[*usersRecord](w)
	w.mu.Lock()
	w.denied[user+" "+s.Topic] = true
	r.revocations = append(r.revocations, v)
	w.mu.Unlock()
	ended := w.endStays(func(t *stay) bool { return t.life.device.User == user && t.topic == s.Topic })
	w.begin(func() {
		ctx, cancel := timeout(30 * time.Second)
		defer cancel()
		err := a.Revoke(ctx, "", user, s.Topic)
		ended(err == nil)
		w.mu.Lock()
		if !a.killed {
			v.ended, v.err = time.Now(), err
		}
		calm := !w.faulty && a.Healthy() // a node that shuts down refuses at the end
		w.mu.Unlock()
		if err != nil && calm {
			w.Errorf("calm: Revoke failed: %v", err)
		}
	})
}

func (w *world) grant(s step) {
	user := w.plan.Clients[s.Client].User
	r := record[*usersRecord](w)
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.denied, user+" "+s.Topic)
	for _, v := range r.revocations {
		if v.user == user && v.topic == s.Topic && v.granted.IsZero() {
			v.granted = time.Now()
		}
	}
}

// disconnectUser closes with closeStop if N is 0, and with closeAgain if it is 1.
func (w *world) disconnectUser(s step) {
	a, user := w.app(s.Node), w.plan.Clients[s.Client].User
	if a == nil {
		return
	}
	code := closeStop
	if s.N == 1 {
		code = closeAgain
	}
	dc := &disconnect{user: user, code: code, begun: time.Now()}
	r := record[*usersRecord](w)
	w.mu.Lock()
	r.disconnects = append(r.disconnects, dc)
	w.mu.Unlock()
	ended := w.endStays(func(t *stay) bool { return t.life.device.User == user })
	w.begin(func() {
		_, err := a.DisconnectUser("", user, router.StatusCode(code), disconnectReason)
		ended(err == nil)
		w.mu.Lock()
		if !a.killed {
			dc.ended, dc.err = time.Now(), err
		}
		calm := !w.faulty && a.Healthy() // a node that shuts down refuses at the end
		w.mu.Unlock()
		if err != nil && calm {
			w.Errorf("calm: DisconnectUser failed: %v", err)
		}
	})
}

const disconnectReason = "by the application"

// clientStopped is called when a client has given up: only the code of the application permits that.
func (w *world) clientStopped(d *simClient, err error) {
	if err == nil || errors.Is(err, client.ErrClosed) {
		return
	}
	if !strings.Contains(err.Error(), fmt.Sprintf("closed with %d:", closeStop)) {
		w.Errorf("client %d (%s) has stopped for good: %v", d.index, d.User, err)
	}
}

// Tolerances. The guarantees say that an end of access reaches all nodes at once without faults, and a node that was
// cut off when it returns.
const (
	calmAccessTime = 3 * time.Second
	nextConnection = 100 * time.Millisecond
)

func (w *world) checkUsers() {
	r := record[*usersRecord](w)
	calm, lost := w.calm(), w.storeLost()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, d := range w.clients {
		for _, l := range d.lives {
			w.checkLetters(l, r, calm)
		}
	}
	for _, dc := range r.disconnects {
		if dc.err == nil && !dc.ended.IsZero() && !lost {
			w.checkDisconnected(dc)
		}
	}
	if !calm {
		return
	}
	for _, v := range r.revocations {
		if v.err != nil || v.ended.IsZero() {
			continue
		}
		w.checkRevoked(v)
	}
}

// checkLetters checks that a client receives each message to its user at most once, in order of what one caller has sent, and
// all of them while it is connected without a fault.
func (w *world) checkLetters(l *life, r *usersRecord, calm bool) {
	got := map[string]int{}
	for _, m := range l.received {
		if m.kind == "LETTER" {
			got[m.id]++
		}
	}
	name := fmt.Sprintf("client %d (%s)", l.device.index, l.device.User)
	for _, m := range r.sent {
		n := got[m.id]
		switch {
		case n > 1 && (calm || l.keepsSession()): // without a session, a new connection may be to a node that is behind
			w.Errorf("%s: received %s %d times", name, m.id, n)
		case n > 0 && m.user != l.device.User:
			w.Errorf("%s: received %s, which is for %s", name, m.id, m.user)
		case n == 0 && calm && m.user == l.device.User && m.err == nil && !m.ended.IsZero() && w.wasConnected(l, m.begun):
			w.Errorf("calm: %s: did not receive %s, sent from %v to %v", name, m.id, m.begun.Sub(w.began), m.ended.Sub(w.began))
		}
	}
}

// keepsSession reports whether a client has had one session all the time.
func (l *life) keepsSession() bool {
	for i, c := range l.conns {
		if i > 0 && !c.resumed {
			return false
		}
	}
	return l.device.Resume
}

// wasConnected reports whether a client was connected at a time, and stayed so or resumed its session until much later.
func (w *world) wasConnected(l *life, at time.Time) bool {
	if !l.closed.IsZero() && l.closed.Sub(at) < deliveryTime {
		return false
	}
	for _, dc := range record[*usersRecord](w).disconnects {
		if dc.user == l.device.User && at.Sub(dc.begun) < calmAccessTime && dc.begun.Sub(at) < deliveryTime {
			return false
		}
	}
	before := false
	for _, c := range l.conns {
		if c.from.Before(at) && (c.to.IsZero() || c.to.After(at.Add(nextConnection))) {
			before = true
			if c.to.IsZero() || c.to.Sub(at) > deliveryTime {
				return true
			}
			continue
		}
		if before && c.from.After(at) {
			return c.resumed && l.device.Resume
		}
	}
	return before
}

// checkRevoked checks that clients received nothing of a topic after their access had ended.
func (w *world) checkRevoked(v *revocation) {
	for _, d := range w.clients {
		if d.User != v.user {
			continue
		}
		for _, l := range d.lives {
			for _, m := range l.received {
				if m.topic == v.topic && m.at.Sub(v.ended) > calmAccessTime && (v.granted.IsZero() || m.at.Before(v.granted)) {
					w.Errorf("calm: client %d received %s of %s %v after Revoke has returned", d.index, m.id, m.topic, m.at.Sub(v.ended))
				}
			}
		}
	}
}

// checkDisconnected checks that no client has resumed a session that had ended while it was away.
func (w *world) checkDisconnected(dc *disconnect) {
	for _, d := range w.clients {
		if d.User != dc.user {
			continue
		}
		for _, l := range d.lives {
			for i, c := range l.conns {
				if i > 0 && c.resumed && l.conns[i-1].to.Before(dc.begun) && c.from.Sub(dc.ended) > calmAccessTime {
					w.Errorf("client %d has resumed at %v the session that DisconnectUser has ended from %v to %v", d.index, c.from.Sub(w.began), dc.begun.Sub(w.began), dc.ended.Sub(w.began))
				}
			}
		}
	}
}

// wasRevoked reports whether the application has ended the access of a user to a topic.
func (w *world) wasRevoked(user, topic string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(record[*usersRecord](w).revocations, func(v *revocation) bool { return v.user == user && v.topic == topic })
}

// wasDisconnected reports whether the application has disconnected a user in a time.
func (w *world) wasDisconnected(user string, from, to time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, dc := range record[*usersRecord](w).disconnects {
		if dc.user == user && !dc.begun.After(to) && (dc.ended.IsZero() || dc.ended.Add(calmAccessTime).After(from)) {
			return true
		}
	}
	return false
}
