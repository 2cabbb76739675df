package simtest

import (
	"sync"
	"time"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/client"
	"github.com/penstock-go/penstock/errors"
)

// A publication is what the application knows of something that it has published.
type publication struct {
	id, topic string
	app       *app
	begun     time.Time
	ended     time.Time // zero while Publish has not returned
	err       error
	position  broker.Position // if it was acknowledged, and the topic has a history
}

func (p *publication) acknowledged() bool { return !p.ended.IsZero() && p.err == nil }

// mayExist reports whether the publication may have been stored or sent.
func (p *publication) mayExist() bool {
	return p.ended.IsZero() || p.err == nil || errors.CodeOf(p.err) == errors.OutcomeUnknown
}

func (w *world) beginPublication(a *app, topic, id string) *publication {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := &publication{id: id, topic: topic, app: a, begun: time.Now()}
	w.publications = append(w.publications, p)
	w.byID[id] = p
	return p
}

func (w *world) endPublication(p *publication, canceled bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p.app.killed { // the outcome has reached no caller
		return
	}
	p.ended, p.err = time.Now(), err
	if w.faulty || err == nil || !p.app.Healthy() || canceled { // a node that shuts down refuses publications at the end
		return
	}
	w.Errorf("calm: publishing %s to %s failed: %v", p.id, p.topic, err)
}

// A watch is a subscription of a client, as its application sees it.
type watch struct {
	life   *life
	topic  string
	since  client.Position
	last   int
	hidden bool
	asked  time.Time // Subscribe was called
	sub    *client.Subscription

	mu           sync.Mutex
	confirmed    time.Time // Subscribe has returned without an error
	unsubscribed time.Time // Unsubscribe has returned
	ended        time.Time // the server has ended it
	endErr       error
	happened     []happening
	members      map[string]client.Member // by ConnID; of a room
	hasMembers   bool
	state        map[string]string // IDs by key; of a state
}

// A happening is a publication, a loss, or the end of what one subscription receives.
type happening struct {
	at       time.Time
	id       string // of a publication
	position client.Position
	isState  bool // the message is part of the state
	loss     *client.Loss
}

// alive reports whether the watch receives what is published now.
func (s *watch) alive() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.confirmed.IsZero() && s.unsubscribed.IsZero() && s.ended.IsZero() && !s.life.ended()
}

// over returns when the subscription ended for its application, or now.
func (s *watch) over() time.Time {
	s.life.mu.Lock()
	end := s.life.closed
	s.life.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range []time.Time{s.unsubscribed, s.ended} {
		if !t.IsZero() && (end.IsZero() || t.Before(end)) {
			end = t
		}
	}
	if end.IsZero() {
		return time.Now()
	}
	return end
}

func (s *watch) happens(h happening) {
	h.at = time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.unsubscribed.IsZero() && h.at.After(s.unsubscribed) {
		s.life.device.world.Errorf("client %d: a handler of %s runs for %q after Unsubscribe has returned", s.life.device.index, s.topic, h.id)
	}
	s.happened = append(s.happened, h)
}

// watches returns all subscriptions of all clients.
func (w *world) watches() (all []*watch) {
	for _, d := range w.clients {
		d.mu.Lock()
		for _, l := range d.lives {
			l.mu.Lock()
			all = append(all, l.watches...)
			l.mu.Unlock()
		}
		d.mu.Unlock()
	}
	return all
}
