package simtest

import (
	"slices"
	"time"

	"github.com/penstock-go/penstock/client"
)

// Clients subscribe to topics with a history and ask for the latest publications: they receive exactly the newest ones, and then
// each publication once, which checkWatch compares.
func lastFeature() feature {
	return feature{
		verbs: []verb{
			{name: "subscribeLast", weight: [3]int{6, 5, 5}, draw: func(d *draw, s *step) {
				d.client(s)
				d.topic(s, "log", "short")
				s.N = 1 + d.IntN(8)
			}, run: (*world).subscribeLast},
		},
		check: func(w *world) {
			for _, s := range w.watches() {
				if s.last > 0 {
					w.checkLast(s)
				}
			}
		},
	}
}

func (w *world) subscribeLast(s step) {
	if l := w.clients[s.Client].life(); l != nil {
		w.begin(func() { l.watch(s.Topic, &client.SubscribeOptions{Last: s.N}) })
	}
}

// checkLast compares with what a subscription has begun, if no loss has come first.
func (w *world) checkLast(s *watch) {
	s.mu.Lock()
	confirmed, happened := s.confirmed, s.happened
	s.mu.Unlock()
	if confirmed.IsZero() || len(happened) > 0 && happened[0].loss != nil {
		return
	}
	seen := map[string]bool{}
	for _, h := range happened {
		seen[h.id] = true
	}
	alone, own := w.isAlone(s, confirmed), w.ownForOthers(s)
	w.mu.Lock()
	defer w.mu.Unlock()
	older := 0 // of those that were stored before it was asked for
	for _, p := range w.publications {
		if p.topic != s.topic || !p.acknowledged() || !p.ended.Before(s.asked) || slices.Contains(own, p) {
			continue
		}
		if len(happened) > 0 && p.position.Epoch == happened[0].position.Epoch && p.position.Offset >= happened[0].position.Offset {
			older++
		}
		retained := !w.faulty && s.asked.Sub(p.begun) < historyAge-calmDeliveryTime
		if retained && w.newerLocked(p, confirmed) < min(s.last, retention(s.topic)) && !seen[p.id] {
			w.Errorf("calm: client %d: %s, subscribed at %v with the last %d: did not receive %s at %v", s.life.device.index, s.topic, s.asked.Sub(w.began), s.last, p.id, p.position)
		}
	}
	if alone && older > s.last {
		w.Errorf("client %d: %s, subscribed at %v with the last %d: received %d that are older", s.life.device.index, s.topic, s.asked.Sub(w.began), s.last, older)
	}
}

// newerLocked returns how many publications may be newer than p when a subscription was confirmed. It needs the lock of the world.
func (w *world) newerLocked(p *publication, confirmed time.Time) (n int) {
	for _, q := range w.publications {
		if q.topic == p.topic && q.begun.Before(confirmed) && q.mayExist() && (!q.acknowledged() || q.position.Offset > p.position.Offset) {
			n++
		}
	}
	return n
}

// asksForLatest reports whether any subscription of the client and topic asks for the latest publications, which all of them receive
// after a loss.
func (w *world) asksForLatest(s *watch) bool {
	return slices.ContainsFunc(w.watches(), func(other *watch) bool {
		return other.life == s.life && other.topic == s.topic && other.last > 0
	})
}

// isAlone reports whether the client had no other subscription of the topic, which might ask for more, while this one was made.
func (w *world) isAlone(s *watch, confirmed time.Time) bool {
	return !slices.ContainsFunc(w.watches(), func(other *watch) bool {
		return other != s && other.life == s.life && other.topic == s.topic && !other.asked.After(confirmed) && !other.over().Before(s.asked)
	})
}

func retention(topic string) int {
	if family(topic) == "short" {
		return shortHistory
	}
	return longHistory
}
