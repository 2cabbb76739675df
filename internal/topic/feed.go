package topic

import (
	"slices"
	"time"

	"github.com/penstock-go/penstock/internal/envelope"
	"github.com/penstock-go/penstock/internal/protocol"
	"github.com/penstock-go/penstock/internal/wsconn"
)

// A feed sends the changes of a topic's presence to the clients that asked for them. It
// collects the changes of presenceDelay in a message. It is guarded by the topic's lock.
type feed struct {
	watchers  map[*Subscriber]*watcher
	changes   []change // that some watchers have not received
	first     uint64   // number of changes[0]; changes are numbered in order
	scheduled bool     // a timer will call sendPresence
}

// A change is a member that has joined a topic or left it.
type change struct {
	member protocol.Member
	joined bool
}

// A watcher is a client that asked for presence.
type watcher struct {
	rest []protocol.Member // of the members when the client asked, those that it has not received
	next uint64            // number of the first change that it has not received
	held bool              // the answer to the client is not queued yet, and nothing must precede it
}

const (
	// presenceDelay is how long changes are collected. A node that leaves, or many clients that
	// connect at once, cause a few long messages instead of many short ones.
	presenceDelay = 50 * time.Millisecond

	// maxPresenceBatch bounds the members in a message, and so its size. Further members follow
	// after presenceDelay, so the send queue can be emptied in between.
	maxPresenceBatch = 256

	// maxBatchChanges bounds the changes whose effect is in a message, and so the time that the
	// topic's lock is held. It is much more than maxPresenceBatch, because clients that join and
	// leave all the time cause changes faster than messages are sent.
	maxBatchChanges = 8192
)

// end returns the number of the next change.
func (f *feed) end() uint64 { return f.first + uint64(len(f.changes)) }

// Watch registers a subscriber for the changes that follow. It returns the members, or the first
// maxPresenceBatch of them; the others are sent as joined. Nothing is sent before StartFeed is called.
// Watching again starts again.
func (ts *Topics) Watch(t *Topic, c *Subscriber) []protocol.Member {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := ts.trackLocked(t)
	if p.feed == nil {
		p.feed = &feed{watchers: map[*Subscriber]*watcher{}}
	}
	all := p.all()
	n := min(len(all), maxPresenceBatch)
	p.feed.watchers[c] = &watcher{rest: all[n:], next: p.feed.end(), held: true}
	return all[:n:n]
}

// Unwatch undoes Watch.
func (t *Topic) Unwatch(c *Subscriber) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.presence.unwatchLocked(c)
}

// unwatchLocked removes a watcher. It needs the topic's lock.
func (p *presence) unwatchLocked(c *Subscriber) {
	if p == nil || p.feed == nil {
		return
	}
	if delete(p.feed.watchers, c); len(p.feed.watchers) == 0 {
		p.feed.first, p.feed.changes = p.feed.end(), nil
	}
}

// StartFeed starts to send to a watcher, whose answer has been queued.
func (ts *Topics) StartFeed(name string, c *Subscriber) {
	t := ts.lock(name)
	if t == nil {
		return
	}
	defer t.mu.Unlock()
	f := t.feedLocked()
	if f == nil || f.watchers[c] == nil {
		return
	}
	w := f.watchers[c]
	w.held = false
	if len(w.rest) > 0 || w.next < f.end() {
		ts.schedulePresenceLocked(t)
	}
}

// feedLocked returns the presence feed, or nil if no client has asked for presence.
func (t *Topic) feedLocked() *feed {
	if t.presence == nil {
		return nil
	}
	return t.presence.feed
}

// addPresenceChangeLocked records a change for the watchers. It needs t.mu.
func (ts *Topics) addPresenceChangeLocked(t *Topic, change change) {
	f := t.feedLocked()
	if f == nil || len(f.watchers) == 0 {
		return
	}
	f.changes = append(f.changes, change)
	ts.schedulePresenceLocked(t)
}

// schedulePresenceLocked needs t.mu.
func (ts *Topics) schedulePresenceLocked(t *Topic) {
	if f := t.presence.feed; !f.scheduled {
		f.scheduled = true
		time.AfterFunc(presenceDelay, func() { ts.sendFeed(t) })
	}
}

// sendPresence sends a batch to every watcher that is not held, and schedules the next one if
// there is more. It holds the topic's lock, so that all watchers receive the changes in order;
// nothing under it blocks. The frames cannot be dropped: if one does not fit into the send queue
// of a slow client, the connection closes with 1013, because the client's members would be wrong
// from then on.
func (ts *Topics) sendPresence(t *Topic) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := t.presence.feed
	f.scheduled = false
	more := true
	defer func() {
		if more { // even if an observer has not returned
			ts.schedulePresenceLocked(t)
		}
	}()
	batches := map[batchKey]batch{}
	for c, w := range f.watchers {
		if frame := ts.nextBatch(t, c, w, batches); frame != nil {
			c.queue(frame) // closed connections are skipped
		}
	}
	for _, b := range batches {
		if b.frame != nil {
			b.frame.Release()
		}
	}
	more = f.trim()
}

// A batchKey identifies a batch of changes that several watchers receive.
type batchKey struct {
	first  uint64 // the number of the first change
	binary bool   // the format of the connections
}

// A batch is the encoded effect of changes.
type batch struct {
	frame *wsconn.Frame // nil if the changes have no effect
	next  uint64        // the number of the change that follows
}

// nextBatch returns the next frame for a watcher, or nil, and counts it as sent. Frames for
// several watchers are shared in batches.
func (ts *Topics) nextBatch(t *Topic, c *Subscriber, w *watcher, batches map[batchKey]batch) *wsconn.Frame {
	f := t.presence.feed
	switch {
	case w.held:
		return nil
	case len(w.rest) > 0:
		n := min(len(w.rest), maxPresenceBatch)
		members := w.rest[:n]
		w.rest = w.rest[n:]
		return ts.encode(c.Format, protocol.PresenceChanged{Topic: t.Name, Joined: members, Left: []protocol.Member{}})
	case w.next == f.end():
		return nil
	}
	key := batchKey{w.next, c.Format != envelope.JSON}
	b, ok := batches[key]
	if !ok {
		b = ts.encodeBatch(t, c.Format, w.next)
		batches[key] = b
	}
	w.next = b.next
	if b.frame != nil {
		b.frame.Retain()
	}
	return b.frame
}

// trim removes the changes that all watchers have received. It reports whether there is more to
// send to a watcher that is not held.
func (f *feed) trim() (more bool) {
	oldest := f.end()
	for _, w := range f.watchers {
		oldest = min(oldest, w.next)
		more = more || !w.held && (len(w.rest) > 0 || w.next < f.end())
	}
	f.changes = slices.Delete(f.changes, 0, int(oldest-f.first))
	f.first = oldest
	return more
}

// A presenceEffect is what successive changes of a member amount to. A member whose first change is
// that it has joined was absent before, and the other way around.
type presenceEffect struct{ first, last change }

// left and joined report whether the member is reported as such. One that has left and joined again
// unchanged is reported as neither.
func (e presenceEffect) left() bool   { return !e.first.joined && !e.unchanged() }
func (e presenceEffect) joined() bool { return e.last.joined && !e.unchanged() }

func (e presenceEffect) unchanged() bool {
	return !e.first.joined && e.last.joined && e.first.member == e.last.member
}

// size returns how often the member is in the message.
func (e presenceEffect) size() (n int) {
	if e.left() {
		n++
	}
	if e.joined() {
		n++
	}
	return n
}

// encodeBatch encodes the effect of the changes from a number on, as many as fit into a message.
func (ts *Topics) encodeBatch(t *Topic, f envelope.Format, number uint64) batch {
	feed := t.presence.feed
	effects := map[string]presenceEffect{} // by Member.ConnID
	var connIDs []string                   // in the order of the first changes
	members, end := 0, min(feed.end(), number+maxBatchChanges)
	for ; number < end; number++ {
		change := feed.changes[number-feed.first]
		connID := change.member.ConnID
		effect, known := effects[connID]
		if known {
			members -= effect.size()
		} else {
			effect.first = change
		}
		effect.last = change
		if members += effect.size(); members > maxPresenceBatch {
			break
		}
		if !known {
			connIDs = append(connIDs, connID)
		}
		effects[connID] = effect
	}
	m := protocol.PresenceChanged{Topic: t.Name, Joined: []protocol.Member{}, Left: []protocol.Member{}}
	for _, connID := range connIDs {
		e := effects[connID]
		if e.left() {
			m.Left = append(m.Left, e.first.member)
		}
		if e.joined() {
			m.Joined = append(m.Joined, e.last.member)
		}
	}
	if len(m.Joined)+len(m.Left) == 0 {
		return batch{nil, number}
	}
	return batch{ts.encode(f, m), number}
}
