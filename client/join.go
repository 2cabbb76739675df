//go:build !js

package client

import (
	"cmp"
	"math"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/protocol"
)

// join begins to receive publications after the position that the server has returned.
func (c *Client) join(f *feed, m *protocol.Subscribed) {
	m.Position = cmp.Or(m.Position, &protocol.Position{}) // for a topic without positions
	m.Recovery = cmp.Or(m.Recovery, &protocol.Recovery{})
	c.mu.Lock()
	defer c.mu.Unlock()
	f.live, f.joined, f.stateLeft, f.stateAt = true, true, 0, m.Offset
	switch {
	case m.More:
		f.stateLeft = math.MaxInt
	case m.State != nil:
		f.stateLeft = *m.State
	}
	f.again = f.wantsHiddenLocked() != f.hidden
	for _, s := range f.readersLocked() {
		if s != f.all && !s.asked {
			f.again = true // it was added after the request
			continue
		}
		f.again = s.joinLocked(m) || f.again
		s.readyOnce.Do(func() { close(s.ready) })
	}
	f.askAgainLocked()
}

// askAgainLocked requests the subscription again if that is necessary, when the state is complete.
func (f *feed) askAgainLocked() {
	if f.again && f.stateLeft == 0 {
		f.again = false
		f.askLocked()
	}
}

// joinLocked takes the position of an answer. It reports whether another request is necessary.
func (s *Subscription) joinLocked(m *protocol.Subscribed) (again bool) {
	c, before, position := s.feed.client, s.received, Position{m.Epoch, m.Offset}
	if onPresence := s.opts.OnPresence; onPresence != nil {
		if s.hasMembers = m.Members != nil; s.hasMembers {
			c.events.Add(func() { s.call("OnPresence", func() { onPresence(publicMembers(m.Members), nil, true) }) })
		} else {
			s.reportMissing("presence; OnPresence is not called")
		}
	}
	if s.needsLast && m.Epoch == "" {
		s.reportMissing("history; Last has no effect")
	}
	missed := s.misses(m)
	switch known := !missed && before.Epoch != "" && m.Epoch != ""; {
	case known && before.Offset > m.Offset:
		return false // others begin earlier
	case known && before.Offset < m.Offset && before != s.feed.presented:
		return true // the answer is for others, and what precedes it is missing
	case m.Ended != nil && before.Epoch == m.Ended.Epoch:
		position.Offset = max(position.Offset, min(before.Offset, m.Ended.Offset)) // others begin earlier
	}
	s.received = position
	s.takesState = s.feed.stateLeft > 0 && (s.needsState || missed || s == s.feed.all)
	s.needsState, s.needsLast = false, false
	switch {
	case missed || m.Ended != nil:
		s.loseLocked(Loss{Ended: (*Position)(m.Ended), Position: position})
		if s.opts.State && m.State == nil {
			s.received, s.needsState = Position{}, true // so that the next answer has the state
			s.feed.all.received = Position{}
			return true
		}
	case !s.takesState:
		c.events.Add(func() { s.advance(position) })
	}
	return false
}

// reportMissing reports what a topic does not have. The subscription is good for everything else.
func (s *Subscription) reportMissing(what string) {
	err := errors.Errorf(errors.FailedPrecondition, "topic %q has no %s", s.feed.topic, what)
	s.feed.client.events.Add(func() { s.feed.client.report(protocol.TypeSubscribe, err) })
}

// misses reports whether an answer says that the subscription has missed publications. If what follows an earlier position
// was requested, for others, and is gone, it says nothing about later positions.
func (s *Subscription) misses(m *protocol.Subscribed) bool {
	before, presented := s.received, s.feed.presented
	switch {
	case before.Epoch == "" || m.Epoch == "":
		return false
	case m.Ended != nil || before.Epoch != m.Epoch:
		return true
	case presented.Epoch == before.Epoch && presented.Offset < before.Offset:
		return false
	}
	return !m.Recovered || m.State != nil && presented.Epoch != ""
}

// loseLocked reports a loss, in order with the publications.
func (s *Subscription) loseLocked(l Loss) {
	s.feed.client.events.Add(func() {
		if s.opts.OnLoss != nil {
			s.call("OnLoss", func() { s.opts.OnLoss(l) })
		}
		if !s.opts.State {
			s.advance(l.Position)
		}
	})
}
