package cluster

import (
	"sync"
	"time"
)

// A subscription is a topic that the node subscribes to.
type subscription struct {
	topic   string
	channel Channel

	// mu is held while functions of the Handler are called for the topic, and guards what follows.
	mu        sync.Mutex
	confirmed time.Time
	inEffect  bool // the engine has confirmed the subscription and not interrupted it since
	reported  bool // Subscribed was called
	trackers  map[string]*sequenceTracker

	// Losses that are not reported yet. They are reported lossDelay after the first of them was
	// detected, and lossDelay after the subscription works again.
	reportAt time.Time // zero if there are none
	lost     int       // packets
	unknown  bool      // more packets than lost may be lost

	// covered is the number of each peer's last heartbeat before the last report. Packets
	// numbered before that heartbeat were published before the report.
	covered map[string]uint64
}

// lossDelay is longer than heartbeatInterval, so that a heartbeat of each peer arrives before a
// loss is reported, and losses that packets reveal later can be compared with it.
const lossDelay = heartbeatInterval + heartbeatInterval/4

// subscriptions are those of one node, by name of the channel.
type subscriptions struct {
	mu        sync.RWMutex
	byChannel map[string]*subscription
}

func (ss *subscriptions) find(channel string) *subscription {
	ss.mu.RLock()
	defer ss.mu.RUnlock()
	return ss.byChannel[channel]
}

// all returns the subscriptions in no particular order.
func (ss *subscriptions) all() []*subscription {
	ss.mu.RLock()
	defer ss.mu.RUnlock()
	all := make([]*subscription, 0, len(ss.byChannel))
	for _, sub := range ss.byChannel {
		all = append(all, sub)
	}
	return all
}

// Subscribe requests the packets that other nodes publish on topic.
func (s *Node) Subscribe(topic string) {
	if s.closed.Load() {
		return
	}
	channel := s.engine.Channel(TopicChannel, topic)
	// The lock of a subscription may be held for as long as the Handler runs, so an old
	// subscription is replaced rather than changed.
	sub := &subscription{topic: topic, channel: channel, trackers: map[string]*sequenceTracker{}}
	s.subs.mu.Lock()
	defer s.subs.mu.Unlock() // held for the call of the engine, so that calls are in order
	s.subs.byChannel[channel.Name] = sub
	s.link.SetSubscribed(channel, true)
}

// Unsubscribe undoes Subscribe.
func (s *Node) Unsubscribe(topic string) {
	if s.closed.Load() {
		return
	}
	channel := s.engine.Channel(TopicChannel, topic)
	s.subs.mu.Lock()
	defer s.subs.mu.Unlock()
	delete(s.subs.byChannel, channel.Name)
	s.link.SetSubscribed(channel, false)
}

// confirmedTopic handles the confirmation of a subscription by the engine.
func (s *Node) confirmedTopic(sub *subscription) {
	sub.mu.Lock()
	defer sub.mu.Unlock()
	sub.inEffect, sub.confirmed = true, time.Now()
	if !sub.reported {
		sub.reported = true
		s.gate.Do(func() { s.handler.Subscribed(sub.topic) })
	}
	if !sub.reportAt.IsZero() {
		sub.reportAt = time.Now().Add(lossDelay)
	}
}

// interruptedTopic records a possible loss.
func (sub *subscription) interruptedTopic() {
	sub.mu.Lock()
	defer sub.mu.Unlock()
	if !sub.inEffect {
		return
	}
	sub.inEffect = false
	sub.recordLoss(0)
	for _, t := range sub.trackers {
		t.behind = true
	}
}

// recordLoss records lost packets, or an unknown number of them if packets is 0.
func (sub *subscription) recordLoss(packets int) {
	if sub.reportAt.IsZero() {
		sub.reportAt = time.Now().Add(lossDelay)
	}
	sub.lost += packets
	sub.unknown = sub.unknown || packets == 0
}

// deliver passes a packet to the handler and records the losses that it reveals.
func (s *Node) deliver(sub *subscription, m *nodeMessage) {
	sub.mu.Lock()
	defer sub.mu.Unlock()
	t := sub.trackers[m.from]
	if t == nil || t.early && t.isNew(m) {
		t = &sequenceTracker{epoch: m.epoch, next: m.number, first: m.number, early: sub.confirmed.IsZero()}
		sub.trackers[m.from] = t
		if m.number > 0 && !t.early && s.peers.wasKnown(m.from, sub.confirmed, m.previousBeat) {
			sub.recordLoss(0)
		}
	}
	f := t.track(m)
	// A packet numbered before a heartbeat that arrived before the last report was published
	// before that report, which covers it.
	if f.isNew && (f.missing > 0 || f.unknown) && m.previousBeat >= sub.covered[m.from] {
		if f.unknown {
			f.missing = 0
		}
		sub.recordLoss(f.missing)
	}
	if f.isNew && m.kind == kindPacket {
		s.gate.Do(func() { s.handler.Receive(sub.topic, m.from, m.packet) })
	}
}

// reportLosses reports the losses of all topics that are due. A topic whose subscription is
// interrupted waits until it works again.
func (s *Node) reportLosses() {
	var beats map[string]uint64
	for _, sub := range s.subs.all() {
		sub.mu.Lock()
		if sub.inEffect && !sub.reportAt.IsZero() && time.Now().After(sub.reportAt) {
			if beats == nil {
				beats = s.peers.beats()
			}
			s.reportLoss(sub, beats)
		}
		sub.mu.Unlock()
	}
}

func (s *Node) reportLoss(sub *subscription, beats map[string]uint64) {
	packets := sub.lost
	if sub.unknown {
		packets = 0
	}
	sub.lost, sub.unknown, sub.reportAt, sub.covered = 0, false, time.Time{}, beats
	if packets == 0 {
		s.gate.Do(func() { s.handler.Subscribed(sub.topic) })
	}
	s.gate.Do(func() { s.handler.MessagesLost(sub.topic, packets) })
}

// forgetTrackers removes the trackers of a peer.
func (s *Node) forgetTrackers(name string) {
	for _, sub := range s.subs.all() {
		sub.mu.Lock()
		delete(sub.trackers, name)
		sub.mu.Unlock()
	}
}
