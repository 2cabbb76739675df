package simtest

import (
	"fmt"
	"time"

	"github.com/penstock-go/penstock/client"
)

// A stay is the time for which a handler has subscribed a client to a topic.
type stay struct {
	life      *life
	topic     string
	confirmed time.Time // the handler's answer arrived
	left      time.Time // the client asked to leave
}

type joinedRecord struct{ stays []*stay } // guarded by world.mu

// Handlers subscribe clients to topics to which these cannot subscribe themselves; sessions keep the subscriptions.
func joinedFeature() feature {
	return feature{
		begin: func(*world) any { return &joinedRecord{} },
		verbs: []verb{
			{name: "join", weight: [3]int{7, 6, 6}, draw: func(d *draw, s *step) { d.client(s); d.topic(s, "join") }, run: (*world).join},
			{name: "leave", weight: [3]int{3, 3, 3}, draw: func(d *draw, s *step) { d.client(s); d.topic(s, "join") }, run: (*world).leave},
		},
		check: (*world).checkJoined,
	}
}

func (w *world) join(s step) {
	l := w.clients[s.Client].life()
	if l == nil {
		return
	}
	r := record[*joinedRecord](w)
	w.begin(func() {
		ctx, cancel := timeout(30 * time.Second)
		defer cancel()
		if _, err := client.Call[joined](ctx, l.Client, join{Topic: s.Topic}); err != nil {
			if w.calm() && !l.ended() && w.mayRead(l.device.User, s.Topic) == nil {
				w.Errorf("calm: client %d could not join %s: %v", s.Client, s.Topic, err)
			}
			return
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		r.stays = append(r.stays, &stay{life: l, topic: s.Topic, confirmed: time.Now()})
	})
}

func (w *world) leave(s step) {
	l := w.clients[s.Client].life()
	if l == nil {
		return
	}
	w.endStays(func(t *stay) bool { return t.life == l && t.topic == s.Topic })
	w.begin(func() {
		ctx, cancel := timeout(30 * time.Second)
		defer cancel()
		_, _ = client.Call[joined](ctx, l.Client, join{Topic: s.Topic, Leave: true})
	})
}

// endStays notes that what some stays receive from now on is not checked for completeness.
func (w *world) endStays(match func(*stay) bool) {
	r := record[*joinedRecord](w)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range r.stays {
		if match(t) && t.left.IsZero() {
			t.left = time.Now()
		}
	}
}

// checkJoined checks that a client receives each publication at most once and in order, and without faults all of them
// while it stays.
func (w *world) checkJoined() {
	for _, d := range w.clients {
		for _, l := range d.lives {
			w.checkItems(l)
		}
	}
	if !w.calm() {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range record[*joinedRecord](w).stays {
		if !t.life.device.Resume || !w.hasAllJoined(t) {
			continue
		}
		for _, p := range w.publications {
			end := t.left
			if end.IsZero() {
				end = t.life.closed
			}
			inTime := end.IsZero() || end.Sub(p.ended) > deliveryTime
			if p.topic == t.topic && p.acknowledged() && p.begun.After(t.confirmed) && inTime && !t.life.hasReceived(p.id) {
				w.Errorf("calm: client %d, which stays in %s since %v, did not receive %s, published from %v to %v", t.life.device.index, t.topic, t.confirmed.Sub(w.began), p.id, p.begun.Sub(w.began), p.ended.Sub(w.began))
			}
		}
	}
}

// hasAllJoined reports whether all connections of a client, after the stay began, have resumed its session.
func (w *world) hasAllJoined(t *stay) bool {
	for _, c := range t.life.conns {
		if c.from.After(t.confirmed) && !c.resumed {
			return false
		}
	}
	return true
}

func (l *life) hasReceived(id string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.received {
		if r.id == id {
			return true
		}
	}
	return false
}

// checkItems checks the items of topics to which handlers subscribe.
func (w *world) checkItems(l *life) {
	l.mu.Lock()
	defer l.mu.Unlock()
	name := fmt.Sprintf("client %d (%s)", l.device.index, l.device.User)
	seen := map[string]bool{}
	last := map[string]uint64{}
	for _, r := range l.received {
		if r.kind != "ITEM" || family(r.topic) != "join" {
			continue
		}
		w.mu.Lock()
		p := w.byID[r.id]
		w.mu.Unlock()
		if p == nil || p.topic != r.topic {
			w.Errorf("%s: received %q of %s, which was not published there", name, r.id, r.topic)
			continue
		}
		if seen[r.id] {
			w.Errorf("%s: received %s of %s twice", name, r.id, r.topic)
		}
		seen[r.id] = true
		if p.acknowledged() && w.calm() {
			if p.position.Offset <= last[r.topic] {
				w.Errorf("%s: received %s of %s at offset %d after %d", name, r.id, r.topic, p.position.Offset, last[r.topic])
			}
			last[r.topic] = p.position.Offset
		}
	}
}
