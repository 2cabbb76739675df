package redis

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	goredis "github.com/redis/go-redis/v9"

	"github.com/penstock-go/penstock/adapters/redis/internal/pubsub"
	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/appendqueue"
	"github.com/penstock-go/penstock/internal/batch"
	"github.com/penstock-go/penstock/internal/cluster"
	"github.com/penstock-go/penstock/internal/keyname"
	"github.com/penstock-go/penstock/internal/redisclient"
)

var _ broker.HistoryBroker = (*Broker)(nil)

// ConnectHistory adds a node that also uses histories. A topic's publications are a stream; its
// position, the state of its keys and its idempotency keys are stored under names that begin
// with penstock:{<partition>}:history:<topic>. All topics without publications share up to 512 small keys,
// which reads create. A position survives a change of the retention, and is kept for
// at least a day after the last publication has expired or the position was last read: reads extend its
// lifetime, about once an hour, which needs no memory.
//
// Redis must never evict keys: maxmemory-policy must be noeviction, otherwise a warning is logged with
// slog.Default. If its memory is full (maxmemory), Append returns an error with the code
// RESOURCE_EXHAUSTED, while all topics can still be read. A failover or a restart of Redis begins a new
// epoch of each topic. While a slot of a Cluster is moved, Append may return an error with the code
// UNAVAILABLE.
//
// A [broker.Durability] needs a [goredis.Client] or a [goredis.ClusterClient]. Replicas are asked with
// WAIT, the disk with WAITAOF (Redis 7.2), which block up to two connections of the client for each
// master and Durability, for at most 5 s. The first use asks a server whether it can confirm
// anything: if not, Append returns an error with the code FAILED_PRECONDITION.
func (b *Broker) ConnectHistory(handler broker.Callbacks, history broker.HistoryCallbacks) broker.HistoryNode {
	s := &historyNode{
		client:  b.engine.Client,
		engine:  b.engine,
		scripts: newHistoryScripts(),
		follows: follows{handler: history.Complete(), byChannel: map[string]*follow{}},
	}
	e := &historyEngine{Engine: b.engine, follows: &s.follows}
	s.Node = cluster.New(e).Connect(handler).(*cluster.Node)
	s.link = e.link
	s.queue = appendqueue.New(e.link.Path, s.append, s.confirm)
	s.reads = batch.New("redis: history", batch.HistoryTimeout, s.execReads, redisclient.HonorsDeadline(s.client))
	s.values = batch.New("redis: value", batch.HistoryTimeout, s.execValues, redisclient.HonorsDeadline(s.client))
	return s
}

// A historyNode is a node that uses histories.
type historyNode struct {
	*cluster.Node
	client  goredis.UniversalClient
	engine  *pubsub.Engine
	link    cluster.Link
	scripts historyScripts
	queue   *appendqueue.Queue[historyKeys]
	reads   *batch.Batcher[readRequest, any]
	values  *batch.Batcher[valueRequest, valueReply]
	follows follows

	confirmable sync.Map // the confirmableKeys that checkConfirmable has accepted

	policyChecked atomic.Bool
	closed        atomic.Bool // for reads
}

type (
	appendCall  = appendqueue.Call[historyKeys]
	appendBatch = appendqueue.Batch[historyKeys]
)

// historyKeys are the names of a topic's keys, which have the same slot.
type historyKeys struct {
	channel       cluster.Channel // its name is also that of the metadata
	stream, state string
	key           string // begins the names of idempotency keys
	first         string // the record of topics without metadata, see history_first.lua
}

// keyOf returns the partition of a name and a key for it. Without a Cluster, keys have a hash tag too,
// so that a proxy finds the keys of a script call on one server. The number of partitions must not
// change, since histories would be lost.
func (s *historyNode) keyOf(kind cluster.Kind, name string) (partition int, key string) {
	partition = s.engine.Channel(kind, name).Partition
	return partition, keyname.Join(s.partitionPrefix(partition)+":"+string(kind), []string{name})
}

// partitionPrefix begins the names of all keys of a partition.
func (s *historyNode) partitionPrefix(partition int) string {
	tag := strconv.Itoa(partition)
	if s.engine.Cluster != nil {
		tag = s.engine.Tags[partition]
	}
	return s.engine.Prefix + ":{" + tag + "}"
}

// keysOf returns the names for a topic.
func (s *historyNode) keysOf(topic string) historyKeys {
	partition, name := s.keyOf(historyChannel, topic)
	return historyKeys{
		channel: cluster.Channel{Name: name, Partition: partition},
		stream:  name + ":stream",
		state:   name + ":state",
		key:     name + ":key",
		first:   s.partitionPrefix(partition) + ":first:" + strconv.Itoa(int(hashOf(topic)%firstRecords)),
	}
}

// firstRecords is how many records there are. On a Cluster, it is one per partition.
const firstRecords = pubsub.Partitions

// Append stores and publishes a.
func (s *historyNode) Append(ctx context.Context, a broker.Append) (broker.Appended, error) {
	if ctx.Err() != nil {
		return broker.Appended{}, ctx.Err()
	}
	s.startPolicyCheck()
	keys := s.keysOf(a.Topic)
	return s.queue.Do(ctx, a, keys.channel.Partition, keys)
}

// append executes script calls in one round trip and sets the results of their publications.
func (s *historyNode) append(ctx context.Context, batches []*appendBatch) {
	batches = s.rejectUnconfirmable(batches)
	args, topics := make([][]any, len(batches)), make([][]topicCalls, len(batches))
	for i, b := range batches {
		topics[i] = groupByTopic(b.Calls)
		args[i] = s.appendArgs(topics[i], b.IsDurable)
	}
	failed := false
	for i, reply := range s.scripts.append.Run(ctx, s.client, args) {
		results, err := reply.Slice()
		if err == nil {
			if batches[i].IsDurable {
				results = setLineage(batches[i], results)
			}
			setResults(topics[i], results)
			continue
		}
		failed = true
		err = storeError("publication", err)
		for _, c := range batches[i].Calls {
			c.Err = err
		}
	}
	if failed && s.engine.Cluster != nil {
		s.link.(*pubsub.Link).ReloadTopology()
	}
}

// topicCalls are the publications of one topic in a script call, in their order.
type topicCalls []*appendCall

// groupByTopic returns the topics, those of the same retention one after the other. The last
// publication of a topic has the newest retention.
func groupByTopic(calls []*appendCall) (topics []topicCalls) {
	index := make(map[string]int, len(calls))
	mixed := false
	for _, c := range calls {
		i, ok := index[c.Keys.stream]
		if !ok {
			i = len(topics)
			index[c.Keys.stream] = i
			topics = append(topics, nil)
		}
		topics[i] = append(topics[i], c)
		mixed = mixed || c.Retention != calls[0].Retention
	}
	if mixed {
		slices.SortStableFunc(topics, func(a, b topicCalls) int {
			r, other := a.retention(), b.retention()
			return cmp.Or(cmp.Compare(r.Messages, other.Messages), cmp.Compare(r.Age, other.Age), cmp.Compare(r.Bytes, other.Bytes))
		})
	}
	return topics
}

func (calls topicCalls) retention() broker.Retention { return calls[len(calls)-1].Retention }

// Flags of publications in the script.
const (
	flagKey = 1 << iota
	flagState
	flagRemoved
	flagFence
	flagLast
	flagEpoch
)

// appendArgs returns the arguments of a script call, see history_append.lua.
func (s *historyNode) appendArgs(topics []topicCalls, withLineage bool) []any {
	publish := "PUBLISH"
	if s.engine.Cluster != nil {
		publish = "SPUBLISH"
	}
	keys := []any{nil}
	argv := []any{newEpoch(), publish, broker.IdempotencyTime.Milliseconds(), withLineage}
	for i := 0; i < len(topics); {
		r, same := topics[i].retention(), i
		for same < len(topics) && topics[same].retention() == r {
			same++
		}
		stream, metadata := lifetimes(r)
		argv = append(argv, max(r.Messages, 1), stream, metadata, max(r.Bytes, 0), same-i)
		for ; i < same; i++ {
			k := topics[i][0].Keys
			keys = append(keys, k.channel.Name, k.stream, k.first)
			argv = append(argv, len(topics[i]))
			for _, c := range topics[i] {
				keys, argv = appendCallArgs(c, keys, argv)
			}
		}
	}
	keys[0] = len(keys) - 1
	return append(keys, argv...)
}

// appendCallArgs appends the arguments of one publication.
func appendCallArgs(c *appendCall, keys, argv []any) (newKeys, newArgv []any) {
	flags := 0
	if c.IdempotencyKey != "" {
		flags |= flagKey
		keys = append(keys, keyname.Join(c.Keys.key, []string{c.IdempotencyKey}))
	}
	if c.StateKey != "" {
		flags |= flagState
		keys = append(keys, c.Keys.state)
	}
	if c.Removed && c.StateKey != "" {
		flags |= flagRemoved
	}
	if c.Fence != 0 {
		flags |= flagFence
	}
	if c.Last {
		flags |= flagLast
	}
	if c.Epoch != "" {
		flags |= flagEpoch
	}
	argv = append(argv, flags, frameText(&c.Append))
	if c.StateKey != "" {
		argv = append(argv, c.StateKey)
	}
	if c.Fence != 0 {
		argv = append(argv, c.Fence)
	}
	if c.Epoch != "" {
		argv = append(argv, c.Epoch)
	}
	return keys, argv
}

// setResults sets the results of a script call. Results that are not as expected may nevertheless
// mean that something was stored.
func setResults(topics []topicCalls, results []any) {
	for _, calls := range topics {
		var epoch string
		if len(results) > 0 {
			epoch, _ = results[0].(string)
			results = results[1:]
		}
		for _, c := range calls {
			var reply any
			if len(results) > 0 {
				reply, results = results[0], results[1:]
			}
			c.Result, c.Err = parseAppended(&c.Append, epoch, reply)
		}
	}
}

// Close ends the node. Publications that are in flight have their results before it returns, unless
// ctx is done.
func (s *historyNode) Close(ctx context.Context) error {
	s.closed.Store(true)
	s.follows.close()
	s.queue.Close()
	err := s.Node.Close(ctx)
	s.queue.Wait(ctx)
	return err
}

// Kill ends the node as a crash does, for tests.
func (s *historyNode) Kill() {
	s.closed.Store(true)
	s.follows.close()
	s.queue.Close()
	s.Node.Kill()
}
