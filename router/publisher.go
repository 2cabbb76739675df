package router

import "time"

// This file slows down connections that publish more than the subscribers of a topic read.

// Bounds of how long the messages of a connection wait after one that has published.
const (
	maxPublisherWait = 100 * time.Millisecond // for each message
	publisherCheck   = 10 * time.Millisecond  // how often the queues are looked at meanwhile
)

// congestionSample is how many subscribers of each kind are looked at.
const congestionSample = 32

// slowPublisher is called after a message of the connection has been published. If most subscribers of
// the topic on this node have more than half of their send queue to read, the next message of the
// connection is handled later.
func (c *Conn) slowPublisher(topic string) {
	if t := c.router.topics.find(topic); t != nil && t.isCongested() {
		c.ownExtra().congested.Store(t)
	}
}

// isCongested reports whether most subscribers have more to read than they should; a few that do not read
// slow down nobody but themselves. It looks at a sample of them.
func (t *topic) isCongested() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	all, high := 0, 0
	look := func(c *Conn) {
		all++
		if c.ws.High() {
			high++
		}
	}
	for c := range t.members.sample(congestionSample) {
		look(c)
	}
	if t.history != nil {
		for f := range t.history.followers.sample(congestionSample) {
			look(f.conn)
		}
	}
	return 2*high > all
}

// awaitSubscribers waits until the subscribers of the topic to which the connection has published have
// read, but not longer than maxPublisherWait.
func (c *Conn) awaitSubscribers() {
	extra := c.extra()
	if extra.congested.Load() == nil {
		return
	}
	t := extra.congested.Swap(nil)
	ticker := time.NewTicker(publisherCheck)
	defer ticker.Stop()
	for end := time.Now().Add(maxPublisherWait); t.isCongested() && time.Now().Before(end); {
		select {
		case <-ticker.C:
		case <-c.ctx.Done():
			return
		}
	}
}
