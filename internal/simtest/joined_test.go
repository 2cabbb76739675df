package simtest

import (
	"fmt"
	"slices"
	"time"

	"github.com/penstock-go/penstock/client"
	"github.com/penstock-go/penstock/errors"
)

// A stay is the time for which a handler has subscribed a client to a topic.
type stay struct {
	life      *life
	topic     string
	begun     time.Time
	confirmed time.Time // the handler's answer arrived
	left      time.Time // the client asked to leave
}

// An ending is what ends stays: the client leaves, or its user loses access. It has no order with joins that are in progress meanwhile.
type ending struct {
	match        func(*stay) bool
	begun, ended time.Time
	acknowledged time.Time // zero if its outcome is unknown
}

type joinedRecord struct { // guarded by world.mu
	stays   []*stay
	endings []*ending
}

// Handlers subscribe clients to topics to which these cannot subscribe themselves; sessions keep the subscriptions.
func joinedFeature() feature {
	return feature{
		begin: func(*world) any { return &joinedRecord{} },
		verbs: []verb{
			{name: "join", weight: [3]int{7, 6, 6}, draw: func(d *draw, s *step) { d.client(s); d.topic(s, "join") }, run: (*world).join},
			{name: "joinAndPublish", weight: [3]int{6, 5, 5}, draw: func(d *draw, s *step) {
				d.client(s)
				d.node(s)
				s.Topic = fmt.Sprintf("join/new%d", d.IntN(1000))
			}, run: (*world).joinAndPublish},
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
	w.begin(func() { l.join(s.Topic) })
}

// joinAndPublish makes a node publish to a topic that is new to all nodes, as soon as a handler has subscribed a client. Who was
// subscribed before Publish was called receives the publication.
func (w *world) joinAndPublish(s step) {
	l := w.clients[s.Client].life()
	if l == nil {
		return
	}
	w.begin(func() {
		before, _ := l.Connection()
		a := w.app(s.Node)
		if !l.join(s.Topic) || a == nil {
			return
		}
		ctx, cancel := timeout(20 * time.Second)
		defer cancel()
		id := w.newID("i")
		if a.publish(ctx, s.Topic, item{ID: id}, id) != nil {
			return
		}
		time.Sleep(calmDeliveryTime)
		after, ok := l.Connection()
		if w.calm() && ok && before.ID == after.ID && w.mayRead(l.device.User, s.Topic) == nil && !l.hasReceived(id) {
			w.Errorf("calm: client %d did not receive %s, the first publication to %s after a handler had subscribed it", s.Client, id, s.Topic)
		}
	})
}

// refusedByShutdown reports whether a node that shuts down has refused a message of a client over plain HTTP, which moves later
// than others: "Messages that Shutdown refused were not handled".
func refusedByShutdown(l *life, err error) bool {
	return l.device.Fallback && errors.CodeOf(err) == errors.Unavailable
}

// left reports whether the client has left the topic, or lost access to it, while it joined.
func left(err error) bool { return errors.CodeOf(err) == errors.Canceled }

// calmDeliveryTime is longer than a publication needs without a fault.
const calmDeliveryTime = 10 * time.Second

// join calls the handler that subscribes the client.
func (l *life) join(topic string) bool {
	w := l.device.world
	r := record[*joinedRecord](w)
	begun := time.Now()
	ctx, cancel := timeout(30 * time.Second)
	defer cancel()
	if _, err := client.Call[joined](ctx, l.Client, join{Topic: topic}); err != nil {
		if w.calm() && !l.ended() && w.mayRead(l.device.User, topic) == nil && !byApplication(err) && !left(err) && !refusedByShutdown(l, err) {
			w.Errorf("calm: client %d could not join %s: %v", l.device.index, topic, err)
		}
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	r.stays = append(r.stays, &stay{life: l, topic: topic, begun: begun, confirmed: time.Now()})
	return true
}

func (w *world) leave(s step) {
	l := w.clients[s.Client].life()
	if l == nil {
		return
	}
	ended := w.endStays(func(t *stay) bool { return t.life == l && t.topic == s.Topic })
	w.begin(func() {
		ctx, cancel := timeout(30 * time.Second)
		defer cancel()
		_, err := client.Call[joined](ctx, l.Client, join{Topic: s.Topic, Leave: true})
		ended(err == nil)
	})
}

// endStays notes that what some stays receive from now on is not checked for completeness. The caller calls ended
// afterwards.
func (w *world) endStays(match func(*stay) bool) (ended func(acknowledged bool)) {
	r := record[*joinedRecord](w)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range r.stays {
		if match(t) && t.left.IsZero() {
			t.left = time.Now()
		}
	}
	e := &ending{match: match, begun: time.Now()}
	r.endings = append(r.endings, e)
	return func(acknowledged bool) {
		w.mu.Lock()
		defer w.mu.Unlock()
		e.ended = time.Now()
		if acknowledged {
			e.acknowledged = e.ended
		}
	}
}

// isCertain reports whether nothing has ended a stay while it began.
func (r *joinedRecord) isCertain(t *stay) bool {
	return !slices.ContainsFunc(r.endings, func(e *ending) bool {
		return e.match(t) && !e.begun.After(t.confirmed) && (e.ended.IsZero() || !e.ended.Before(t.begun))
	})
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
	r := record[*joinedRecord](w)
	for _, t := range r.stays {
		if !t.life.device.Resume || !w.hasAllJoined(t) || !r.isCertain(t) {
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
	seen := map[string]time.Time{}
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
		if first, ok := seen[r.id]; ok && !l.mayRepeatLocked(first, r.at) {
			w.Errorf("%s: received %s of %s twice", name, r.id, r.topic)
		}
		seen[r.id] = r.at
		if p.acknowledged() && w.calm() {
			if p.position.Offset <= last[r.topic] {
				w.Errorf("%s: received %s of %s at offset %d after %d", name, r.id, r.topic, p.position.Offset, last[r.topic])
			}
			last[r.topic] = p.position.Offset
		}
	}
}

// mayRepeatLocked reports whether a client may receive again what it has received before, because it has connected without its
// session meanwhile: "A client without a session that reconnects after a fault to a node that is behind may receive it again".
func (l *life) mayRepeatLocked(before, again time.Time) bool {
	return !l.device.world.calm() && slices.ContainsFunc(l.conns, func(c span) bool {
		return !c.resumed && c.from.After(before) && !c.from.After(again)
	})
}
