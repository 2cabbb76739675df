package simtest

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/broker/brokertest"
	"github.com/penstock-go/penstock/errors"
)

// A storeRecord is what the steps have done to the store. The lock of the world guards it.
type storeRecord struct {
	active []*brokertest.StoreFaults // of steps that have not ended
	terms  int                       // how often the epochs of all topics have ended
	lost   bool                      // changes were lost, acknowledged ones perhaps
}

// The store fails over, restarts with and without its data, loses answers and packets, is slow, and is full.
func storeFeature() feature {
	span := func(longest time.Duration, n int) func(*draw, *step) {
		return func(d *draw, s *step) { s.N, s.For = d.IntN(n), d.span(longest) }
	}
	return feature{
		begin: func(*world) any { return &storeRecord{} },
		verbs: []verb{
			{name: "failOver", weight: [3]int{0, 2, 2}, draw: func(d *draw, s *step) { s.N = d.IntN(4) * d.IntN(4) }, run: func(w *world, s step) {
				w.loseStored(func() bool { return w.cluster.Store.FailOver(s.N) > 0 })
			}},
			{name: "failOverWhileAway", weight: [3]int{0, 3, 3}, draw: func(d *draw, s *step) {
				d.client(s)
				d.node(s)
				d.topic(s, "log", "state", "join")
				s.N, s.For = 1+d.IntN(5), d.span(20*time.Second)
			}, run: (*world).failOverWhileAway},
			{name: "storeRestart", weight: [3]int{0, 1, 1}, run: func(w *world, _ step) {
				w.fault()
				w.cluster.Store.Restart()
				w.endTerm(false)
			}},
			{name: "storeRestartEmpty", weight: [3]int{0, 1, 1}, run: func(w *world, _ step) {
				w.loseStored(func() bool { w.cluster.Store.RestartEmpty(); return true })
			}},
			{name: "storeFaults", weight: [3]int{0, 4, 4}, draw: span(40*time.Second, len(kindsOfFaults)), run: func(w *world, s step) { w.disturbStore(kindsOfFaults[s.N], s.For) }},
			{name: "storeFull", weight: [3]int{0, 1, 1}, draw: span(10*time.Second, 1), run: func(w *world, s step) {
				w.disturbStore(brokertest.StoreFaults{Full: true}, s.For)
			}},
		},
		check: (*world).checkStore,
	}
}

// kindsOfFaults are the faults of a storeFaults step, by its N.
var kindsOfFaults = []brokertest.StoreFaults{
	{LostAnswers: 0.3},
	{LostDeliveries: 0.3},
	{LostPackets: 0.2, RepeatedPackets: 0.2},
	{Slow: 800 * time.Millisecond},
	{LostAnswers: 0.1, LostDeliveries: 0.1, LostPackets: 0.1, RepeatedPackets: 0.1, Slow: 100 * time.Millisecond},
}

// failOverWhileAway makes the store lose publications that a client may have received, and use their offsets again while the
// client is away for the time For.
func (w *world) failOverWhileAway(s step) {
	host := w.clients[s.Client].host
	w.begin(func() {
		for range 2 * s.N {
			w.publishItem(s)
		}
		w.fault()
		w.cluster.Cut(host)
		w.cluster.Stall(host, s.For)
		w.loseStored(func() bool { return w.cluster.Store.FailOver(s.N) > 0 })
		for range 2 * s.N {
			w.publishItem(s)
		}
	})
}

// loseStored interrupts the store. The function reports whether the store has lost what it had stored. In half of the plans, the
// store keeps everything, so that what is stored can be compared with what clients have learned.
func (w *world) loseStored(interrupt func() bool) {
	if w.plan.Seed%2 == 1 {
		return
	}
	w.fault()
	w.endTerm(interrupt())
}

// endTerm notes that the epochs of all topics have ended, and whether something was lost.
func (w *world) endTerm(lost bool) {
	r := record[*storeRecord](w)
	w.mu.Lock()
	defer w.mu.Unlock()
	r.terms++
	r.lost = r.lost || lost
}

// sameEpoch reports whether a publication that was stored in one epoch may be received in another: what a store has kept when an
// epoch ended is part of the next one, with the same offset.
func (w *world) sameEpoch(stored, received string) bool {
	return stored == received || record[*storeRecord](w).terms > 0
}

// disturbStore adds faults to those that the store has already, for a time.
func (w *world) disturbStore(f brokertest.StoreFaults, d time.Duration) {
	w.fault()
	r := record[*storeRecord](w)
	w.changeFaults(func() { r.active = append(r.active, &f) })
	w.begin(func() {
		time.Sleep(d)
		w.changeFaults(func() {
			r.active = slices.DeleteFunc(r.active, func(other *brokertest.StoreFaults) bool { return other == &f })
		})
	})
}

func (w *world) changeFaults(change func()) {
	r := record[*storeRecord](w)
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
	var all brokertest.StoreFaults
	for _, f := range r.active {
		all.LostAnswers = max(all.LostAnswers, f.LostAnswers)
		all.LostDeliveries = max(all.LostDeliveries, f.LostDeliveries)
		all.LostPackets = max(all.LostPackets, f.LostPackets)
		all.RepeatedPackets = max(all.RepeatedPackets, f.RepeatedPackets)
		all.Slow = max(all.Slow, f.Slow)
		all.Full = all.Full || f.Full
	}
	w.cluster.Store.SetFaults(all)
}

// A truth is what the store has ever had of a topic.
type truth struct {
	stored  []broker.Publication
	dropped map[broker.Position]bool
}

func (w *world) truth(topic string) *truth {
	t := &truth{stored: w.cluster.Store.Stored(topic), dropped: map[broker.Position]bool{}}
	for _, p := range w.cluster.Store.Dropped(topic) {
		t.dropped[p.Position] = true
	}
	return t
}

// lastOffset returns the offset of the last publication that the store still has, or had before it expired.
func (t *truth) lastOffset() uint64 {
	for _, p := range slices.Backward(t.stored) {
		if !t.dropped[p.Position] {
			return p.Position.Offset
		}
	}
	return 0
}

// copies returns where the publication with an ID was stored, without and with those that the store has lost.
func (t *truth) copies(id string) (kept, all []broker.Position) {
	name := []byte(fmt.Sprintf("%q", id))
	for _, p := range t.stored {
		if !bytes.Contains(p.Packet, name) {
			continue
		}
		all = append(all, p.Position)
		if !t.dropped[p.Position] {
			kept = append(kept, p.Position)
		}
	}
	return kept, all
}

// storedTwice reports whether the store has lost a publication and stored a retry of it: "a key may be stored again,
// since it was lost, too".
func (w *world) storedTwice(topic, id string) bool {
	kept, all := w.truth(topic).copies(id)
	return len(kept) <= 1 && len(all) > 1
}

// checkStore compares the store with what publishers know, and with what subscribers have received.
func (w *world) checkStore() {
	truths := map[string]*truth{}
	for _, topic := range w.cluster.Store.Topics() {
		truths[topic] = w.truth(topic)
		w.checkOffsets(topic, truths[topic])
	}
	w.mu.Lock()
	publications := w.publications
	w.mu.Unlock()
	for _, p := range publications {
		if hasHistory(p.topic) {
			w.checkStored(p, truths[p.topic])
		}
	}
	for _, s := range w.watches() {
		if hasHistory(s.topic) {
			w.checkPositions(s, truths[s.topic])
		}
	}
}

// checkOffsets checks that offsets rise by one in each epoch: the first one of an epoch follows the last one that the
// store has kept of the epochs before it.
func (w *world) checkOffsets(topic string, t *truth) {
	for i, p := range t.stored {
		if i > 0 && t.stored[i-1].Position.Epoch == p.Position.Epoch && t.stored[i-1].Position.Offset+1 != p.Position.Offset {
			w.Errorf("the store has %v of %s after %v", p.Position, topic, t.stored[i-1].Position)
		}
	}
}

// checkStored checks that a publication is stored as often as its publisher has learned: once at its position, once
// or not at all, or not.
func (w *world) checkStored(p *publication, t *truth) {
	if t == nil {
		t = &truth{}
	}
	kept, all := t.copies(p.id)
	code := errors.CodeOf(p.err)
	switch {
	case len(kept) > 1:
		w.Errorf("%s of %s is stored %d times, at %v", p.id, p.topic, len(kept), kept)
	case len(all) > 1 && !record[*storeRecord](w).lost:
		w.Errorf("%s of %s was stored at %v", p.id, p.topic, all)
	case p.acknowledged() && !slices.Contains(all, p.position):
		w.Errorf("%s of %s is acknowledged at %v, and was stored at %v", p.id, p.topic, p.position, all)
	case !p.mayExist() && len(all) > 0:
		w.Errorf("%s of %s is stored at %v, though publishing it failed with %s: %v", p.id, p.topic, all, code, p.err)
	}
}

// checkPositions checks that the publications that a subscription has received are those of the store, and that
// it has reached the last one if it still exists.
func (w *world) checkPositions(s *watch, t *truth) {
	if t == nil {
		t = &truth{}
	}
	name := fmt.Sprintf("client %d, %s since %v", s.life.device.index, s.topic, s.asked.Sub(w.began))
	alive := s.alive()
	s.mu.Lock()
	happened := s.happened
	s.mu.Unlock()
	last := s.since
	for _, h := range happened {
		if h.loss != nil {
			last = h.loss.Position
			if family(s.topic) == "state" {
				last.Epoch = "" // it requests the state again, at a position that it does not report
			}
			continue
		}
		if !h.isState {
			last = h.position
		}
		at := broker.Position{Epoch: h.position.Epoch, Offset: h.position.Offset}
		if _, all := t.copies(h.id); !slices.ContainsFunc(all, func(p broker.Position) bool { return p.Offset == at.Offset && w.sameEpoch(p.Epoch, at.Epoch) }) {
			w.Errorf("%s: received %s at %v, it was stored at %v", name, h.id, at, all)
		}
	}
	if alive && last.Epoch != "" && last.Offset != t.lastOffset() && !w.isForOthers(s, last, t.lastOffset()+1) {
		w.Errorf("%s: has reached %v, and the last publication has the offset %d", name, last, t.lastOffset())
	}
}
