package redis

import (
	"context"
	"crypto/rand"
	"hash/fnv"
	"strconv"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/penstock-go/penstock/broker"
)

// A Broker is a [broker.Broker] over the Pub/Sub of Redis, on a Cluster over the sharded
// one, which is there from Redis 7.0 on.
//
// A node subscribes to topics that it has members for, on a connection of its own, or
// on several of a Cluster. It publishes what waits in one round trip. While Redis is out
// of reach, nodes serve their own subscribers; up to 16 MiB wait to be published,
// and what does not fit is lost. Packets are numbered, so every loss is noticed by those
// who miss something, and told with [broker.Handler.Missed]. A connection that was silent
// for two seconds is opened anew. Nodes say every second that they are there; who
// has not for four seconds is down.
//
// Topics are channels named penstock:topic:<topic>, on a Cluster
// penstock:{<0 to 15>}:topic:<topic>.
type Broker struct {
	client goredis.UniversalClient
}

var _ broker.Broker = (*Broker)(nil)

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
func (b *Broker) Connect(node broker.Handler) broker.Session {
	ctx, cancel := context.WithCancel(context.Background())
	l := &link{node: node, name: rand.Text(), cancel: cancel, heard: map[string]*neighbour{}}
	ways := 1
	if _, cluster := b.client.(*goredis.ClusterClient); cluster {
		ways = shardedWays
	}
	for n := range ways {
		prefix := "penstock"
		if ways > 1 {
			prefix += ":{" + strconv.Itoa(n) + "}"
		}
		w := &way{link: l, prefix: prefix, client: b.client, sharded: ways > 1, topics: map[string]*topicState{}}
		w.outbox = newOutbox(b.client, l.name, w.sharded)
		l.ways = append(l.ways, w)
	}
	for _, w := range l.ways { // which all know each other now
		go w.run(ctx)
	}
	go l.stayAlive(ctx)
	return l
}

// A link is this process as a node.
type link struct {
	node   broker.Handler
	name   string
	ways   []*way
	cancel context.CancelFunc

	mu     sync.Mutex
	closed bool
	heard  map[string]*neighbour // by node, this one included
}

// A neighbour is a node that was heard.
type neighbour struct {
	at   time.Time // the last time
	down bool      // it was silent for too long, and may be heard again
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
	w := l.way(topic)
	w.outbox.add(w.channel(topic), envelope{kind: kindPacket, packet: packet})
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
	l.ways[0].outbox.closeWith(l.ways[0].nodes(), envelope{kind: kindGoodbye})
	for _, w := range l.ways[1:] {
		w.outbox.close()
	}
	l.cancel()
}

// stayAlive says every second that the node is there, and looks who else is.
func (l *link) stayAlive(ctx context.Context) {
	ticker := time.NewTicker(aliveEvery)
	defer ticker.Stop()
	for {
		l.ways[0].outbox.add(l.ways[0].nodes(), envelope{kind: kindAlive})
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		l.buryTheSilent()
	}
}

// hear notes a sign of life, and reports whether its node had counted as down. Of who has
// said goodbye it may come too, another way: then silence follows.
func (l *link) hear(from string) (wasDown bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.heard[from]
	if n == nil {
		n = &neighbour{}
		l.heard[from] = n
	}
	wasDown = n.down
	*n = neighbour{at: time.Now()}
	return wasDown
}

// leaves is of a node that has said goodbye.
func (l *link) leaves(from string) {
	l.mu.Lock()
	n := l.heard[from]
	delete(l.heard, from)
	l.mu.Unlock()
	if n != nil && !n.down {
		l.node.NodeLeft(from)
	}
	for _, w := range l.ways {
		w.unfollow(from)
	}
}

// buryTheSilent believes in silence only if this node has heard itself meanwhile. What it
// knows of the dead it keeps for a while: they may only have been paused.
func (l *link) buryTheSilent() {
	l.mu.Lock()
	var down, gone []string
	if self := l.heard[l.name]; self != nil {
		for name, n := range l.heard {
			switch silence := self.at.Sub(n.at); {
			case silence > forgetAfter && n.down:
				delete(l.heard, name)
				gone = append(gone, name)
			case silence > silentFor && !n.down:
				n.down = true
				down = append(down, name)
			}
		}
	}
	l.mu.Unlock()
	for _, name := range down {
		l.node.NodeLeft(name)
	}
	for _, name := range gone {
		for _, w := range l.ways {
			w.unfollow(name)
		}
	}
}

// reachable gives the others time to be heard again after an interruption.
func (l *link) reachable() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name := range l.heard {
		l.heard[name].at = time.Now()
	}
}
