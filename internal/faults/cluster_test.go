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
