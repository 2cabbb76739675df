package topic

import (
	"container/list"
	"sync"

	"github.com/penstock-go/penstock/internal/protocol"
)

// This file keeps the changes of presence that wait for the application. Connections may come and
// go faster than it takes them: if many wait, a change that undoes the latest waiting one of its
// member removes it instead, so no more wait than there are members.

// maxExactPresence is how many changes wait before they are merged.
const maxExactPresence = 1024

// waitingChanges are the changes that wait.
type waitingChanges struct {
	mu        sync.Mutex // may be acquired under Topic.mu; nothing is called under it
	waiting   list.List  // of *waitingPresence
	latest    map[topicMember]*list.Element
	scheduled bool // PresenceWaits has been called, and next has not returned false since then
}

type topicMember struct {
	topic, connID string
}

// A PresenceEvent is a member that has joined a topic or left it.
type PresenceEvent struct {
	Topic  string
	Member protocol.Member
	Joined bool
}

// A waitingPresence is a change that next has not returned.
type waitingPresence struct {
	PresenceEvent

	of       topicMember
	previous *list.Element // of the same member; nil if there was none
	reported bool          // it does not wait any more
}

// add adds a change, and reports whether PresenceWaits must be called.
func (q *waitingChanges) add(event PresenceEvent) (schedule bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	of := topicMember{event.Topic, event.Member.ConnID}
	previous := q.latest[of]
	if q.waiting.Len() >= maxExactPresence && previous != nil && undoes(event, previous) {
		q.waiting.Remove(previous)
		q.setLatest(of, previous.Value.(*waitingPresence).previous)
		return false
	}
	q.setLatest(of, q.waiting.PushBack(&waitingPresence{PresenceEvent: event, of: of, previous: previous}))
	schedule = !q.scheduled
	q.scheduled = true
	return schedule
}

// undoes reports whether a change and the waiting one before it have no effect together.
func undoes(e PresenceEvent, waiting *list.Element) bool {
	w := waiting.Value.(*waitingPresence)
	return w.Joined && !e.Joined || e.Joined && !w.Joined && w.Member == e.Member
}

// setLatest sets the latest change of a member that waits.
func (q *waitingChanges) setLatest(of topicMember, e *list.Element) {
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
func (q *waitingChanges) next() (event PresenceEvent, ok bool) {
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

// NextPresence removes the first change that waits for the application. It reports false if none
// waits: PresenceWaits is called again when there is one.
func (ts *Topics) NextPresence() (event PresenceEvent, ok bool) { return ts.events.next() }
