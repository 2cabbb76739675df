package router

import "time"

// This file slows down connections that publish more than the subscribers of a topic read.

// Bounds of how long the messages of a connection wait after one that has published.
const (
	maxPublisherWait = 100 * time.Millisecond // for each message
	publisherCheck   = 10 * time.Millisecond  // how often the queues are looked at meanwhile
)

// slowPublisher is called after a message of the connection has been published. If most subscribers of
// the topic on this node have more than half of their send queue to read, the next message of the
// connection is handled later.
func (c *Conn) slowPublisher(topic string) {
	if t := c.router.topics.Find(topic); t != nil && t.IsCongested() {
		c.ownExtra().congested.Store(t)
	}
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
	for end := time.Now().Add(maxPublisherWait); t.IsCongested() && time.Now().Before(end); {
		select {
		case <-ticker.C:
		case <-c.ctx.Done():
			return
		}
	}
}
