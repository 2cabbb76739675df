package router

import (
	"container/list"
	"sync"
)

// This file keeps the calls of Options.OnPresence that wait. Connections may come and go faster than the
// hook returns: if many calls wait, a change that undoes the latest waiting one of its member removes it
// instead, so no more wait than there are members.

// maxExactPresence is how many calls wait before changes are merged.
const maxExactPresence = 1024

// presenceEvents are the changes that wait.
type presenceEvents struct {
	mu        sync.Mutex // may be acquired under topic.mu; nothing is called under it
	waiting   list.List  // of *waitingPresence
	latest    map[topicMember]*list.Element
	scheduled bool // r.events has a call of reportPresence
}

type topicMember struct {
	topic, connID string
}

// A waitingPresence is a change for which the hook has not been called.
type waitingPresence struct {
	PresenceEvent

	of       topicMember
	previous *list.Element // of the same member; nil if there was none
	reported bool          // it does not wait any more
}

// add adds a change, and reports whether reportPresence must be scheduled.
func (q *presenceEvents) add(topic string, c presenceChange) (schedule bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	of := topicMember{topic, c.member.ConnID}
	previous := q.latest[of]
	if q.waiting.Len() >= maxExactPresence && previous != nil && undoes(c, previous) {
		q.waiting.Remove(previous)
		q.setLatest(of, previous.Value.(*waitingPresence).previous)
		return false
	}
	event := PresenceEvent{Topic: topic, Member: c.member, Joined: c.joined}
	q.setLatest(of, q.waiting.PushBack(&waitingPresence{PresenceEvent: event, of: of, previous: previous}))
	schedule = !q.scheduled
	q.scheduled = true
	return schedule
}

// undoes reports whether a change and the waiting one before it have no effect together.
func undoes(c presenceChange, waiting *list.Element) bool {
	w := waiting.Value.(*waitingPresence)
	return w.Joined && !c.joined || c.joined && !w.Joined && w.Member == c.member
}

// setLatest sets the latest change of a member that waits.
func (q *presenceEvents) setLatest(of topicMember, e *list.Element) {
	switch {
	case e == nil || e.Value.(*waitingPresence).reported:
		delete(q.latest, of)
	case q.latest == nil:
		q.latest = map[topicMember]*list.Element{of: e}
	default:
		q.latest[of] = e
	}
}

// next removes the first change. It reports whether there is one.
func (q *presenceEvents) next() (event PresenceEvent, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	e := q.waiting.Front()
	if e == nil {
		q.scheduled = false
		return PresenceEvent{}, false
	}
	w := q.waiting.Remove(e).(*waitingPresence)
	w.reported, w.previous = true, nil
	if q.latest[w.of] == e {
		delete(q.latest, w.of)
	}
	return w.PresenceEvent, true
}

// reportPresence calls Options.OnPresence once, and goes on behind what waits in r.events.
func (r *Router) reportPresence() {
	event, ok := r.presenceEvents.next()
	if !ok {
		return
	}
	defer r.events.Add(r.reportPresence) // even if the hook calls runtime.Goexit
	r.hook("OnPresence", func() { r.opts.OnPresence(event) })
}
