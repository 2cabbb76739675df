package simtest

import (
	"fmt"
	"maps"
	"time"

	"github.com/penstock-go/penstock/client"
)

// Topics whose publications have keys: when all is quiet, a subscriber with the state has the last publication of each key.
func statesFeature() feature {
	return feature{
		verbs: []verb{
			{name: "subscribeState", weight: [3]int{5, 5, 5}, draw: func(d *draw, s *step) { d.client(s); d.topic(s, "state") }, run: (*world).subscribeState},
			{name: "set", weight: [3]int{8, 8, 8}, draw: func(d *draw, s *step) {
				d.node(s)
				d.topic(s, "state")
				s.N = d.IntN(6)
			}, run: (*world).set},
		},
		check: (*world).checkStates,
	}
}

func (w *world) subscribeState(s step) {
	l := w.clients[s.Client].life()
	if l == nil {
		return
	}
	w.begin(func() {
		var watch *watch
		ready := make(chan struct{})
		opts := &client.SubscribeOptions{State: true}
		opts.Handlers = []client.Handler{client.HandlerFor(func(m setting, r *client.Received) {
			<-ready
			watch.happens(happening{id: m.ID, position: r.Position, isState: r.State})
			watch.mu.Lock()
			watch.state[m.Key] = m.ID
			watch.mu.Unlock()
		})}
		watch = l.prepare(s.Topic, opts)
		onLoss := opts.OnLoss
		opts.OnLoss = func(loss client.Loss) {
			watch.mu.Lock()
			clear(watch.state) // the whole state follows
			watch.mu.Unlock()
			onLoss(loss)
		}
		close(ready)
		watch.subscribe(opts)
	})
}

func (w *world) set(s step) {
	a := w.app(s.Node)
	if a == nil {
		return
	}
	id := w.newID("s")
	w.begin(func() {
		ctx, cancel := timeout(20 * time.Second)
		defer cancel()
		_ = a.publish(ctx, s.Topic, setting{ID: id, Key: fmt.Sprintf("key%d", s.N)}, id)
	})
}

// checkStates compares the states of clients with that of the store.
func (w *world) checkStates() {
	for _, topic := range []string{"state/1", "state/2"} {
		ctx, cancel := timeout(time.Minute)
		messages, _, err := w.app(1).ReadState(ctx, topic)
		cancel()
		if err != nil {
			w.Errorf("the state of %s cannot be read: %v", topic, err)
			continue
		}
		want := map[string]string{}
		for _, m := range messages {
			var s setting
			if err := m.Decode(&s); err != nil {
				w.Errorf("the state of %s cannot be decoded: %v", topic, err)
			}
			want[s.Key] = s.ID
		}
		for _, s := range w.watches() {
			if s.topic != topic || !s.alive() {
				continue
			}
			s.mu.Lock()
			if !maps.Equal(s.state, want) {
				w.Errorf("client %d: the state of %s is %v; it should be %v", s.life.device.index, topic, s.state, want)
			}
			s.mu.Unlock()
		}
	}
}
