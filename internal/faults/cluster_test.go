//go:build unix

package faults_test

import (
	"net"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/redistest"
)

const (
	masterCount = 3
	slotCount   = 16384
)

// startCluster starts a cluster of three masters, which are the first three servers, with a
// replica each.
func startCluster(t *testing.T) (servers []*redistest.Server, addrs []string) {
	t.Helper()
	ctx := t.Context()
	var admins []*goredis.Client
	for i := range 2 * masterCount {
		s := redistest.Start(t, "--cluster-enabled", "yes", "--cluster-node-timeout", "2000")
		servers, addrs, admins = append(servers, s), append(addrs, s.Addr), append(admins, s.Client(t))
		require.NoError(t, admins[i].Do(ctx, "cluster", "set-config-epoch", i+1).Err())
		if i < masterCount {
			require.NoError(t, admins[i].ClusterAddSlotsRange(ctx, i*slotCount/masterCount, (i+1)*slotCount/masterCount-1).Err())
		}
		host, port, err := net.SplitHostPort(servers[0].Addr)
		require.NoError(t, err)
		require.NoError(t, admins[i].ClusterMeet(ctx, host, port).Err())
	}
	for i := range masterCount {
		id := nodeID(t, servers[i])
		require.Eventually(t, func() bool {
			return admins[masterCount+i].Do(ctx, "cluster", "replicate", id).Err() == nil
		}, wait, 50*time.Millisecond)
	}
	for i, admin := range admins {
		require.Eventually(t, func() bool {
			info := admin.ClusterInfo(ctx).Val()
			return strings.Contains(info, "cluster_state:ok") && strings.Contains(info, "cluster_known_nodes:6") &&
				strings.Count(admin.ClusterNodes(ctx).Val(), "slave") == masterCount &&
				(i < masterCount || strings.Contains(admin.Info(ctx, "replication").Val(), "master_link_status:up"))
		}, wait, 50*time.Millisecond)
	}
	return servers, addrs
}

// nodeID returns the name of a server in its cluster.
func nodeID(t *testing.T, s *redistest.Server) string {
	t.Helper()
	id, err := s.Client(t).Do(t.Context(), "cluster", "myid").Text()
	require.NoError(t, err)
	return id
}

// killMaster kills the master of a third of the slots. Its replica becomes the master.
func killMaster(r *run) {
	r.ended = now()
	r.servers[1].Stop()
	r.awaitPromotion(r.servers[masterCount+1])
	time.Sleep(3 * time.Second) // until all nodes have noticed
}

// moveSlot moves the slot of a room to another master, which ends the subscriptions to it.
func moveSlot(r *run) {
	ctx := r.t.Context()
	admins := make([]*goredis.Client, masterCount)
	for i := range admins {
		admins[i] = r.servers[i].Client(r.t)
	}
	owner, channel := -1, ""
	for i, admin := range admins {
		if channels := admin.PubSubShardChannels(ctx, "*:topic:"+room(0)).Val(); len(channels) > 0 {
			owner, channel = i, channels[0]
		}
	}
	require.NotEmpty(r.t, channel, "no master has the room")
	slot := admins[owner].ClusterKeySlot(ctx, channel).Val()
	require.Zero(r.t, admins[owner].ClusterCountKeysInSlot(ctx, int(slot)).Val())
	id := nodeID(r.t, r.servers[(owner+1)%masterCount])
	r.ended = now()
	for i := range admins { // the new owner first
		require.NoError(r.t, admins[(owner+1+i)%masterCount].Do(ctx, "cluster", "setslot", slot, "node", id).Err())
	}
	var channels []string
	r.await("subscription at the new owner", func() bool {
		channels = admins[(owner+1)%masterCount].PubSubShardChannels(ctx, channel).Val()
		return len(channels) == 1
	})
	r.settle()
	nodes := admins[(owner+1)%masterCount].PubSubShardNumSub(ctx, channel).Val()[channel]
	r.tookEffect(len(channels) == 1, "slot %d; %d nodes subscribed at its new owner", slot, nodes)
	time.Sleep(3 * time.Second)
}
