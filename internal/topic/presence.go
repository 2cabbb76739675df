package topic

import (
	"slices"
	"strings"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/present"
	"github.com/penstock-go/penstock/internal/protocol"
	"github.com/penstock-go/penstock/internal/topic/presence"
)

// This file passes events of topics to their presence, and does what follows from them.

// Members returns the members of a topic on all nodes, sorted by ConnID. It returns nil only without presence.
func (ts *Topics) Members(name string) []protocol.Member {
	t := ts.lock(name)
	if t == nil {
		return nil
	}
	defer t.mu.Unlock()
	if t.presence == nil {
		return nil
	}
	all := t.presence.All()
	slices.SortFunc(all, func(a, b protocol.Member) int { return strings.Compare(a.ConnID, b.ConnID) })
	return all
}

// MemberCount returns the number of members of a topic on all nodes.
func (ts *Topics) MemberCount(name string) int {
	t := ts.lock(name)
	if t == nil {
		return 0
	}
	defer t.mu.Unlock()
	if t.presence == nil {
		return 0
	}
	return t.presence.Len()
}

// Member returns the member of a connection, if that has joined.
func (t *Topic) Member(c *Subscriber) (m protocol.Member, joined bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.presence == nil {
		return protocol.Member{}, false
	}
	return t.presence.Of(c)
}

// trackLocked returns the presence of a topic, whose members on other nodes this node knows from then on.
func (ts *Topics) trackLocked(t *Topic) *presence.Members[*Subscriber] {
	if t.presence == nil {
		t.presence = new(presence.Members[*Subscriber])
	}
	if t.presence.Track() {
		ts.node.Track(t.Name)
	}
	return t.presence
}

// untrackLocked ends the presence of a topic without subscribers. It needs t.mu. Remove decreases
// Topic.subscriptions before it acquires t.mu, so local members may leave after the last subscriber.
func (ts *Topics) untrackLocked(t *Topic) {
	if t.presence == nil {
		return
	}
	if e, ends := t.presence.Untrack(); ends {
		ts.applyLocked(t, &e)
		ts.node.Untrack(t.Name)
	}
}

// JoinLocked adds a local member, or sets its info if that is empty. c must subscribe to t, and its
// lock must be held.
func (ts *Topics) JoinLocked(t *Topic, c *Subscriber, a presence.Announced) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := ts.trackLocked(t).Join(c, a)
	ts.applyLocked(t, &e)
}

// RejoinLocked replaces the member of a connection that is present in a topic, because its identity or
// its session has changed. It sets the info unless that is empty. c must subscribe to t, and its lock
// must be held. If the identity has changed, the broker reports the replacement to other nodes as
// left and joined.
func (ts *Topics) RejoinLocked(t *Topic, c *Subscriber, a presence.Announced) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.presence != nil {
		e := t.presence.Rejoin(c, a)
		ts.applyLocked(t, &e)
	}
}

// leaveLocked ends the presence of a connection, if it is present. Unless that is final, another
// connection may have its member. It needs t.mu.
func (ts *Topics) leaveLocked(t *Topic, c *Subscriber, final bool) {
	if t.presence != nil {
		e := t.presence.Leave(c, final)
		ts.applyLocked(t, &e)
	}
}

// EndPresence ends the presence of a connection that remains subscribed, if it is present.
func (ts *Topics) EndPresence(t *Topic, c *Subscriber) {
	t.mu.Lock()
	defer t.mu.Unlock()
	ts.leaveLocked(t, c, true)
}

// PresenceChanged is called when a member of another node has joined or left a topic. The topic
// may have been dropped meanwhile, and created again.
func (ts *Topics) PresenceChanged(name string, changed broker.Member, joined bool) {
	t := ts.lock(name)
	if t == nil {
		return
	}
	defer t.mu.Unlock()
	if t.presence != nil {
		e := t.presence.Changed(changed, joined)
		ts.applyLocked(t, &e)
	}
}

// Stay ends what a closed connection receives from the topic, and reports whether its member stays there for the client,
// until the time of PresenceGrace or of the session is up, or another connection has the member. away is the absence of
// the client, or nil if it leaves now. If goesOn is set, another connection may have the member already.
func (ts *Topics) Stay(t *Topic, c *Subscriber, away *present.Absence, goesOn bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.silenceLocked(c)
	if t.presence == nil {
		return false
	}
	e, mayStay := t.presence.Close(c, goesOn)
	ts.applyLocked(t, &e)
	if !mayStay || !ts.config.Away.Stay(away, t.Name, t.Pattern.PresenceGrace) {
		return false
	}
	t.presence.Stay(c, away)
	return true
}

// applyLocked does what follows from an event. It needs t.mu, so that all get the changes in order. The broker is last,
// because it may not return.
func (ts *Topics) applyLocked(t *Topic, e *presence.Effects) {
	if e.SendFeed {
		ts.scheduleFeed(t)
	}
	ts.reportLocked(t, e.Changes)
	if e.NodeIsBack != "" {
		ts.config.Away.NodeReturned(e.NodeIsBack)
	}
	for _, a := range e.Released {
		ts.config.Away.Forget(a)
	}
	for _, h := range e.Held {
		ts.holdLocked(t, h)
	}
	if e.TakenOver != nil {
		ts.config.Away.TakenOver(e.TakenOver, t.Name)
	}
	for _, a := range e.Announce {
		if a.Joined {
			ts.node.Join(t.Name, a.ID, a.Data)
		} else {
			ts.node.Leave(t.Name, a.ID)
		}
	}
}

// reportLocked passes changes to NextPresence.
func (ts *Topics) reportLocked(t *Topic, changes []presence.Change) {
	if ts.config.PresenceWaits == nil {
		return
	}
	for _, c := range changes {
		if ts.events.add(PresenceEvent{t.Name, c.Member, c.Joined}) {
			ts.config.PresenceWaits()
		}
	}
}

// holdLocked lets a member without connections stay.
func (ts *Topics) holdLocked(t *Topic, h presence.Held) {
	m := h.Member // alone, so that the closure is small
	h.Absence.Act = func(a *present.Absence, _ present.Action) {
		t.mu.Lock()
		defer t.mu.Unlock()
		e := t.presence.HoldEnded(m, a)
		ts.applyLocked(t, &e)
	}
	ts.config.Away.Hold(h.Absence, t.Name, h.For)
}
