package redis

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/redis/internal/pubsub"
	"github.com/penstock-go/penstock/internal/cluster"
	"github.com/penstock-go/penstock/internal/redistest"
	"github.com/penstock-go/penstock/internal/testscale"
)

// checkFailover publishes on a topic while fail runs, and until packets arrive again. Each loss must be
// reported, and none may follow.
func checkFailover(t *testing.T, topic string, publisherClient, subscriber goredis.UniversalClient, fail func()) {
	t.Helper()
	a, b := connectPair(t, publisherClient, subscriber, topic)
	p := &publisher{node: a, topic: topic}
	p.publishFor(time.Second)
	failed := make(chan struct{})
	go func() {
		defer close(failed)
		fail()
	}()
	p.publishFor(12 * time.Second)
	<-failed
	before := len(p.published)
	b.eventually(t, "delivery works again", func() bool {
		p.publish()
		return number(b.received[len(b.received)-1]) >= before
	})
	p.checkLosses(t, b)
	from := len(p.published)
	p.publishFor(3 * time.Second)
	b.eventually(t, "all packets", func() bool { return number(b.received[len(b.received)-1]) == len(p.published)-1 })
	b.mu.Lock()
	defer b.mu.Unlock()
	assert.Equal(t, strconv.Itoa(from), b.received[len(b.received)-(len(p.published)-from)], "nothing more is lost")
}

// TestBroker_FollowsPlannedFailover lets a sentinel promote the replica while the master runs, so
// that all connections stay open.
func TestBroker_FollowsPlannedFailover(t *testing.T) {
	testscale.FullOnly(t, "TestBroker_ReportsLossWhenClientReconnects")
	t.Parallel()
	s := redistest.StartSentinel(t)
	checkFailover(t, "news", s.Client(t), s.Client(t), func() { s.Promote(t) })
}

func TestBroker_FollowsFailoverOfClusterMaster(t *testing.T) {
	testscale.FullOnly(t, "TestHistory_RestartBeginsEpoch")
	t.Parallel()
	servers, client := startReplicatedCluster(t)
	e, topic := newEngine(client()), ""
	for i := 0; topic == ""; i++ {
		name := fmt.Sprint("topic", i)
		if int(pubsub.SlotOf(e.Tags[e.Channel(cluster.TopicChannel, name).Partition]))*3/pubsub.SlotCount == 1 {
			topic = name
		}
	}
	checkFailover(t, topic, client(), client(), servers[1].Stop)
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
	admins := adminsOf(t, servers.Nodes)
	owner := int(slot) * len(admins) / pubsub.SlotCount
	id := admins[(owner+1)%len(admins)].Do(t.Context(), "cluster", "myid").Val()
	checkFailover(t, "news", servers.Client(t), servers.Client(t), func() {
		for i := range admins { // the new owner first
			admin := admins[(owner+1+i)%len(admins)]
			assert.NoError(t, admin.Do(t.Context(), "cluster", "setslot", slot, "node", id).Err())
		}
	})
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
