// Package pubsub carries the messages of a broker through Redis Pub/Sub, or through sharded Pub/Sub
// on a Cluster.
package pubsub

import (
	"context"
	"hash/fnv"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/cluster"
	"github.com/penstock-go/penstock/internal/keyname"
)

// Structure, goroutines and locks of the broker's engine.
//
// An Engine belongs to a client. A Link (this file) is a node. It publishes through the client,
// and receives through receivers (receiver.go), of which each has one connection
// (connection.go): a fixed number of them, on a Cluster one for each master. A partition
// belongs to one receiver at a time. Histories receive on the same connections what
// their scripts publish.
//
// Goroutines:
//   - One per receiver, run, opens connections and decides which one is used. It ends with
//     Link.Close, or when the receiver's master has no partitions anymore.
//   - One per connection, read, ends with the connection.
//   - One per receiver while its connection is suspected, openStandby, opens another one.
//   - One per receiver while subscriptions change, that of receiver.changes. It alone sends
//     SUBSCRIBE and UNSUBSCRIBE on the connection that is used, so that these have the order of the
//     calls.
//   - On a Cluster, two per link, followTopology and loadTopology (topology.go). They end
//     with Link.Close.
//   - One per batch, in Link.Publish, since not every client ends with its context.
//
// Locks, in the order of acquisition: connection.mu is held while what arrives is handled.
// link.reporting is held while the state of subscriptions changes and Events.Confirmed or
// Interrupted are called about it, so that these calls have the order of the changes. link.mu
// guards the subscriptions and receivers; nothing is called under it and no goroutine waits under
// it. The methods of Link never acquire connection.mu or link.reporting.

// An Engine carries the messages of brokers.
type Engine struct {
	Client  goredis.UniversalClient
	Prefix  string                 // begins the names of keys and channels; without a colon
	Cluster *goredis.ClusterClient // nil without a Cluster
	Tags    []string               // of the partitions, on a Cluster: what their hash tags contain
}

// Connections is the number of connections on which a node receives. On a Cluster it has one for
// each master.
const Connections = 2

// New returns an engine, whose names of keys and channels begin with a prefix.
func New(client goredis.UniversalClient, prefix string) *Engine {
	e := &Engine{Client: client, Prefix: prefix}
	if c, ok := client.(*goredis.ClusterClient); ok {
		e.Cluster, e.Tags = c, partitionTags()
	}
	return e
}

// Channel returns the Redis channel of a name.
func (e *Engine) Channel(kind cluster.Kind, name string) cluster.Channel {
	h := fnv.New32a()
	_, _ = h.Write([]byte(name))
	count := Connections
	if e.Cluster != nil {
		count = len(e.Tags)
	}
	return e.channelIn(int(h.Sum32()%uint32(count)), kind, name)
}

func (e *Engine) channelIn(partition int, kind cluster.Kind, name string) cluster.Channel {
	prefix := e.Prefix + ":"
	if e.Cluster != nil {
		prefix += "{" + e.Tags[partition] + "}:"
	}
	return cluster.Channel{Name: keyname.Join(prefix+string(kind), []string{name}), Partition: partition}
}

// Connect adds a node.
func (e *Engine) Connect(node string, events cluster.Events) cluster.Link {
	ctx, cancel := context.WithCancel(context.Background())
	l := &Link{engine: e, node: node, events: events, ctx: ctx, cancel: cancel, channels: map[string]*channelState{}, receivers: map[*receiver]struct{}{}}
	if e.Cluster != nil {
		l.partitions = make([]*receiver, len(e.Tags))
		l.reload = make(chan struct{}, 1)
		l.loaded = make(chan struct{}, 1)
		go l.followTopology(ctx)
		go l.loadTopology(ctx)
		return l
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for range Connections {
		l.partitions = append(l.partitions, l.newReceiverLocked(e.Client))
	}
	return l
}

// A Link is a node.
type Link struct {
	engine *Engine
	node   string
	events cluster.Events
	ctx    context.Context //nolint:containedctx // of the goroutines, which end with Close
	cancel context.CancelFunc
	paths  atomic.Pointer[[]string] // by partition; nil if there is one path
	reload chan struct{}            // requests to reload the topology
	loaded chan struct{}            // it was reloaded

	reporting sync.Mutex // see above

	mu         sync.Mutex
	partitions []*receiver // those of the partitions; nil while the topology is unknown
	receivers  map[*receiver]struct{}
	probes     int // channels of them so far
	channels   map[string]*channelState
}

// A channelState is the state of one subscription.
type channelState struct {
	cluster.Channel
	wanted    bool // the node subscribes to the channel
	requested bool // SUBSCRIBE was sent, and no UNSUBSCRIBE after it
	pending   int  // SUBSCRIBE commands without a response yet
	confirmed bool // Confirmed was called since the last change
}

// reset forgets what a connection knew about the subscription.
func (c *channelState) reset() { c.requested, c.pending, c.confirmed = false, 0, false }

// SetSubscribed changes a subscription.
func (l *Link) SetSubscribed(channel cluster.Channel, subscribed bool) {
	l.mu.Lock()
	state := l.channels[channel.Name]
	if state == nil {
		state = &channelState{Channel: channel}
		l.channels[channel.Name] = state
	}
	state.wanted, state.confirmed = subscribed, false
	r := l.partitions[channel.Partition]
	if r == nil { // the receiver will subscribe to everything
		l.removeUnwantedLocked(state)
		l.mu.Unlock()
		return
	}
	r.changed = append(r.changed, channel.Name)
	l.mu.Unlock()
	r.changes.Add(r.applyChanges)
}

// removeUnwantedLocked removes the state of an unwanted channel unless a response is pending, which
// would otherwise be counted for a later subscription. l.mu must be held.
func (l *Link) removeUnwantedLocked(state *channelState) {
	if !state.wanted && state.pending == 0 {
		delete(l.channels, state.Name)
	}
}

// Path returns the address of the master of a partition.
func (l *Link) Path(partition int) string {
	if paths := l.paths.Load(); paths != nil {
		return (*paths)[partition]
	}
	return ""
}

// Publish publishes a batch in one round trip. Not every client ends with its context, so it does
// not wait for one that does not. What is published later nevertheless has numbers that receivers
// discard.
func (l *Link) Publish(ctx context.Context, batch []*cluster.Message) {
	pipe := l.engine.Client.Pipeline()
	results := make([]*goredis.IntCmd, len(batch))
	for i, m := range batch {
		if l.engine.Cluster != nil {
			results[i] = pipe.SPublish(ctx, m.Channel.Name, m.Payload)
		} else {
			results[i] = pipe.Publish(ctx, m.Channel.Name, m.Payload)
		}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = pipe.Exec(ctx) // each result has its error
	}()
	err := l.awaitResult(ctx, batch[0].Channel.Partition, done)
	for i, m := range batch {
		if m.Err = err; err == nil {
			m.Err = results[i].Err()
		}
	}
	if slices.ContainsFunc(batch, func(m *cluster.Message) bool { return m.Err != nil }) {
		l.ReloadTopology()
	}
}

var errMoved = errors.New("redis: another server has become the master, and the previous one does not respond")

// awaitResult waits for done. It returns an error if ctx is done before or, on a Cluster, if the
// partition has another master, while the old one does not respond.
func (l *Link) awaitResult(ctx context.Context, partition int, done <-chan struct{}) error {
	path := l.Path(partition)
	ticker := time.NewTicker(slowPublish)
	defer ticker.Stop()
	for {
		select {
		case <-done:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
			l.ReloadTopology()
			if l.Path(partition) != path {
				return errMoved
			}
		}
	}
}

// slowPublish is how long a master may take for a batch before the topology is reloaded.
const slowPublish = 500 * time.Millisecond

// Probes returns the probes of the receivers that are connected.
func (l *Link) Probes() (probes []cluster.Probe) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for r := range l.receivers {
		if c := r.current; c != nil {
			if probe := c.probe.Load(); probe != nil && probe == c.probed.Load() {
				probes = append(probes, cluster.Probe{Channel: *probe, Idle: since(&c.arrived)})
			}
		}
	}
	return probes
}

// Suspect opens another connection, and reloads the topology, which may have changed.
func (l *Link) Suspect(probe cluster.Channel) {
	if c := l.connectionOf(probe); c != nil {
		select {
		case c.suspected <- struct{}{}:
		default:
		}
	}
	l.ReloadTopology()
}

// Reconnect closes a connection, and reloads the topology, which may have changed.
func (l *Link) Reconnect(probe cluster.Channel) {
	if c := l.connectionOf(probe); c != nil {
		c.close()
	}
	l.ReloadTopology()
}

// connectionOf returns the connection with a probe, or nil.
func (l *Link) connectionOf(probe cluster.Channel) *connection {
	l.mu.Lock()
	defer l.mu.Unlock()
	for r := range l.receivers {
		if c := r.current; c != nil {
			if p := c.probe.Load(); p != nil && *p == probe {
				return c
			}
		}
	}
	return nil
}

// Close ends the goroutines of the link. Those of receivers may still call events.
func (l *Link) Close() { l.cancel() }

// interruptLocked reports the subscriptions of a partition, or of all partitions of a receiver, as
// interrupted. l.reporting must be held.
func (l *Link) interruptLocked(affected func(*channelState) bool) {
	l.mu.Lock()
	var interrupted []string
	for name, state := range maps.All(l.channels) {
		if !affected(state) {
			continue
		}
		if state.wanted && state.requested {
			interrupted = append(interrupted, name)
		}
		state.reset()
		l.removeUnwantedLocked(state)
	}
	l.mu.Unlock()
	if len(interrupted) > 0 {
		l.events.Interrupted(interrupted)
	}
}
