package topic

import (
	"time"

	"github.com/penstock-go/penstock/internal/envelope"
	"github.com/penstock-go/penstock/internal/protocol"
	"github.com/penstock-go/penstock/internal/topic/presence"
	"github.com/penstock-go/penstock/internal/wsconn"
)

// This file sends the changes of presence to the clients that asked for them.

// Watch registers a subscriber for the changes of presence that follow. It returns the members, or the first
// ones; the others are sent as joined. Nothing is sent before StartFeed is called. Watching again starts again.
func (ts *Topics) Watch(t *Topic, c *Subscriber) []protocol.Member {
	t.mu.Lock()
	defer t.mu.Unlock()
	return ts.trackLocked(t).Watch(c)
}

// Unwatch undoes Watch.
func (t *Topic) Unwatch(c *Subscriber) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.presence != nil {
		t.presence.Unwatch(c)
	}
}

// StartFeed starts to send to a watcher, whose answer has been queued.
func (ts *Topics) StartFeed(name string, c *Subscriber) {
	t := ts.lock(name)
	if t == nil {
		return
	}
	defer t.mu.Unlock()
	if t.presence != nil {
		e := t.presence.StartFeed(c)
		ts.applyLocked(t, &e)
	}
}

func (ts *Topics) scheduleFeed(t *Topic) {
	time.AfterFunc(presence.FeedDelay, func() { ts.sendFeed(t) })
}

// A feedFrame identifies a frame that several watchers receive.
type feedFrame struct {
	message *protocol.PresenceChanged
	binary  bool // the format of the connections
}

// sendPresence sends a batch to every watcher that is not held, and schedules the next one if
// there is more. It holds the topic's lock, so that all watchers receive the changes in order;
// nothing under it blocks. The frames cannot be dropped: if one does not fit into the send queue
// of a slow client, the connection closes with 1013, because the client's members would be wrong
// from then on.
func (ts *Topics) sendPresence(t *Topic) {
	t.mu.Lock()
	defer t.mu.Unlock()
	defer func() { // even if an observer has not returned
		e := t.presence.EndNext()
		ts.applyLocked(t, &e)
	}()
	frames := map[feedFrame]*wsconn.Frame{}
	for c, m := range t.presence.Next() {
		key := feedFrame{m, c.Format != envelope.JSON}
		if frames[key] == nil {
			m.Topic = t.Name
			frames[key] = ts.encode(c.Format, *m)
		}
		sendShared(c, frames[key]) // closed connections are skipped
	}
	for _, frame := range frames {
		frame.Release()
	}
}
