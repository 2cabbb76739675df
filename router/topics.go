package router

import (
	"context"
	"hash/maphash"
	"iter"
	"sync"
	"time"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/ask"
	"github.com/penstock-go/penstock/internal/envelope"
	"github.com/penstock-go/penstock/internal/failure"
	"github.com/penstock-go/penstock/internal/topicname"
	"github.com/penstock-go/penstock/internal/wsconn"
)

// topics holds the topics that connections of this node subscribe to. A topic is in one of the
// shards by the hash of its name.
type topics struct {
	router *Router
	seed   maphash.Seed
	shards [topicShards]topicShard

	// Declared topics; read-only once the router serves.
	patterns   []*topicPattern
	root       topicname.Tree[topicPattern]
	hasHistory bool          // a pattern has a History
	userLogs   *topicPattern // of the logs of users; nil without Options.UserHistory
	maxGrace   time.Duration // the longest PresenceGrace

	held heldMembers
}

const topicShards = 64

// A topicShard is a part of the topics with its own lock.
type topicShard struct {
	mu     sync.Mutex
	topics map[string]*topic
}

// A topic has its own lock, so that delivering to many subscribers does not delay other
// topics. Many topics have one subscriber, so what only some topics need is behind a pointer.
type topic struct {
	name          string
	pattern       *topicPattern
	history       *topicHistory // nil without a History
	subscriptions int32         // guarded by the shard's lock; the topic is dropped at 0
	shard         uint8         // the index of the shard
	dropped       bool          // removed from the shard; guarded by mu

	mu       sync.Mutex
	members  connList[*Conn] // the subscribers that do not receive positions
	presence *presence       // nil until a connection joins or a client asks for it
}

func (ts *topics) init(r *Router) {
	ts.router = r
	ts.seed = maphash.MakeSeed()
	for i := range ts.shards {
		ts.shards[i].topics = map[string]*topic{}
	}
}

// checkTopic returns an error if the name of a topic is invalid.
func checkTopic(name string) error {
	if rule := topicname.BrokenRule(name); rule != "" {
		return errors.Errorf(errors.InvalidArgument, "a topic's name %s", rule)
	}
	return nil
}

// shard returns the index of the shard of a topic.
func (ts *topics) shard(name string) uint8 {
	return uint8(maphash.String(ts.seed, name) % topicShards)
}

// addLocked subscribes c, which must not be subscribed, to a topic that p matches. If silent is
// set, c receives nothing before it is activated. It needs c.mu.
func (ts *topics) addLocked(name string, p *topicPattern, c *Conn, silent bool) *topic {
	shard := ts.shard(name)
	s := &ts.shards[shard]
	s.mu.Lock()
	if t := s.topics[name]; t != nil {
		t.subscriptions++
		s.mu.Unlock()
		c.addTopicLocked(t)
		if !silent {
			t.mu.Lock()
			defer t.mu.Unlock()
			t.members.put(c)
		}
		return t
	}
	defer s.mu.Unlock()
	t := &topic{name: name, pattern: p, shard: shard, subscriptions: 1}
	c.addTopicLocked(t) // before the broker is called, which may call runtime.Goexit
	if !silent {
		t.members.put(c)
	}
	s.topics[name] = t
	if !isUserLog(name) { // on which everything is stored
		ts.router.node.Subscribe(name)
	}
	ts.startSequencer(t)
	return t
}

// remove unsubscribes c from a topic that has been removed from c.topics. Only the goroutine that has
// removed it there may call remove, so t is not dropped before.
func (ts *topics) remove(t *topic, c *Conn) {
	s := &ts.shards[t.shard]
	s.mu.Lock()
	if t.subscriptions--; t.subscriptions > 0 {
		s.mu.Unlock()
		t.mu.Lock()
		defer t.mu.Unlock()
		ts.unsubscribeLocked(t, c)
		return
	}
	defer s.mu.Unlock() // after drop, so that a new topic of this name reports its members later
	delete(s.topics, t.name)
	if t.history != nil {
		defer t.history.sequencer.Close() // without t.mu, which its deliveries acquire
	}
	defer ts.drop(t, c) // even if the broker calls runtime.Goexit
	if !isUserLog(t.name) {
		ts.router.node.Unsubscribe(t.name)
	}
}

// drop ends a topic whose last subscriber c has unsubscribed.
func (ts *topics) drop(t *topic, c *Conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dropped = true
	ts.unsubscribeLocked(t, c)
	ts.untrackLocked(t)
}

// unsubscribeLocked needs t.mu.
func (ts *topics) unsubscribeLocked(t *topic, c *Conn) {
	t.silenceLocked(c)
	ts.removeLocalMemberLocked(t, c, !c.goesOn(t.name))
}

// silenceLocked ends all that a connection receives from a topic.
func (t *topic) silenceLocked(c *Conn) {
	t.members.remove(c)
	if t.history != nil {
		t.history.remove(c)
	}
	t.presence.unwatchLocked(c)
}

// find returns a topic, or nil if it has no subscribers on this node.
func (ts *topics) find(name string) *topic {
	s := &ts.shards[ts.shard(name)]
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.topics[name]
}

// lock returns a topic with its lock held, or nil if it has no subscribers on this node. It
// checks dropped, because the topic may be dropped between find and Lock.
func (ts *topics) lock(name string) *topic {
	t := ts.find(name)
	if t == nil {
		return nil
	}
	t.mu.Lock()
	if t.dropped {
		t.mu.Unlock()
		return nil
	}
	return t
}

// publish queues a message for every subscriber except one, which may be nil, and passes it to
// the broker if it is for all nodes.
func (ts *topics) publish(ctx context.Context, name string, except *Conn, m Message, allNodes bool) error {
	if err := checkTopic(name); err != nil {
		return err
	}
	if ts.hasHistory && allNodes {
		if ts.retains(name) {
			ctx, cancel := context.WithTimeout(ctx, ts.router.opts.Timeouts.Call)
			defer cancel()
			_, err := ts.publishStored(ctx, name, except, m, PublishOptions{})
			return err
		}
	}
	p, err := ts.router.encodeAll(m, ts.formatsToPublish(name, allNodes))
	if p.IsEmpty() {
		return err
	}
	defer p.Free()
	receivers := 0
	if t := ts.find(name); t != nil {
		receivers = t.deliver(&p, except, broker.Position{})
	}
	ts.router.observe(Event{Kind: EventPublished, Count: receivers})
	if allNodes && ts.router.opts.Broker != nil {
		return failure.Join(err, ts.router.node.Publish(name, ts.router.formats.Packet(&p)))
	}
	return err
}

// deliver queues a message for every subscriber except one, and returns for how many. at is the
// position of a stored message. It holds the topic's lock, so that all subscribers receive messages
// in the same order; nothing under it blocks.
func (t *topic) deliver(p *envelope.Publication, except *Conn, at broker.Position) (receivers int) {
	p.SetPolicy(wsconn.SlowConsumerPolicy(t.pattern.opts.SlowConsumer))
	t.mu.Lock()
	defer t.mu.Unlock()
	for conns := range t.members.chunks() {
		receivers += t.sendChunk(p, conns, except, at)
	}
	if t.history == nil {
		return receivers
	}
	for followers := range t.history.followers.chunks() {
		receivers += t.deliverToFollowersLocked(p, followers, except, at)
	}
	return receivers
}

// subscribersLocked iterates over the connections that receive messages.
func (t *topic) subscribersLocked() iter.Seq[*Conn] {
	return func(yield func(*Conn) bool) {
		for c := range t.members.all() {
			if !yield(c) {
				return
			}
		}
		if t.history == nil {
			return
		}
		for f := range t.history.followers.all() {
			if !yield(f.conn) {
				return
			}
		}
	}
}

// receive handles a packet that another node has published on a topic. The broker calls it.
func (ts *topics) receive(name, from string, packet []byte) {
	switch {
	case len(packet) == 0:
	case name == ts.router.nodeTopic:
		ts.router.asks.Receive(from, packet)
	case name == usersTopic && packet[0] == ask.UserAsk:
		ts.router.asks.ReceiveUserAsk(from, packet)
	case name == usersTopic:
		ts.router.receiveUserPacket(packet)
	default:
		ts.receiveMessage(name, packet)
	}
}

// receiveMessage delivers a message from another node.
func (ts *topics) receiveMessage(name string, packet []byte) {
	if t := ts.find(name); t != nil {
		ts.deliverPacket(t, packet, nil, broker.Position{})
	}
}

// deliverPacket delivers a message to the subscribers except one, which may be nil.
func (ts *topics) deliverPacket(t *topic, packet []byte, except *Conn, at broker.Position) {
	used := ts.formatsOf(t)
	now := time.Now()
	p, published, ok := ts.router.formats.ParsePacket(packet, used, now)
	if !ok {
		return
	}
	defer p.Free()
	receivers := t.deliver(&p, except, at)
	ts.router.observe(Event{Kind: EventDelivered, Count: receivers, Duration: max(now.Sub(published), 0)})
	if p.Lacks(used) {
		ts.messagesLost(t.name, 1)
	}
}

// messagesLost is called when packets of a topic were lost. 0 is an unknown number.
func (ts *topics) messagesLost(name string, packets int) {
	switch {
	case name == usersTopic && ts.router.access != nil:
		return // what must not be lost is stored
	case name == usersTopic, name == accessTopic, isUserLog(name):
		name = ""
	case name == ts.router.nodeTopic:
		return // it carries no messages; an ask or an answer that is lost ends with its time
	}
	ts.router.observe(Event{Kind: EventMessagesLost, Count: packets})
	if ts.router.opts.OnMessagesLost == nil {
		return
	}
	ts.router.events.Add(func() {
		ts.router.hook("OnMessagesLost", func() { ts.router.opts.OnMessagesLost(name, packets) })
	})
}
