package presence

import (
	"iter"
	"slices"

	"github.com/penstock-go/penstock/internal/protocol"
)

// A feed has the changes of the members for the clients that asked for them. A message has the effect of the changes of
// FeedDelay.
type feed[C comparable] struct {
	watchers  map[C]*watcher
	changes   []Change // that some watchers have not received
	first     uint64   // number of changes[0]; changes are numbered in order
	scheduled bool     // Members.Next will be called
}

// A watcher is a client that asked for presence.
type watcher struct {
	rest []protocol.Member // of the members when the client asked, those that it has not received
	next uint64            // number of the first change that it has not received
	held bool              // the answer to the client is not queued yet, and nothing must precede it
}

const (
	// maxBatch bounds the members in a message, and so its size. Further members follow after FeedDelay,
	// so the send queue can be emptied in between.
	maxBatch = 256

	// maxBatchChanges bounds the changes whose effect is in a message, and so the time that Next takes.
	// It is much more than maxBatch, because clients that join and leave all the time cause changes
	// faster than messages are sent.
	maxBatchChanges = 8192
)

// end returns the number of the next change.
func (f *feed[C]) end() uint64 { return f.first + uint64(len(f.changes)) }

// Watch registers a client for the changes that follow. It returns the members, or the first maxBatch of
// them; the others are sent as joined. Nothing is sent before StartFeed is called. Watching again starts again.
// Track must have been called.
func (p *Members[C]) Watch(c C) []protocol.Member {
	if p.feed == nil {
		p.feed = &feed[C]{watchers: map[C]*watcher{}}
	}
	all := p.All()
	n := min(len(all), maxBatch)
	p.feed.watchers[c] = &watcher{rest: all[n:], next: p.feed.end(), held: true}
	return all[:n:n]
}

// Unwatch undoes Watch.
func (p *Members[C]) Unwatch(c C) {
	if p.feed == nil {
		return
	}
	if delete(p.feed.watchers, c); len(p.feed.watchers) == 0 {
		p.feed.first, p.feed.changes = p.feed.end(), nil
	}
}

// StartFeed starts to send to a watcher, whose answer has been queued.
func (p *Members[C]) StartFeed(c C) (e Effects) {
	if p.feed == nil || p.feed.watchers[c] == nil {
		return e
	}
	w := p.feed.watchers[c]
	w.held = false
	e.SendFeed = p.feed.hasMore(w) && p.feed.schedule()
	return e
}

// add records a change for the watchers. It reports whether Next must be called later.
func (f *feed[C]) add(c Change) (schedule bool) {
	if len(f.watchers) == 0 {
		return false
	}
	f.changes = append(f.changes, c)
	return f.schedule()
}

// schedule reports whether Next must be called later, which it assumes to happen then.
func (f *feed[C]) schedule() (ok bool) {
	ok = !f.scheduled
	f.scheduled = true
	return ok
}

// hasMore reports whether there is something to send to a watcher that is not held.
func (f *feed[C]) hasMore(w *watcher) bool { return !w.held && (len(w.rest) > 0 || w.next < f.end()) }

// Next iterates over the watchers that are not held, with the next message for each, which counts as sent. Watchers
// that receive the same share a message. The messages are without the name of the topic. EndNext must follow, even if
// the iteration has ended early.
func (p *Members[C]) Next() iter.Seq2[C, *protocol.PresenceChanged] {
	return func(yield func(C, *protocol.PresenceChanged) bool) {
		batches := map[uint64]batch{}
		for c, w := range p.feed.watchers {
			if m := p.feed.next(w, batches); m != nil && !yield(c, m) {
				return
			}
		}
	}
}

// EndNext removes what all watchers have received. With SendFeed, there is more to send.
func (p *Members[C]) EndNext() (e Effects) {
	e.SendFeed = p.feed.trim()
	p.feed.scheduled = e.SendFeed
	return e
}

// A batch is the effect of changes.
type batch struct {
	message *protocol.PresenceChanged // nil if the changes have no effect
	next    uint64                    // the number of the change that follows
}

// next returns the next message for a watcher, or nil, and counts it as sent. batches are those that begin with the
// change of a number.
func (f *feed[C]) next(w *watcher, batches map[uint64]batch) *protocol.PresenceChanged {
	switch {
	case !f.hasMore(w):
		return nil
	case len(w.rest) > 0:
		n := min(len(w.rest), maxBatch)
		members := w.rest[:n]
		w.rest = w.rest[n:]
		return &protocol.PresenceChanged{Joined: members, Left: []protocol.Member{}}
	}
	b, ok := batches[w.next]
	if !ok {
		b = f.batch(w.next)
		batches[w.next] = b
	}
	w.next = b.next
	return b.message
}

// trim removes the changes that all watchers have received. It reports whether there is more to
// send to a watcher that is not held.
func (f *feed[C]) trim() (more bool) {
	oldest := f.end()
	for _, w := range f.watchers {
		oldest = min(oldest, w.next)
		more = more || f.hasMore(w)
	}
	f.changes = slices.Delete(f.changes, 0, int(oldest-f.first))
	f.first = oldest
	return more
}

// An effect is what successive changes of a member amount to. A member whose first change is
// that it has joined was absent before, and the other way around.
type effect struct{ first, last Change }

// left and joined report whether the member is reported as such. One that has left and joined again
// unchanged is reported as neither.
func (e effect) left() bool   { return !e.first.Joined && !e.unchanged() }
func (e effect) joined() bool { return e.last.Joined && !e.unchanged() }

func (e effect) unchanged() bool {
	return !e.first.Joined && e.last.Joined && e.first.Member == e.last.Member
}

// size returns how often the member is in the message.
func (e effect) size() (n int) {
	if e.left() {
		n++
	}
	if e.joined() {
		n++
	}
	return n
}

// batch returns the effect of the changes from a number on, as many as fit into a message.
func (f *feed[C]) batch(number uint64) batch {
	effects := map[string]effect{} // by Member.ConnID
	var connIDs []string           // in the order of the first changes
	members, end := 0, min(f.end(), number+maxBatchChanges)
	for ; number < end; number++ {
		change := f.changes[number-f.first]
		connID := change.Member.ConnID
		effect, known := effects[connID]
		if known {
			members -= effect.size()
		} else {
			effect.first = change
		}
		effect.last = change
		if members += effect.size(); members > maxBatch {
			break
		}
		if !known {
			connIDs = append(connIDs, connID)
		}
		effects[connID] = effect
	}
	m := &protocol.PresenceChanged{Joined: []protocol.Member{}, Left: []protocol.Member{}}
	for _, connID := range connIDs {
		e := effects[connID]
		if e.left() {
			m.Left = append(m.Left, e.first.Member)
		}
		if e.joined() {
			m.Joined = append(m.Joined, e.last.Member)
		}
	}
	if len(m.Joined)+len(m.Left) == 0 {
		return batch{nil, number}
	}
	return batch{m, number}
}
