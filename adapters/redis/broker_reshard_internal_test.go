package redis

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/redis/internal/pubsub"
	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/cluster"
	"github.com/penstock-go/penstock/internal/redistest"
	"github.com/penstock-go/penstock/internal/sequencer"
	"github.com/penstock-go/penstock/internal/testscale"
)

// moveSlot moves a slot with its keys between two of the servers, as redis-cli --cluster reshard
// does. It calls between after each of the keys.
func moveSlot(t *testing.T, servers []*goredis.Client, slot, from, to int, between func()) {
	t.Helper()
	ctx := t.Context()
	idOf := func(server int) string { return servers[server].Do(ctx, "cluster", "myid").Val().(string) }
	require.NoError(t, servers[to].Do(ctx, "cluster", "setslot", slot, "importing", idOf(from)).Err())
	require.NoError(t, servers[from].Do(ctx, "cluster", "setslot", slot, "migrating", idOf(to)).Err())
	host, port, err := net.SplitHostPort(servers[to].Options().Addr)
	require.NoError(t, err)
	for {
		keys, err := servers[from].ClusterGetKeysInSlot(ctx, slot, 1).Result()
		require.NoError(t, err)
		if len(keys) == 0 {
			break
		}
		require.Eventually(t, func() bool { // the target rejects it while the cluster is down
			return servers[from].Migrate(ctx, host, port, keys[0], 0, 10*time.Second).Err() == nil
		}, time.Minute, 10*time.Millisecond)
		between()
	}
	id := idOf(to)
	for i := range servers { // the new owner first, then the old one
		server := (to + i*(from-to+len(servers))) % len(servers)
		require.NoError(t, servers[server].Do(ctx, "cluster", "setslot", slot, "node", id).Err())
	}
}

// adminsOf returns clients of servers.
func adminsOf(t *testing.T, servers []*redistest.Server) (admins []*goredis.Client) {
	for _, s := range servers {
		admins = append(admins, s.Client(t))
	}
	return admins
}

// moveFromOwner moves a slot from its first owner to another server.
func moveFromOwner(t *testing.T, servers *redistest.Cluster, slot int, between func()) {
	t.Helper()
	from := slot * len(servers.Nodes) / pubsub.SlotCount
	moveSlot(t, adminsOf(t, servers.Nodes), slot, from, (from+1)%len(servers.Nodes), between)
}

// A reshardGroup is topics of the same kind.
type reshardGroup struct{ history, moves bool }

// A reshardTopic is what a node receives on a topic.
type reshardTopic struct {
	reshardGroup
	name string

	mu       sync.Mutex
	sent     int // the last number; that of a topic with a history is its position
	received int // the last number
	lost     int // numbers that were skipped
	repeated int // or reordered
	reports  int // of losses
	last     time.Time
	silence  time.Duration // the longest one
}

func (r *reshardTopic) receive(number int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if number <= r.received {
		r.repeated++
		return
	}
	r.lost += number - r.received - 1
	if r.received > 0 {
		r.silence = max(r.silence, time.Since(r.last))
	}
	r.received, r.last = number, time.Now()
}

// A resharding is two nodes on a Cluster, of which one publishes on topics of the first master,
// with and without histories, while the first slots of that master move to another one. One half of
// the topics moves.
type resharding struct {
	slots      int // that move
	topics     map[string]*reshardTopic
	sequencers map[string]*sequencer.Sequencer
	receiver   *countedNode
	publisher  *observedNode
}

// startResharding returns when the receiver follows all topics.
func startResharding(t *testing.T, client func() goredis.UniversalClient, slots, plain, histories int) *resharding {
	t.Helper()
	r := &resharding{slots: slots, topics: map[string]*reshardTopic{}, sequencers: map[string]*sequencer.Sequencer{}}
	ready := make(chan struct{}) // closed when all topics and sequencers exist
	var subscribed atomic.Int64
	r.receiver = &countedNode{HistoryNode: NewBroker(client()).ConnectHistory(broker.Handler{
		Receive: func(topic, _ string, packet []byte) {
			<-ready
			r.topics[topic].receive(number(string(packet)))
		},
		Subscribed: func(string) { subscribed.Add(1) },
		MessagesLost: func(topic string, _ int) {
			<-ready
			r.topics[topic].mu.Lock()
			defer r.topics[topic].mu.Unlock()
			r.topics[topic].reports++
		},
	}, broker.HistoryHandler{
		Published: func(topic string, p broker.Publication) { <-ready; r.sequencers[topic].Publish(p) },
		Following: func(topic string) { <-ready; r.sequencers[topic].Following() },
	})}
	t.Cleanup(r.receiver.HistoryNode.(*historyNode).Kill)
	r.publisher = connectHistory(t, client())
	reader := sequencer.NewReader(r.receiver)
	for _, topic := range r.chooseTopics(plain, histories) {
		if r.topics[topic.name] = topic; !topic.history {
			r.receiver.Subscribe(topic.name)
			continue
		}
		r.sequencers[topic.name] = sequencer.New(reader, topic.name, retention, sequencer.Sink{
			Deliver: func(p broker.Publication) { topic.receive(int(p.Position.Offset)) },
			Lost: func(l sequencer.Loss) {
				assert.False(t, l.Reset || l.To > 0, "%s: %+v", topic.name, l) // only the end of an epoch
			},
		})
		t.Cleanup(r.sequencers[topic.name].Close)
	}
	close(ready)
	require.Eventually(t, func() bool { return subscribed.Load() == int64(plain) }, time.Minute, time.Millisecond)
	for _, s := range r.sequencers {
		require.Eventually(t, func() bool { _, known := s.Position(); return known }, time.Minute, time.Millisecond)
	}
	return r
}

// chooseTopics returns topics of which half are in the slots that move, and the others in the next
// ones.
func (r *resharding) chooseTopics(plain, histories int) (topics []*reshardTopic) {
	e, counts := r.publisher.engine, map[reshardGroup]int{}
	for n := 0; len(topics) < plain+histories; n++ {
		name, group := fmt.Sprint("room/", n), reshardGroup{history: n%2 == 1}
		kind, want := cluster.TopicChannel, plain
		if group.history {
			kind, want = historyChannel, histories
		}
		slot := int(pubsub.SlotOf(e.Tags[e.Channel(kind, name).Partition]))
		group.moves = slot < r.slots
		if slot < 2*r.slots && counts[group] < want/2 {
			counts[group]++
			topics = append(topics, &reshardTopic{reshardGroup: group, name: name})
		}
	}
	return topics
}

// publish publishes on a topic until stop is closed.
func (r *resharding) publish(t *testing.T, topic *reshardTopic, stop <-chan struct{}) {
	every := 50 * time.Millisecond
	if topic.history {
		every = 250 * time.Millisecond
	}
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-stop:
			return
		case <-ticker.C:
		}
		next, err := topic.sent+1, error(nil)
		if topic.history {
			var appended broker.Appended
			appended, err = r.publisher.Append(t.Context(), broker.Append{Topic: topic.name, Retention: retention, Packet: []byte("packet")})
			next = int(appended.Position.Offset)
		} else {
			err = r.publisher.Publish(topic.name, strconv.AppendInt(nil, int64(next), 10))
		}
		if err == nil {
			topic.mu.Lock()
			topic.sent = next
			topic.mu.Unlock()
		}
	}
}

// run publishes on all topics while move runs, and until what was lost meanwhile has been reported.
// It returns the number of reads of topics.
func (r *resharding) run(t *testing.T, move func()) (reads int64) {
	t.Helper()
	stop := make(chan struct{})
	var publishing sync.WaitGroup
	for _, topic := range r.topics {
		publishing.Go(func() { r.publish(t, topic, stop) })
	}
	for _, topic := range r.topics {
		topic.await(t, 3)
		topic.mu.Lock()
		topic.silence = 0
		topic.mu.Unlock()
	}
	r.receiver.topics.Store(0)
	move()
	time.Sleep(3 * time.Second) // longer than until a loss is reported
	close(stop)
	publishing.Wait()
	for _, topic := range r.topics {
		topic.await(t, topic.sent)
	}
	return r.receiver.topics.Load()
}

// await waits until a number was received.
func (r *reshardTopic) await(t *testing.T, number int) {
	t.Helper()
	require.Eventually(t, func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.received >= number
	}, time.Minute, 5*time.Millisecond, r.name)
}

// log logs the sums of the topics that move, and of the others.
func (r *resharding) log(t *testing.T) {
	t.Helper()
	for _, group := range []reshardGroup{{}, {moves: true}, {history: true}, {history: true, moves: true}} {
		topics, messages, lost, reports, silence := 0, 0, 0, 0, time.Duration(0)
		for _, topic := range r.topics {
			if topic.reshardGroup == group {
				topics, messages, lost, reports = topics+1, messages+topic.sent, lost+topic.lost, reports+topic.reports
				silence = max(silence, topic.silence)
			}
		}
		t.Logf("%+v: %d topics, %d messages, %d lost, %d reports, silent for up to %v", group, topics, messages, lost, reports, silence.Round(time.Millisecond))
	}
}

// check requires that nothing was repeated or reordered, that topics with a history and topics
// whose slots stay have lost nothing, and that the losses of others were few and reported.
func (r *resharding) check(t *testing.T) {
	t.Helper()
	for name, topic := range r.topics {
		assert.Zero(t, topic.repeated, name)
		if topic.history || !topic.moves {
			assert.Zero(t, topic.lost, name)
			assert.Zero(t, topic.reports, name)
			continue
		}
		assert.True(t, topic.lost == 0 || topic.reports > 0, "%s: a loss was not reported", name)
		assert.LessOrEqual(t, topic.lost, topic.sent/3, name)
	}
}

// TestBroker_Resharding moves slots while a node publishes. Topics whose slots stay must not
// notice. The others are interrupted for the time that their slot needs, and their histories are
// read for that.
func TestBroker_Resharding(t *testing.T) {
	t.Parallel()
	slots, histories := testscale.Tiers(150, 400, 1000), testscale.Tiers(40, 100, 240)
	servers := redistest.StartCluster(t)
	admins := adminsOf(t, servers.Nodes)
	r := startResharding(t, func() goredis.UniversalClient { return servers.Client(t) }, slots, testscale.Tiers(20, 30, 60), histories)
	reads := r.run(t, func() {
		for slot := range slots {
			moveSlot(t, admins, slot, 0, 1, func() {})
			time.Sleep(5 * time.Millisecond) // about as long as the round trips of redis-cli take
		}
	})
	r.log(t)
	t.Logf("%d reads for %d topics with histories that have moved", reads, histories/2)
	assert.LessOrEqual(t, reads, int64(6*histories/2))
	r.check(t)
}

// TestBroker_ClusterThatIsDownInterruptsNothing subscribes while the cluster rejects that, because
// one slot has no owner, as it does if it is configured to. Other subscriptions of the same
// connection remain, and this one is made when the slot has one.
func TestBroker_ClusterThatIsDownInterruptsNothing(t *testing.T) {
	testscale.FullOnly(t, "TestBroker_Resharding")
	t.Parallel()
	servers := redistest.StartCluster(t)
	admin := servers.Nodes[0].Client(t)
	n := connect(servers.Client(t))
	t.Cleanup(n.close)
	var topics []string // of the first master
	e := newEngine(servers.Client(t))
	for i := 0; len(topics) < 2; i++ {
		topic := fmt.Sprint("topic ", i)
		if int(pubsub.SlotOf(e.Tags[e.Channel(cluster.TopicChannel, topic).Partition])) < pubsub.SlotCount/len(servers.Nodes) {
			topics = append(topics, topic)
		}
	}
	n.Subscribe(topics[0])
	n.eventually(t, "subscribed", func() bool { return n.subscribed == 1 })
	slot := 0 // without a partition
	for slices.ContainsFunc(e.Tags, func(tag string) bool { return int(pubsub.SlotOf(tag)) == slot }) {
		slot++
	}
	require.NoError(t, admin.ConfigSet(t.Context(), "cluster-allow-pubsubshard-when-down", "no").Err())
	require.NoError(t, admin.ClusterDelSlots(t.Context(), slot).Err())
	require.Eventually(t, func() bool {
		return strings.Contains(admin.ClusterInfo(t.Context()).Val(), "cluster_state:fail")
	}, time.Minute, time.Millisecond)
	servers.Nodes[0].ResetStats(t)
	n.Subscribe(topics[1])
	require.Eventually(t, func() bool {
		_, stats, _ := strings.Cut(admin.Info(t.Context(), "commandstats").Val(), "cmdstat_ssubscribe:calls=0,")
		_, rejected, _ := strings.Cut(stats, "rejected_calls=")
		return number(rejected) >= 2
	}, time.Minute, 5*time.Millisecond, "the command is repeated, and rejected")
	require.NoError(t, admin.ClusterAddSlots(t.Context(), slot).Err())
	n.eventually(t, "subscribed", func() bool { return n.subscribed == 2 })
	time.Sleep(2 * time.Second) // in which an interruption would be reported
	n.mu.Lock()
	defer n.mu.Unlock()
	assert.Empty(t, n.reports)
	assert.Equal(t, 2, n.subscribed)
}
