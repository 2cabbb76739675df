package simtest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/penstock-go/penstock/client"
	"github.com/penstock-go/penstock/errors"
)

// Clients subscribe to topics with and without a history, and servers publish.
func topicsFeature() feature {
	return feature{
		verbs: []verb{
			{name: "subscribe", weight: [3]int{12, 10, 10}, draw: func(d *draw, s *step) {
				d.client(s)
				d.topic(s, "log", "log", "short", "live", "room")
				s.N = d.IntN(3)
			}, run: (*world).subscribe},
			{name: "unsubscribe", weight: [3]int{4, 3, 3}, draw: func(d *draw, s *step) { d.client(s); s.N = d.IntN(8); s.For = d.span(500 * time.Millisecond) }, run: (*world).unsubscribe},
			{name: "publish", weight: [3]int{14, 14, 10}, draw: func(d *draw, s *step) {
				d.node(s)
				d.topic(s, "log", "log", "short", "live", "join", "room")
				s.N = 1 + d.IntN(6)
			}, run: (*world).publish},
			{name: "burst", weight: [3]int{1, 1, 6}, draw: func(d *draw, s *step) {
				d.node(s)
				d.topic(s, "log", "short", "live")
				s.N = 20 + d.IntN(60)
			}, run: (*world).publish},
			{name: "subscribeAndPublish", weight: [3]int{6, 5, 5}, draw: func(d *draw, s *step) {
				d.client(s)
				d.node(s)
				s.Topic = fmt.Sprintf("log/new%d", d.IntN(1000))
				s.N = d.IntN(3)
			}, run: (*world).subscribeAndPublish},
			{name: "slow", weight: [3]int{0, 2, 6}, draw: func(d *draw, s *step) { d.client(s); s.For = d.span(20 * time.Second) }, run: func(w *world, s step) {
				w.fault()
				w.cluster.Stall(w.clients[s.Client].host, s.For)
			}},
		},
		check: func(w *world) {
			for _, s := range w.watches() {
				w.checkWatch(s)
			}
		},
	}
}

// subscribe makes a client subscribe, with N = 1 behind the last position that an earlier subscription of it has reached, and
// with N = 2 to a room without being present.
func (w *world) subscribe(s step) {
	if l := w.clients[s.Client].life(); l != nil {
		since := client.Position{}
		if s.N == 1 {
			since = l.lastPosition(s.Topic)
		}
		w.begin(func() {
			l.watch(s.Topic, &client.SubscribeOptions{Since: since, Hidden: s.N == 2 && family(s.Topic) == "room"})
		})
	}
}

// subscribeAndPublish makes a node publish to a topic that is new to all nodes as soon as a client is subscribed.
func (w *world) subscribeAndPublish(s step) {
	l, a := w.clients[s.Client].life(), w.app(s.Node)
	if l == nil || a == nil {
		return
	}
	w.begin(func() {
		watch := l.watch(s.Topic, &client.SubscribeOptions{})
		if watch == nil {
			return
		}
		ctx, cancel := timeout(20 * time.Second)
		defer cancel()
		id := w.newID("i")
		_ = a.publish(ctx, s.Topic, item{ID: id}, id)
	})
}

// lastPosition returns the last position of a topic that this client or an earlier one of the device has received.
func (l *life) lastPosition(topic string) (p client.Position) {
	for _, s := range l.device.world.watches() {
		if s.life.device != l.device || s.topic != topic {
			continue
		}
		s.mu.Lock()
		for _, h := range s.happened {
			if h.loss == nil && h.position.Epoch != "" {
				p = h.position
			}
		}
		s.mu.Unlock()
	}
	return p
}

// watch subscribes, and returns nil if that fails.
func (l *life) watch(topic string, opts *client.SubscribeOptions) *watch {
	s := l.prepare(topic, opts)
	if !s.subscribe(opts) {
		return nil
	}
	return s
}

// prepare adds to the options of a subscription what records it.
func (l *life) prepare(topic string, opts *client.SubscribeOptions) *watch {
	s := &watch{life: l, topic: topic, since: opts.Since, last: opts.Last, hidden: opts.Hidden, asked: time.Now(), state: map[string]string{}}
	opts.Handlers = append(opts.Handlers, client.HandlerFor(func(m item, r *client.Received) {
		s.happens(happening{id: m.ID, position: r.Position})
		if l.device.SlowHandlers {
			time.Sleep(slowHandler)
		}
	}))
	opts.OnLoss = func(loss client.Loss) { s.happens(happening{loss: &loss}) }
	opts.OnEnd = func(err error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.ended, s.endErr = time.Now(), err
	}
	if family(topic) == "room" {
		opts.OnPresence = s.onPresence
	}
	l.mu.Lock()
	l.watches = append(l.watches, s)
	l.mu.Unlock()
	return s
}

// subscribe reports false if the subscription fails.
func (s *watch) subscribe(opts *client.SubscribeOptions) bool {
	l, topic := s.life, s.topic
	ctx, cancel := timeout(30 * time.Second)
	defer cancel()
	sub, err := l.Subscribe(ctx, topic, opts)
	s.mu.Lock()
	defer s.mu.Unlock()
	w := l.device.world
	if err != nil {
		if w.calm() && !l.ended() && w.mayRead(l.device.User, topic) == nil && errors.CodeOf(err) != errors.PermissionDenied && !byApplication(err) {
			w.Errorf("calm: client %d could not subscribe to %s: %v", l.device.index, topic, err)
		}
		s.ended = time.Now()
		return false
	}
	s.sub, s.confirmed = sub, time.Now()
	return true
}

// slowHandler is how long a slow handler takes.
const slowHandler = 40 * time.Millisecond

// byApplication reports whether the application has closed the connection.
func byApplication(err error) bool { return strings.Contains(err.Error(), disconnectReason) }

// unsubscribe ends one of a client's subscriptions, after the time For.
func (w *world) unsubscribe(s step) {
	l := w.clients[s.Client].life()
	if l == nil {
		return
	}
	w.begin(func() {
		time.Sleep(s.For)
		l.unsubscribe(s.N)
	})
}

func (l *life) unsubscribe(n int) {
	l.mu.Lock()
	watches := l.watches
	l.mu.Unlock()
	if len(watches) == 0 {
		return
	}
	watch := watches[n%len(watches)]
	watch.mu.Lock()
	sub := watch.sub
	watch.mu.Unlock()
	if sub == nil {
		return
	}
	sub.Unsubscribe()
	watch.mu.Lock()
	defer watch.mu.Unlock()
	if watch.unsubscribed.IsZero() {
		watch.unsubscribed = time.Now()
	}
}

// publish makes a node publish N items, one after the other.
func (w *world) publish(s step) {
	if w.app(s.Node) == nil {
		return
	}
	w.begin(func() {
		for range s.N {
			w.publishItem(s)
		}
	})
}

// publishItem makes a node publish an item, or a setting to a topic with states, if the node runs.
func (w *world) publishItem(s step) {
	a := w.app(s.Node)
	if a == nil {
		return
	}
	ctx, cancel := timeout(20 * time.Second)
	defer cancel()
	id := w.newID("i")
	if family(s.Topic) == "state" {
		_ = a.publish(ctx, s.Topic, setting{ID: id, Key: "key" + id[len(id)-1:]}, id)
		return
	}
	_ = a.publish(ctx, s.Topic, item{ID: id}, id)
}

// checkWatch compares what a subscription has received with what was published.
func (w *world) checkWatch(s *watch) {
	s.mu.Lock()
	happened := s.happened
	s.mu.Unlock()
	name := fmt.Sprintf("client %d (%s), %s since %v", s.life.device.index, s.life.device.User, s.topic, s.asked.Sub(w.began))
	seen := map[string]bool{}
	lost, latest := false, w.asksForLatest(s)
	for _, h := range happened {
		if h.loss != nil {
			lost = true
			if latest {
				clear(seen) // "the latest publications follow, which replace those that the client has"
			}
			if w.calm() && family(s.topic) != "short" {
				w.Errorf("calm: %s: a loss is reported: %+v", name, *h.loss)
			}
			continue
		}
		once := hasHistory(s.topic) && !w.storedTwice(s.topic, h.id) || w.calm() // others are delivered at most once on each connection
		if seen[h.id] && !h.isState && once {
			w.Errorf("%s: received %s twice", name, h.id)
		}
		seen[h.id] = true
		if w.calm() && w.mustNotReceive(s, h) {
			w.Errorf("calm: %s: received %s, which is for others", name, h.id)
		}
		w.checkReceived(name, s, h)
	}
	if hasHistory(s.topic) {
		w.checkOrder(name, s, happened)
		w.checkComplete(name, s, seen, lost)
	}
}

// checkReceived compares a publication with what the application knows of it.
func (w *world) checkReceived(name string, s *watch, h happening) {
	w.mu.Lock()
	p := w.byID[h.id]
	w.mu.Unlock()
	switch {
	case p == nil:
		w.Errorf("%s: received %q, which was never published", name, h.id)
	case p.topic != s.topic:
		w.Errorf("%s: received %s, which was published to %s", name, h.id, p.topic)
	case !p.mayExist():
		w.Errorf("%s: received %s, though publishing it failed with %v", name, h.id, p.err)
	case p.acknowledged() && hasHistory(s.topic) && (!w.sameEpoch(p.position.Epoch, h.position.Epoch) || p.position.Offset != h.position.Offset) && !w.storedTwice(s.topic, p.id):
		w.Errorf("%s: received %s at %v, but its publisher has the position %v", name, h.id, h.position, p.position)
	}
}

// checkOrder checks that offsets rise by one, unless a loss explains the gap.
func (w *world) checkOrder(name string, s *watch, happened []happening) {
	last := s.since
	known := last.Epoch != ""
	for i, h := range happened {
		if h.loss != nil {
			if h.loss.To != 0 && known && h.loss.From != last.Offset+1 && h.loss.Ended == nil && !w.isForOthers(s, last, h.loss.From) {
				w.Errorf("%s: the loss %+v follows %v", name, *h.loss, last)
			}
			last, known = h.loss.Position, h.loss.Position.Epoch != "" && family(s.topic) != "state" // which it requests again
			continue
		}
		if h.isState {
			continue
		}
		if known && (h.position.Offset != last.Offset+1 || h.position.Epoch != last.Epoch) && !w.isForOthers(s, last, h.position.Offset) {
			w.Errorf("%s: received %s at %v after %v, happening %d", name, h.id, h.position, last, i)
		}
		last, known = h.position, true
	}
}

// checkComplete checks that the subscription has received what was published while it existed.
func (w *world) checkComplete(name string, s *watch, seen map[string]bool, lost bool) {
	s.mu.Lock()
	confirmed := s.confirmed
	s.mu.Unlock()
	if confirmed.IsZero() || lost { // what was lost is compared by offsets
		return
	}
	over := s.over()
	own := w.ownForOthers(s)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.publications {
		if slices.Contains(own, p) {
			continue
		}
		if p.topic == s.topic && p.acknowledged() && p.begun.After(confirmed) && over.Sub(p.ended) > deliveryTime && !seen[p.id] {
			w.Errorf("%s: did not receive %s, published from %v to %v by %v at %v", name, p.id, p.begun.Sub(w.began), p.ended.Sub(w.began), p.app, p.position)
		}
	}
}

// ownForOthers returns what handlers have published to the topic of a subscription that their caller does not receive, because the
// caller is this client. It may receive them if it has another connection then.
func (w *world) ownForOthers(s *watch) (all []*publication) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range record[*callsRecord](w).calls {
		if p := w.byID[c.id]; c.others && c.device == s.life.device.index && p != nil && p.topic == s.topic {
			all = append(all, p)
		}
	}
	return all
}

// isForOthers reports whether all between a position and an offset may be what only others receive.
func (w *world) isForOthers(s *watch, after client.Position, before uint64) bool {
	own := w.ownForOthers(s)
	for offset := after.Offset + 1; offset < before; offset++ {
		if !slices.ContainsFunc(own, func(p *publication) bool {
			return !p.acknowledged() || p.position.Offset == offset && w.sameEpoch(p.position.Epoch, after.Epoch)
		}) {
			return false
		}
	}
	return after.Offset+1 < before
}

// mustNotReceive reports whether a publication is for others: it has arrived on the connection on which the client has called the
// handler that has published it, and long before that ended.
func (w *world) mustNotReceive(s *watch, h happening) bool {
	w.mu.Lock()
	i := slices.IndexFunc(record[*callsRecord](w).calls, func(c *call) bool { return c.id == h.id && c.others && c.device == s.life.device.index })
	if i < 0 {
		w.mu.Unlock()
		return false
	}
	begun := record[*callsRecord](w).calls[i].begun
	w.mu.Unlock()
	s.life.mu.Lock()
	defer s.life.mu.Unlock()
	return slices.ContainsFunc(s.life.conns, func(c span) bool {
		return c.from.Before(begun) && (c.to.IsZero() || c.to.Sub(h.at) > time.Second)
	})
}

// deliveryTime is longer than a publication needs to reach a subscriber after all faults have ended, with every retry and
// reconnect: "A connected subscriber sees each publication" has no bound in the guarantees, so only what exists
// until the end of the simulation, or much longer than that, must have it.
const deliveryTime = 4 * time.Minute
