package redis

import (
	"fmt"
	"net"
	"slices"
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

// TestBroker_ClusterThatIsDownInterruptsNothing subscribes while the cluster rejects that, because
// one slot has no owner, as it does if it is configured to. Other subscriptions of the same
// connection remain, and this one is made when the slot has one.
func TestBroker_ClusterThatIsDownInterruptsNothing(t *testing.T) {
	testscale.FullOnly(t, "TestPartitionTags_SpreadEvenly")
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
