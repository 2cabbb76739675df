package redis

import (
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/redis/internal/pubsub"
	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/cluster"
	"github.com/penstock-go/penstock/internal/redistest"
	"github.com/penstock-go/penstock/internal/testscale"
)

// An outage measures how long packets of a topic are lost.
type outage struct {
	mu        sync.Mutex
	delivered map[string]time.Time // when each packet arrived
	reported  map[string]time.Time // the last report of each topic
	published map[string]time.Time // when each packet was published
}

// measureOutage publishes on topics while fail runs, and after it until nothing is lost for three
// seconds. It returns the time from its beginning until the last loss, and checks that every loss
// was reported.
func measureOutage(t *testing.T, topics []string, a, b goredis.UniversalClient, fail func()) (lasted time.Duration) {
	t.Helper()
	o := &outage{delivered: map[string]time.Time{}, reported: map[string]time.Time{}, published: map[string]time.Time{}}
	locked := func(f func()) {
		o.mu.Lock()
		defer o.mu.Unlock()
		f()
	}
	subscribed := make(chan struct{}, 100*len(topics))
	receiver := &node{Node: NewBroker(b).Connect(broker.Callbacks{
		Receive:      func(_, _ string, packet []byte) { locked(func() { o.delivered[string(packet)] = time.Now() }) },
		Subscribed:   func(string) { subscribed <- struct{}{} },
		MessagesLost: func(topic string, _ int) { locked(func() { o.reported[topic] = time.Now() }) },
		NodeLeft:     func(string) {},
	})}
	t.Cleanup(receiver.close)
	publisher := connect(a)
	t.Cleanup(publisher.close)
	for _, topic := range topics {
		receiver.Subscribe(topic)
	}
	for range topics {
		<-subscribed
	}
	publish := func(d time.Duration) {
		for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
			for _, topic := range topics {
				packet := fmt.Sprintf("%s %d", topic, len(o.published))
				o.published[packet] = time.Now()
				_ = publisher.Publish(topic, []byte(packet))
			}
		}
	}
	publish(3 * time.Second)
	failed := make(chan struct{})
	began := time.Now()
	go func() {
		defer close(failed)
		fail()
	}()
	publish(12 * time.Second)
	<-failed
	for {
		published := time.Since(began)
		time.Sleep(3 * time.Second) // for the last report
		locked(func() { lasted = o.lastLoss(t, began) })
		if published-lasted > 3*time.Second || published > time.Minute {
			return lasted
		}
		publish(3 * time.Second) // on a busy machine, everything takes longer
	}
}

// lastLoss returns when the last packet that is lost was published, and checks that every loss has
// been reported.
func (o *outage) lastLoss(t *testing.T, began time.Time) (last time.Duration) {
	t.Helper()
	lost := 0
	for packet, at := range o.published {
		if _, ok := o.delivered[packet]; ok {
			continue
		}
		lost++
		topic, _, _ := strings.Cut(packet, " ")
		require.True(t, o.reported[topic].After(at), "the loss of %s was not reported", packet)
		last = max(last, at.Sub(began))
	}
	t.Logf("%d of %d packets were lost; the last %v after the beginning of the failure", lost, len(o.published), last.Round(time.Millisecond))
	return last
}

// recovered is the most that an outage lasts: less than measureOutage continues, which is a minute.
// It takes 3 to 5 seconds on an idle machine.
const recovered = 50 * time.Second

// TestBroker_FollowsPlannedFailover lets a sentinel promote the replica while the master runs, so
// that all connections stay open.
func TestBroker_FollowsPlannedFailover(t *testing.T) {
	testscale.FullOnly(t, "TestBroker_ReportsLossWhenClientReconnects")
	t.Parallel()
	s := redistest.StartSentinel(t)
	lasted := measureOutage(t, []string{"news"}, s.Client(t), s.Client(t), func() { s.Promote(t) })
	assert.Less(t, lasted, recovered)
}

func TestBroker_FollowsFailoverOfClusterMaster(t *testing.T) {
	testscale.FullOnly(t, "TestHistory_RestartBeginsEpoch")
	t.Parallel()
	servers, client := startReplicatedCluster(t)
	topics := make([]string, 30)
	for i := range topics {
		topics[i] = fmt.Sprint("topic", i)
	}
	lasted := measureOutage(t, topics, client(), client(), servers[1].Stop)
	assert.Less(t, lasted, recovered)
}

// startReplicatedCluster starts a cluster of three masters with a replica each. The first three
// servers are the masters.
func startReplicatedCluster(t *testing.T) (servers []*redistest.Server, client func() goredis.UniversalClient) {
	t.Helper()
	ctx := t.Context()
	const masters = 3
	opts := &goredis.ClusterOptions{}
	var admins []*goredis.Client
	for i := range 2 * masters {
		s := redistest.Start(t, "--cluster-enabled", "yes", "--cluster-node-timeout", "2000")
		servers, opts.Addrs = append(servers, s), append(opts.Addrs, s.Addr)
		admins = append(admins, s.Client(t))
		require.NoError(t, admins[i].Do(ctx, "cluster", "set-config-epoch", i+1).Err())
		if i < masters {
			require.NoError(t, admins[i].ClusterAddSlotsRange(ctx, i*pubsub.SlotCount/masters, (i+1)*pubsub.SlotCount/masters-1).Err())
		}
		host, port, err := net.SplitHostPort(servers[0].Addr)
		require.NoError(t, err)
		require.NoError(t, admins[i].ClusterMeet(ctx, host, port).Err())
	}
	for i := range masters {
		id := admins[i].Do(ctx, "cluster", "myid").Val()
		require.Eventually(t, func() bool {
			return admins[masters+i].Do(ctx, "cluster", "replicate", id).Err() == nil
		}, time.Minute, 50*time.Millisecond)
	}
	for i, admin := range admins {
		require.Eventually(t, func() bool {
			info := admin.ClusterInfo(ctx).Val()
			return strings.Contains(info, "cluster_state:ok") && strings.Contains(info, "cluster_known_nodes:6") &&
				(i < masters || strings.Contains(admin.Info(ctx, "replication").Val(), "master_link_status:up"))
		}, time.Minute, 50*time.Millisecond)
	}
	require.Eventually(t, func() bool { return strings.Count(admins[0].ClusterNodes(ctx).Val(), "slave") == masters }, time.Minute, 50*time.Millisecond)
	return servers, func() goredis.UniversalClient {
		c := goredis.NewClusterClient(opts)
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
}

// TestBroker_FollowsMovedSlot moves the slot of a topic to another master, which ends the
// subscription.
func TestBroker_FollowsMovedSlot(t *testing.T) {
	testscale.FullOnly(t, "TestPartitionTags_SpreadEvenly")
	t.Parallel()
	servers := redistest.StartCluster(t)
	e := newEngine(servers.Client(t))
	slot := pubsub.SlotOf(e.Tags[e.Channel(cluster.TopicChannel, "news").Partition])
	admins := make([]*goredis.Client, len(servers.Nodes))
	for i, s := range servers.Nodes {
		admins[i] = s.Client(t)
	}
	owner := int(slot) * len(admins) / pubsub.SlotCount
	id := admins[(owner+1)%len(admins)].Do(t.Context(), "cluster", "myid").Val()
	lasted := measureOutage(t, []string{"news", "topic"}, servers.Client(t), servers.Client(t), func() {
		for i := range admins { // the new owner first
			admin := admins[(owner+1+i)%len(admins)]
			assert.NoError(t, admin.Do(t.Context(), "cluster", "setslot", slot, "node", id).Err())
		}
	})
	assert.Less(t, lasted, recovered)
}

func TestPartitionTags_SpreadEvenly(t *testing.T) {
	t.Parallel()
	tags := newEngine(goredis.NewClusterClient(&goredis.ClusterOptions{})).Tags
	for masters := 1; masters <= 64; masters++ {
		counts := make([]int, masters)
		for _, tag := range tags {
			counts[int(pubsub.SlotOf(tag))*masters/pubsub.SlotCount]++
		}
		for _, count := range counts {
			assert.InDelta(t, float64(len(tags))/float64(masters), count, 2.5, "%d masters", masters)
		}
	}
	assert.EqualValues(t, 12739, pubsub.SlotOf("123456789")) // the specification's example, 0x31C3
}
