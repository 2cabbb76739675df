package router

import (
	"slices"
	"time"

	"github.com/penstock-go/penstock/internal/wsconn"
)

// A presenceFeed sends the changes of a topic's presence to the clients that asked for them. It
// collects the changes of presenceDelay in a message. It is guarded by the topic's lock.
type presenceFeed struct {
	watchers  map[*Conn]*watcher
	changes   []presenceChange // that some watchers have not received
	first     uint64           // number of changes[0]; changes are numbered in order
	scheduled bool             // a timer will call sendPresence
}

// A presenceChange is a member that has joined a topic or left it.
type presenceChange struct {
	key    memberKey
	member Member
	joined bool
}

// A watcher is a client that asked for presence.
type watcher struct {
	rest []Member // of the members when the client asked, those that it has not received
	next uint64   // number of the first change that it has not received
	held bool     // the answer to the client is not queued yet, and nothing must precede it
}

const (
	// presenceDelay is how long changes are collected. A node that leaves, or many clients that
	// connect at once, cause a few long messages instead of many short ones.
	presenceDelay = 50 * time.Millisecond

	// presenceBatch bounds the members in a message, and so its size. Further members follow
	// after presenceDelay, so the send queue can be emptied in between.
	presenceBatch = 256
)

// A presenceMessage is the message that reports changes. A client removes the members of Left
// first, because one that has left and joined again is in both.
type presenceMessage struct {
	Topic  string   `json:"topic"`
	Joined []Member `json:"joined"`
	Left   []Member `json:"left"`
}

// MessageType returns the name of the message.
func (presenceMessage) MessageType() string { return "$ws:presence" }

func (presenceMessage) protocol() {}

// end returns the number of the next change.
func (f *presenceFeed) end() uint64 { return f.first + uint64(len(f.changes)) }

// watch registers c, which must be subscribed, for the changes that follow. It returns the
// members, or the first presenceBatch of them; the others are sent as joined. Nothing is sent
// before release is called. Watching again starts again.
func (ts *topics) watch(name string, c *Conn) []Member {
	t := ts.find(name)
	t.mu.Lock()
	defer t.mu.Unlock()
	p := &t.presence
	if p.feed == nil {
		p.feed = &presenceFeed{watchers: map[*Conn]*watcher{}}
	}
	all := p.members()
	n := min(len(all), presenceBatch)
	p.feed.watchers[c] = &watcher{rest: all[n:], next: p.feed.end(), held: true}
	return all[:n:n]
}

// unwatch undoes watch. c must be subscribed.
func (ts *topics) unwatch(name string, c *Conn) {
	t := ts.find(name)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.presence.unwatch(c)
}

// unwatch removes a watcher. It must be called with the topic's lock held.
func (p *presence) unwatch(c *Conn) {
	if p.feed == nil {
		return
	}
	if delete(p.feed.watchers, c); len(p.feed.watchers) == 0 {
		p.feed.first, p.feed.changes = p.feed.end(), nil
	}
}

// release starts to send to a watcher, whose answer has been queued.
func (ts *topics) release(name string, c *Conn) {
	t := ts.lock(name)
	if t == nil {
		return
	}
	defer t.mu.Unlock()
	f := t.presence.feed
	if f == nil || f.watchers[c] == nil {
		return
	}
	w := f.watchers[c]
	w.held = false
	if len(w.rest) > 0 || w.next < f.end() {
		ts.schedulePresence(t)
	}
}

// addPresenceChange records a change for the watchers. It must be called with t.mu held.
func (ts *topics) addPresenceChange(t *topic, change presenceChange) {
	f := t.presence.feed
	if f == nil || len(f.watchers) == 0 {
		return
	}
	f.changes = append(f.changes, change)
	ts.schedulePresence(t)
}

// schedulePresence must be called with t.mu held.
func (ts *topics) schedulePresence(t *topic) {
	if f := t.presence.feed; !f.scheduled {
		f.scheduled = true
		time.AfterFunc(presenceDelay, func() { ts.sendPresence(t) })
	}
}

// sendPresence sends a batch to every watcher that is not held, and schedules the next one if
// there is more. It holds the topic's lock, so that all watchers receive the changes in order;
// nothing under it blocks. The frames cannot be dropped: if one does not fit into the send queue
// of a slow client, the connection closes with 1013, because the client's members would be wrong
// from then on.
func (ts *topics) sendPresence(t *topic) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := t.presence.feed
	f.scheduled = false
	more := true
	defer func() {
		if more { // also if an observer has called runtime.Goexit
			ts.schedulePresence(t)
		}
	}()
	batches := map[batchKey]*wsconn.Frame{} // nil if a batch has no effect
	for c, w := range f.watchers {
		if frame := t.nextBatch(c, w, batches); frame != nil {
			_ = c.send(frame) // closed connections are skipped
		}
	}
	for _, frame := range batches {
		if frame != nil {
			frame.Release()
		}
	}
	more = f.trim()
}

// A batchKey identifies a batch of changes that several watchers receive.
type batchKey struct {
	first  uint64 // the number of the first change
	binary bool   // the format of the connections
}

// nextBatch returns the next frame for a watcher, or nil, and counts it as sent. Frames for
// several watchers are shared in batches.
func (t *topic) nextBatch(c *Conn, w *watcher, batches map[batchKey]*wsconn.Frame) *wsconn.Frame {
	f := t.presence.feed
	switch {
	case w.held:
		return nil
	case len(w.rest) > 0:
		n := min(len(w.rest), presenceBatch)
		members := w.rest[:n]
		w.rest = w.rest[n:]
		return encodePresence(c.codec(), presenceMessage{Topic: t.name, Joined: members, Left: []Member{}})
	case w.next == f.end():
		return nil
	}
	key := batchKey{w.next, c.binary()}
	frame, ok := batches[key]
	if !ok {
		frame = t.encodeBatch(c.codec(), f.from(w.next))
		batches[key] = frame
	}
	w.next = min(f.end(), w.next+presenceBatch)
	if frame != nil {
		frame.Retain()
	}
	return frame
}

// trim removes the changes that all watchers have received. It reports whether there is more to
// send to a watcher that is not held.
func (f *presenceFeed) trim() (more bool) {
	oldest := f.end()
	for _, w := range f.watchers {
		oldest = min(oldest, w.next)
		more = more || !w.held && (len(w.rest) > 0 || w.next < f.end())
	}
	f.changes = slices.Delete(f.changes, 0, int(oldest-f.first))
	f.first = oldest
	return more
}

// from returns a batch of the changes from a number on.
func (f *presenceFeed) from(number uint64) []presenceChange {
	rest := f.changes[number-f.first:]
	return rest[:min(len(rest), presenceBatch)]
}

// encodeBatch encodes the effect of changes in order, or returns nil if there is none. A member
// whose first change is that it has joined was absent before, and the other way around.
func (t *topic) encodeBatch(codec Codec, changes []presenceChange) *wsconn.Frame {
	first, last := map[memberKey]presenceChange{}, map[memberKey]presenceChange{}
	var keys []memberKey // in the order of the first changes
	for _, change := range changes {
		if _, ok := first[change.key]; !ok {
			first[change.key] = change
			keys = append(keys, change.key)
		}
		last[change.key] = change
	}
	m := presenceMessage{Topic: t.name, Joined: []Member{}, Left: []Member{}}
	for _, key := range keys {
		was, is := !first[key].joined, last[key].joined
		if was && is && first[key].member == last[key].member {
			continue
		}
		if was {
			m.Left = append(m.Left, first[key].member)
		}
		if is {
			m.Joined = append(m.Joined, last[key].member)
		}
	}
	if len(m.Joined)+len(m.Left) == 0 {
		return nil
	}
	return encodePresence(codec, m)
}

// encodePresence encodes a message, which cannot fail: it contains only strings, and is JSON in
// every format.
func encodePresence(codec Codec, m presenceMessage) *wsconn.Frame {
	frame, _ := encodeAt(codec, m, "", time.Now())
	return frame
}
