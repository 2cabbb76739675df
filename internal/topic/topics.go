package topic

import (
	"context"
	"hash/maphash"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/envelope"
	"github.com/penstock-go/penstock/internal/host"
	"github.com/penstock-go/penstock/internal/sequencer"
	"github.com/penstock-go/penstock/internal/topic/presence"
	"github.com/penstock-go/penstock/internal/topicname"
	"github.com/penstock-go/penstock/internal/wsconn"
)

// Topics holds the topics that connections of this node subscribe to. A topic is in one of the
// shards by the hash of its name.
type Topics struct {
	config Config

	// Of this node; set by Connect.
	node      broker.Node
	histories broker.Histories  // nil if the broker keeps none
	reader    *sequencer.Reader // of histories

	seed   maphash.Seed
	shards [topicShards]topicShard

	// Declared topics; read-only once the router serves.
	patterns []*Pattern
	root     topicname.Tree[Pattern]
	userLogs *Pattern // of the logs of users; nil without DeclareUserLogs
	HasGrace bool     // a pattern has a PresenceGrace

	// These are values, so that a program that declares no pattern does not link what only its topics need: sendPresence,
	// or nil without patterns; and startSequencer and followFromNow, or nil if no pattern has a History.
	sendFeed, start func(*Topic)
	FollowFromNow   func(t *Topic, c *Subscriber, h *Holding, announce func(at broker.Position) *wsconn.Frame)

	observer atomic.Pointer[func(host.Delivery)] // nil unless deliveries are observed

	closing context.Context //nolint:containedctx // canceled by Close
	close   context.CancelFunc

	events waitingChanges
}

const topicShards = 64

// A topicShard is a part of the topics with its own lock.
type topicShard struct {
	mu     sync.Mutex
	topics map[string]*Topic
}

// A Topic has its own lock, so that delivering to many subscribers does not delay other
// topics. Many topics have one subscriber, so what only some topics need is behind a pointer.
type Topic struct {
	Name          string
	Pattern       *Pattern
	history       *topicHistory // nil without a history
	subscriptions int32         // guarded by the shard's lock; the topic is dropped at 0
	shard         uint8         // the index of the shard
	dropped       bool          // removed from the shard; guarded by mu

	mu       sync.Mutex
	members  connList[*Subscriber]          // the subscribers that do not receive positions
	presence *presence.Members[*Subscriber] // nil until a connection joins or a client asks for it
}

// Init must be called before the Topics are used.
func (ts *Topics) Init(config Config) {
	ts.config = config
	ts.seed = maphash.MakeSeed()
	ts.closing, ts.close = context.WithCancel(context.Background())
	for i := range ts.shards {
		ts.shards[i].topics = map[string]*Topic{}
	}
}

// Connect sets the node on which the topics subscribe, and its histories, which are nil if it keeps
// none.
func (ts *Topics) Connect(node broker.Node, histories broker.Histories) {
	ts.node, ts.histories = node, histories
	if histories != nil {
		ts.reader = sequencer.NewReader(histories)
	}
}

// Close ends calls of Tail.
func (ts *Topics) Close() { ts.close() }

// shard returns the index of the shard of a topic.
func (ts *Topics) shard(name string) uint8 {
	return uint8(maphash.String(ts.seed, name) % topicShards)
}

// SubscribeLocked subscribes a connection to a topic unless it is subscribed already, and returns
// the topic. If silent is set, a new subscription receives nothing before it is activated. It needs
// the lock of the connection.
func (ts *Topics) SubscribeLocked(name string, c *Subscriber, silent bool) (*Topic, error) {
	if t := c.TopicLocked(name); t != nil {
		if !silent {
			t.subscribeJoining(c)
		}
		return t, nil
	}
	if err := topicname.Check(name); err != nil {
		return nil, err
	}
	if n := len(c.subscriptions.named()) + 1; n > ts.config.MaxTopics {
		return nil, ts.config.TopicsExceeded(n, ts.config.MaxTopics, "router.Limits.Topics")
	}
	p := ts.PatternOf(name)
	if n, limit := c.subscriptions.countOf(p)+1, p.MaxPerConn; limit != 0 && n > limit {
		return nil, ts.config.TopicsExceeded(n, limit, "router.TopicOptions.MaxPerConn")
	}
	return ts.addLocked(name, p, c, silent), nil
}

// SubscribeUserLogLocked subscribes a connection to the log of its user, unless it is subscribed to
// one already, and returns that. It needs the lock of the connection.
func (ts *Topics) SubscribeUserLogLocked(name string, c *Subscriber) *Topic {
	if t := c.UserLogLocked(); t != nil {
		return t
	}
	return ts.addLocked(name, ts.userLogs, c, false)
}

// UnsubscribeLocked ends a subscription if there is one. Unless it is final, another connection may
// have the member of c. It needs the lock of the connection.
func (ts *Topics) UnsubscribeLocked(name string, c *Subscriber, final bool) {
	if t := c.TopicLocked(name); t != nil {
		c.subscriptions.remove(t)
		ts.Remove(t, c, final)
	}
}

// addLocked subscribes c, which must not be subscribed, to a topic that p matches. If silent is
// set, c receives nothing before it is activated. It needs the lock of the connection.
func (ts *Topics) addLocked(name string, p *Pattern, c *Subscriber, silent bool) *Topic {
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
	t := &Topic{Name: name, Pattern: p, shard: shard, subscriptions: 1}
	c.addTopicLocked(t) // before the broker is called, which may not return
	if !silent {
		t.members.put(c)
	}
	s.topics[name] = t
	if !topicname.IsUserLog(name) { // on which everything is stored
		ts.node.Subscribe(name)
	}
	if ts.start != nil {
		ts.start(t)
	}
	return t
}

// Remove unsubscribes c from a topic that has been removed from c.subscriptions. Only the goroutine
// that has removed it there may call Remove, so t is not dropped before. Unless it is final,
// another connection may have the member of c. c is nil if it was listen that subscribed.
func (ts *Topics) Remove(t *Topic, c *Subscriber, final bool) {
	s := &ts.shards[t.shard]
	s.mu.Lock()
	if t.subscriptions--; t.subscriptions > 0 {
		s.mu.Unlock()
		t.mu.Lock()
		defer t.mu.Unlock()
		ts.removeSubscriberLocked(t, c, final)
		return
	}
	defer s.mu.Unlock() // after drop, so that a new topic of this name reports its members later
	delete(s.topics, t.Name)
	if t.history != nil {
		defer t.history.sequencer.Close() // without t.mu, which its deliveries acquire
	}
	defer ts.drop(t, c, final) // even if the broker does not return
	if !topicname.IsUserLog(t.Name) {
		ts.node.Unsubscribe(t.Name)
	}
}

// drop ends a topic whose last subscriber c has unsubscribed.
func (ts *Topics) drop(t *Topic, c *Subscriber, final bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dropped = true
	ts.removeSubscriberLocked(t, c, final)
	ts.untrackLocked(t)
}

// removeSubscriberLocked needs t.mu.
func (ts *Topics) removeSubscriberLocked(t *Topic, c *Subscriber, final bool) {
	if c == nil {
		return
	}
	t.silenceLocked(c)
	ts.leaveLocked(t, c, final)
}

// silenceLocked ends all that a connection receives from a topic.
func (t *Topic) silenceLocked(c *Subscriber) {
	t.members.remove(c)
	if t.history != nil {
		t.history.remove(c)
	}
	if t.presence != nil {
		t.presence.Unwatch(c)
	}
}

// Find returns a topic, or nil if it has no subscribers on this node.
func (ts *Topics) Find(name string) *Topic {
	s := &ts.shards[ts.shard(name)]
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.topics[name]
}

// lock returns a topic with its lock held, or nil if it has no subscribers on this node. It
// checks dropped, because the topic may be dropped between find and Lock.
func (ts *Topics) lock(name string) *Topic {
	t := ts.Find(name)
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

// Deliver queues a message that is not stored for every subscriber of a topic except one, which may
// be nil, and returns for how many.
func (ts *Topics) Deliver(name string, p *envelope.Publication, except *Subscriber) (receivers int) {
	if t := ts.Find(name); t != nil {
		return ts.deliverTo(t, p, except, broker.Position{})
	}
	return 0
}

// deliverTo queues a message for every subscriber except one, and returns for how many. at is the
// position of a stored message.
func (ts *Topics) deliverTo(t *Topic, p *envelope.Publication, except *Subscriber, at broker.Position) (receivers int) {
	receivers = ts.queueForAll(t, p, except, at)
	if observe := ts.observer.Load(); observe != nil {
		(*observe)(deliveryOf(t, p, at, receivers))
	}
	return receivers
}

// queueForAll holds the topic's lock, so that all subscribers receive messages in the same order; nothing
// under it blocks.
func (ts *Topics) queueForAll(t *Topic, p *envelope.Publication, except *Subscriber, at broker.Position) (receivers int) {
	p.SetPolicy(t.Pattern.SlowConsumer)
	t.mu.Lock()
	defer t.mu.Unlock()
	for conns := range t.members.chunks() {
		receivers += t.sendChunk(p, conns, except, at)
	}
	if t.history == nil {
		return receivers
	}
	for followers := range t.history.followers.chunks() {
		receivers += ts.deliverToFollowersLocked(t, p, followers, except, at)
	}
	return receivers
}

// subscribersLocked iterates over those that receive messages.
func (t *Topic) subscribersLocked() iter.Seq[*Subscriber] {
	return func(yield func(*Subscriber) bool) {
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

// congestionSample is how many subscribers of each kind are looked at.
const congestionSample = 32

// IsCongested reports whether most subscribers have more to read than they should; a few that do
// not read slow down only themselves. It looks at a sample of them.
func (t *Topic) IsCongested() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	all, high := 0, 0
	look := func(c *Subscriber) {
		all++
		if c.WS.High() {
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

// ReceiveMessage delivers a message from another node, and returns to how many connections.
func (ts *Topics) ReceiveMessage(name string, packet []byte) (receivers int) {
	if t := ts.Find(name); t != nil {
		receivers, _ = ts.deliverPacket(t, packet, nil, broker.Position{})
	}
	return receivers
}

// deliverPacket delivers a message to the subscribers except one, which may be nil, and returns to how
// many. It reports false if the packet is malformed.
func (ts *Topics) deliverPacket(t *Topic, packet []byte, except *Subscriber, at broker.Position) (receivers int, ok bool) {
	used := ts.formatsOf(t)
	now := time.Now()
	p, published, ok := ts.config.Formats.ParsePacket(packet, used, now)
	if !ok {
		return 0, false
	}
	defer p.Free()
	receivers = ts.deliverTo(t, &p, except, at)
	ts.config.Delivered(receivers, max(now.Sub(published), 0))
	if p.Lacks(used) {
		ts.config.Lost(t.Name, 1)
	}
	return receivers, true
}
