package redis

import (
	"context"
	"strconv"
	"sync"

	goredis "github.com/redis/go-redis/v9"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/batch"
	"github.com/penstock-go/penstock/internal/cluster"
)

var _ broker.HistoryBroker = (*Broker)(nil)

// ConnectHistory adds a node that also uses histories. A topic's publications are a stream; its
// position, the state of its keys and its idempotency keys are kept beside it, under names that begin
// with penstock:{<partition>}:history. A position survives a change of the retention, and is kept for
// a day after the last publication has expired.
//
// Redis must never evict keys: maxmemory-policy must be noeviction, otherwise a warning is logged with
// slog.Default. If its memory is full, Append returns an error with the code RESOURCE_EXHAUSTED, while
// topics can still be read. A failover or a restart of Redis begins a new epoch of each topic. While
// a slot of a Cluster is moved, Append may return an error with the code UNAVAILABLE.
func (b *Broker) ConnectHistory(handler broker.Handler, history broker.HistoryHandler) broker.HistorySession {
	s := &historySession{
		client:  b.engine.client,
		engine:  b.engine,
		scripts: newHistoryScripts(),
		follows: follows{handler: history, byChannel: map[string]*follow{}},
	}
	e := &historyEngine{engine: b.engine, follows: &s.follows}
	s.Session = cluster.New(e).Connect(handler).(*cluster.Session)
	s.link = e.link
	s.queue = newAppendQueue(e.link.Path, s.append)
	s.reads = batch.New("redis: history", s.execReads, honorsDeadline(s.client))
	return s
}

// A historySession is a node that uses histories.
type historySession struct {
	*cluster.Session
	client  goredis.UniversalClient
	engine  *engine
	link    cluster.Link
	scripts historyScripts
	queue   *appendQueue
	reads   *batch.Batcher[readRequest, any]
	follows follows
	checked sync.Once // the eviction policy
}

// historyKeys are the names of a topic's keys and of its channel, which have the same slot.
type historyKeys struct {
	partition                    int
	channel                      string
	metadata, stream, state, key string // key begins the names of idempotency keys
}

// keysOf returns the names for a topic. Without a Cluster, names have a hash tag too, so that a proxy
// finds the keys of a script call on one server. The number of partitions must not change, since
// histories would be lost.
func (s *historySession) keysOf(topic string) historyKeys {
	channel := s.engine.Channel(historyChannel, topic)
	tag := strconv.Itoa(channel.Partition)
	if s.engine.cluster != nil {
		tag = s.engine.tags[channel.Partition]
	}
	prefix, name := "penstock:{"+tag+"}:history-", keyName("", []string{topic})
	return historyKeys{
		partition: channel.Partition,
		channel:   channel.Name,
		metadata:  prefix + "metadata" + name,
		stream:    prefix + "stream" + name,
		state:     prefix + "state" + name,
		key:       prefix + "key" + name,
	}
}

// Append stores and publishes a.
func (s *historySession) Append(ctx context.Context, a broker.Append) (broker.Appended, error) {
	s.checked.Do(s.startPolicyCheck)
	return s.queue.do(ctx, &appendCall{
		Append: a,
		keys:   s.keysOf(a.Topic),
		bytes:  len(a.Packet) + len(a.StateKey) + len(a.IdempotencyKey) + callOverhead,
	})
}

// append executes script calls in one round trip and sets the results of their publications.
func (s *historySession) append(ctx context.Context, batches []*appendBatch) {
	args, topics := make([][]any, len(batches)), make([][]topicCalls, len(batches))
	for i, b := range batches {
		topics[i] = groupByTopic(b.calls)
		args[i] = s.appendArgs(topics[i])
	}
	failed := false
	for i, reply := range s.scripts.append.run(ctx, s.client, args) {
		results, err := reply.Slice()
		if err == nil {
			setResults(topics[i], results)
			continue
		}
		failed = true
		err = appendError(err)
		for _, c := range batches[i].calls {
			c.err = err
		}
	}
	if failed && s.engine.cluster != nil {
		s.link.(*link).reloadTopology()
	}
}

// topicCalls are the publications of one topic in a script call, in their order.
type topicCalls []*appendCall

func groupByTopic(calls []*appendCall) (topics []topicCalls) {
	index := make(map[string]int, len(calls))
	for _, c := range calls {
		i, ok := index[c.keys.stream]
		if !ok {
			i = len(topics)
			index[c.keys.stream] = i
			topics = append(topics, nil)
		}
		topics[i] = append(topics[i], c)
	}
	return topics
}

// appendArgs returns the arguments of a script call, see history_append.lua.
func (s *historySession) appendArgs(topics []topicCalls) []any {
	publish := "PUBLISH"
	if s.engine.cluster != nil {
		publish = "SPUBLISH"
	}
	keys := []any{nil}
	argv := []any{newEpoch(), publish, broker.IdempotencyTime.Milliseconds()}
	for _, calls := range topics {
		// The last publication has the newest retention.
		names, r := &calls[0].keys, calls[len(calls)-1].Retention
		stream, metadata := lifetimes(r)
		keys = append(keys, names.metadata, names.stream, names.state)
		argv = append(argv, len(calls), names.channel, max(r.Messages, 1), stream, metadata, max(r.Bytes, 0))
		for _, c := range calls {
			keyed := 0
			if c.IdempotencyKey != "" {
				keyed = 1
				keys = append(keys, keyName(names.key, []string{c.IdempotencyKey}))
			}
			argv = append(argv, frameText(&c.Append), keyed, c.StateKey, c.Removed)
		}
	}
	keys[0] = len(keys) - 1
	return append(keys, argv...)
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
			c.result, c.err = parseAppended(epoch, reply)
		}
	}
}

// Close ends the session. Publications that are in flight have their results before it returns, unless
// ctx is done.
func (s *historySession) Close(ctx context.Context) error {
	s.follows.close()
	s.queue.close()
	err := s.Session.Close(ctx)
	s.queue.wait(ctx)
	return err
}

// Kill ends the node as a crash does, for tests.
func (s *historySession) Kill() {
	s.follows.close()
	s.queue.close()
	s.Session.Kill()
}
