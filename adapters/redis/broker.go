package redis

import (
	"context"
	"crypto/rand"
	"hash/fnv"
	"strconv"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/penstock-go/penstock/router"
)

// A Broker is a [router.Broker] over the Pub/Sub of Redis, on a Cluster over the sharded
// one, which is there from Redis 7.0 on.
//
// A node subscribes to topics that it has members for, on a connection of its own, or
// on several of a Cluster. It publishes what waits in one round trip. While Redis is out
// of reach, nodes serve their own subscribers; up to 16 MiB wait to be published,
// and what does not fit is lost. Packets are numbered, so every loss is noticed by those
// who miss something, and told with [router.Node.Missed]. A connection that was silent
// for two seconds is opened anew. Nodes say every second that they are there; who
// has not for four seconds is down.
//
// Topics are channels named penstock:topic:<topic>, on a Cluster
// penstock:{<0 to 15>}:topic:<topic>.
type Broker struct {
	client goredis.UniversalClient
}

var _ router.Broker = (*Broker)(nil)

// NewBroker returns a broker. It panics if the client is nil. It sends nothing yet. The
// client must give up a server that does not answer, as it does unless its timeouts are
// turned off.
func NewBroker(client goredis.UniversalClient) *Broker {
	if client == nil {
		panic("redis: NewBroker needs a client")
	}
	return &Broker{client}
}

const (
	aliveEvery  = time.Second     // a node says that it is there
	silentFor   = 4 * time.Second // is down
	shardedWays = 16              // on a Cluster, each in a slot of its own
)

// Join makes a node.
func (b *Broker) Join(node router.Node) router.Link {
	ctx, cancel := context.WithCancel(context.Background())
	l := &link{node: node, name: rand.Text(), cancel: cancel, heard: map[string]time.Time{}}
	l.outbox = newOutbox(b.client, l.name)
	ways := 1
	if _, cluster := b.client.(*goredis.ClusterClient); cluster {
		ways = shardedWays
		l.outbox.sharded = true
	}
	for n := range ways {
		prefix := "penstock"
		if ways > 1 {
			prefix += ":{" + strconv.Itoa(n) + "}"
		}
		w := &way{link: l, prefix: prefix, client: b.client, sharded: ways > 1, topics: map[string]*topicState{}}
		l.ways = append(l.ways, w)
		go w.run(ctx)
	}
	go l.stayAlive(ctx)
	return l
}

// A link is this process as a node.
type link struct {
	node   router.Node
	name   string
	ways   []*way
	outbox *outbox
	cancel context.CancelFunc

	mu     sync.Mutex
	closed bool
	heard  map[string]time.Time // from each other node, the last time
}

// way returns the way that a topic takes.
func (l *link) way(topic string) *way {
	if len(l.ways) == 1 {
		return l.ways[0]
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(topic))
	return l.ways[h.Sum32()%uint32(len(l.ways))]
}

// Subscribe asks for what others publish on topic.
func (l *link) Subscribe(topic string) { l.way(topic).want(topic, true) }

// Unsubscribe undoes Subscribe.
func (l *link) Unsubscribe(topic string) { l.way(topic).want(topic, false) }

// Publish sends a packet to the others.
func (l *link) Publish(topic string, packet []byte) {
	l.outbox.add(l.way(topic).channel(topic), envelope{kind: kindPacket, packet: packet})
}

// Close says goodbye, if Redis is there to hear it.
func (l *link) Close() {
	l.mu.Lock()
	closed := l.closed
	l.closed = true
	l.mu.Unlock()
	if closed {
		return
	}
	l.outbox.add(l.ways[0].nodes(), envelope{kind: kindGoodbye})
	l.outbox.close()
	l.cancel()
}

// stayAlive says every second that the node is there, and looks who else is.
func (l *link) stayAlive(ctx context.Context) {
	ticker := time.NewTicker(aliveEvery)
	defer ticker.Stop()
	for {
		l.outbox.add(l.ways[0].nodes(), envelope{kind: kindAlive})
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		l.buryTheSilent()
	}
}

// hear notes a sign of life. Of who has said goodbye it may come too, another way: then
// silence follows.
func (l *link) hear(from string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.heard[from] = time.Now()
}

func (l *link) isDown(from string) {
	l.mu.Lock()
	_, known := l.heard[from]
	delete(l.heard, from)
	l.mu.Unlock()
	if known {
		l.node.Down(from)
	}
}

// unfollow forgets the numbers of a node that will send no more. Those of a node that is only
// silent tell what was lost when it is heard again.
func (l *link) unfollow(node string) {
	for _, w := range l.ways {
		w.unfollow(node)
	}
}

// buryTheSilent believes in silence only if this node has heard itself meanwhile.
func (l *link) buryTheSilent() {
	l.mu.Lock()
	var down []string
	last := l.heard[l.name]
	for name, at := range l.heard {
		if name != l.name && last.Sub(at) > silentFor {
			down = append(down, name)
		}
	}
	l.mu.Unlock()
	for _, name := range down {
		l.isDown(name)
	}
}

// reachable gives the others time to be heard again after an interruption.
func (l *link) reachable() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name := range l.heard {
		l.heard[name] = time.Now()
	}
}
