package pubsub

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/penstock-go/penstock/internal/cluster"
)

// A connection is one of a receiver. Until it is promoted, it keeps what arrives.
type connection struct {
	receiver  *receiver
	pubsub    *goredis.PubSub
	suspected chan struct{} // requests to replace the connection unless a probe returns
	ended     chan struct{} // closed when nothing arrives any more
	ready     chan struct{} // closed when what was subscribed to before promote is in effect
	arrived   atomic.Int64  // when the last message or response did, in Unix nanoseconds
	returned  atomic.Int64  // when the last probe did

	probe  atomic.Pointer[cluster.Channel] // in a partition of the receiver; nil if there is none; changed under link.mu
	probed atomic.Pointer[cluster.Channel] // the last probe whose subscription was confirmed

	mu        sync.Mutex // held while what has arrived is handled
	promoted  bool
	requested map[string]cluster.Channel // subscribed to before promote
	kept      []any
	keptBytes int
}

// noReconnect is the context of what is done on a connection that is open. After an error, go-redis
// would open another one without notice, which a context that has ended prevents. It affects
// nothing else.
var noReconnect = func() context.Context { //nolint:gochecknoglobals // a constant
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

const (
	maxKeptBytes = 4 << 20
	keptOverhead = 128     // bytes of a message, in addition to its payload
	readyMark    = "ready" // payload of the PING after the subscriptions before promote
)

// open opens a connection, and returns nil if that fails.
func (r *receiver) open() *connection {
	c := &connection{receiver: r, suspected: make(chan struct{}, 1), ended: make(chan struct{}), ready: make(chan struct{})}
	if r.link.engine.Cluster != nil {
		c.pubsub = r.client.SSubscribe(r.ctx)
	} else {
		c.pubsub = r.client.Subscribe(r.ctx)
	}
	if c.pubsub.Ping(r.ctx) != nil { // connects
		c.close()
		return nil
	}
	c.arrived.Store(time.Now().UnixNano())
	go c.read()
	return c
}

// openSubscribed opens a connection and subscribes to all channels of the receiver. It returns nil
// if that fails.
func (r *receiver) openSubscribed() *connection {
	c := r.open()
	if c == nil {
		return nil
	}
	var channels []cluster.Channel
	l := r.link
	l.mu.Lock()
	for _, state := range l.channels {
		if state.wanted && l.partitions[state.Partition] == r {
			channels = append(channels, state.Channel)
		}
	}
	l.mu.Unlock()
	c.mu.Lock()
	c.requested = make(map[string]cluster.Channel, len(channels))
	for _, channel := range channels {
		c.requested[channel.Name] = channel
	}
	c.mu.Unlock()
	c.send(channels, nil)
	_ = c.pubsub.Ping(noReconnect, readyMark)
	return c
}

func (c *connection) close() { _ = c.pubsub.Close() }

// since returns the time since one in Unix nanoseconds.
func since(at *atomic.Int64) time.Duration { return time.Duration(time.Now().UnixNano() - at.Load()) }

// A refusal is the response to a SUBSCRIBE command of a server that does not have the slot of its
// channels, or whose cluster is down.
type refusal struct {
	partition int // that of the slot
	down      bool
}

// refusalOf returns what an error means for subscriptions. It reports false if the connection is
// broken.
func refusalOf(err error) (response refusal, ok bool) {
	if goredis.HasErrorPrefix(err, "CLUSTERDOWN ") {
		return refusal{down: true}, true
	}
	if !goredis.HasErrorPrefix(err, "MOVED ") {
		return refusal{}, false
	}
	var slot int
	if _, err := fmt.Sscanf(err.Error(), "MOVED %d ", &slot); err != nil || slot < 0 || slot >= SlotCount {
		return refusal{}, false
	}
	return refusal{partition: slot * Partitions / SlotCount}, true
}

// read handles what arrives until the connection ends. It has no deadline, since one that passes
// within a message would lose the beginning of it.
func (c *connection) read() {
	defer close(c.ended)
	for {
		message, err := c.pubsub.Receive(noReconnect)
		if err != nil {
			response, ok := refusalOf(err)
			if !ok {
				c.close()
				return
			}
			message = response
		}
		c.arrived.Store(time.Now().UnixNano())
		c.handle(message)
	}
}

func (c *connection) handle(message any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.promoted {
		c.deliverLocked(message)
		return
	}
	if pong, ok := message.(*goredis.Pong); ok && pong.Payload == readyMark {
		close(c.ready)
		return
	}
	c.kept = append(c.kept, message)
	if m, ok := message.(*goredis.Message); ok {
		c.keptBytes += len(m.Payload) + keptOverhead
	}
}

func (c *connection) hasEnded() bool {
	select {
	case <-c.ended:
		return true
	default:
		return false
	}
}

// isFull reports whether as much is kept as may be.
func (c *connection) isFull() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.keptBytes >= maxKeptBytes
}

// promote makes c the connection of its receiver, and handles what it has kept.
func (c *connection) promote() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.promoted = true
	r, l := c.receiver, c.receiver.link
	l.mu.Lock()
	r.current = c
	for name, channel := range c.requested {
		if l.channels[name] == nil && l.partitions[channel.Partition] == r { // it is not wanted any more
			l.channels[name] = &channelState{Channel: channel}
		}
	}
	for name, state := range l.channels {
		if l.partitions[state.Partition] != r {
			continue
		}
		state.reset()
		if _, requested := c.requested[name]; requested {
			state.requested, state.pending = true, 1
		}
		r.changed = append(r.changed, name)
	}
	l.mu.Unlock()
	r.changes.Add(r.applyChanges)
	for _, message := range c.kept {
		c.deliverLocked(message)
	}
	c.requested, c.kept = nil, nil
}

// deliverLocked handles a message or a response. c.mu must be held.
func (c *connection) deliverLocked(message any) {
	r := c.receiver
	switch m := message.(type) {
	case *goredis.Message:
		if probe := c.probe.Load(); probe != nil && m.Channel == probe.Name {
			c.returned.Store(time.Now().UnixNano())
		}
		r.link.events.Received(m.Channel, []byte(m.Payload))
	case refusal:
		if m.down {
			r.subscribeLater()
		} else {
			r.refused(m.partition)
		}
	case *goredis.Subscription:
		probe := c.probe.Load()
		isProbe := probe != nil && m.Channel == probe.Name
		switch subscribed := m.Kind == "subscribe" || m.Kind == "ssubscribe"; {
		case isProbe && subscribed:
			c.probed.Store(probe)
		case isProbe: // its slot has moved
			r.refused(probe.Partition)
		case subscribed:
			r.subscribeConfirmed(m.Channel)
		default:
			r.unsubscribed(m.Channel)
		}
	}
}

// send ignores errors: read notices a broken connection.
func (c *connection) send(subscribe, unsubscribe []cluster.Channel) {
	sendSubscribe, sendUnsubscribe := c.pubsub.Subscribe, c.pubsub.Unsubscribe
	if c.receiver.link.engine.Cluster != nil {
		sendSubscribe, sendUnsubscribe = c.pubsub.SSubscribe, c.pubsub.SUnsubscribe
	}
	for _, names := range c.receiver.commands(unsubscribe) {
		_ = sendUnsubscribe(noReconnect, names...)
	}
	for _, names := range c.receiver.commands(subscribe) {
		_ = sendSubscribe(noReconnect, names...)
	}
}
