//go:build unix

package faults_test

import (
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/redistest"
)

var replicaFaults = []recoveryFault{
	{"replica promoted without the last publications", "redis", promoteWithLoss},
	{"clean failover", "redis", failOverCleanly},
}

// In the time in which two masters accept publications, a client that moves between nodes of
// different masters is not recovered.
var splitFaults = []recoveryFault{
	{"replica promoted, one node stays with the old master", "redis", splitMasters},
}

var sentinelFaults = []recoveryFault{
	{"failover by Sentinel, old master alive", "redis", promoteBySentinel},
	{"master under Sentinel killed", "redis", killSentinelMaster},
}

var clusterFaults = []recoveryFault{
	{"slot of a Cluster migrated", "redis", migrateSlot},
	{"planned failover in a Cluster", "redis", failClusterOver},
	{"master of a Cluster killed", "redis", killClusterMaster},
}

// replicate makes the replica follow the master, and waits until it is in sync.
func (r *recoveryRun) replicate() {
	r.demote()
	r.eventually("replica", func() bool { return r.info(r.replica, "master_link_status") == "up" })
	at := r.replicationOffset(r.server, "master_repl_offset") // the master may not send commands yet
	r.eventually("replica in sync", func() bool { return r.replicationOffset(r.replica, "slave_repl_offset") > at })
}

// demote makes the replica follow the master.
func (r *recoveryRun) demote() {
	host, port, err := net.SplitHostPort(r.backlog.addr)
	require.NoError(r.t, err)
	admin := r.replica.Client(r.t)
	require.NoError(r.t, admin.ConfigSet(r.t.Context(), "repl-timeout", "5").Err())
	require.NoError(r.t, admin.Do(r.t.Context(), "replicaof", host, port).Err())
}

func (r *recoveryRun) replicationOffset(s *redistest.Server, field string) int {
	offset, _ := strconv.Atoi(r.info(s, field))
	return offset
}

// promote makes the replica the master, and the master a replica without its data.
func (r *recoveryRun) promote() {
	require.NoError(r.t, r.replica.Client(r.t).Do(r.t.Context(), "replicaof", "no", "one").Err())
	r.mu.Lock()
	r.server, r.replica = r.replica, r.server
	r.mu.Unlock()
	r.backlog.redirect(r.server.Addr)
	r.backlog.restore()
}

// tops returns the sum of the last offsets of all topics.
func (r *recoveryRun) tops(s *redistest.Server) (sum int) {
	ctx, admin := r.t.Context(), s.Client(r.t)
	iter := admin.ScanType(ctx, 0, "*:history:*", 1000, "hash").Iterator()
	for iter.Next(ctx) {
		top, _ := strconv.Atoi(admin.HGet(ctx, iter.Val(), "o").Val())
		sum += top
	}
	return sum
}

func promoteWithLoss(r *recoveryRun, rng *rand.Rand) (string, bool) {
	r.backlog.refuse()
	time.Sleep(about(rng, time.Second))
	for _, link := range r.allLinks() {
		link.refuse()
	}
	lost := r.tops(r.server) - r.tops(r.replica)
	r.promote()
	for _, link := range r.allLinks() {
		link.redirect(r.server.Addr)
		link.restore()
	}
	r.replicate()
	return fmt.Sprintf("%d publications lost", lost), lost > 0
}

// failOverCleanly promotes the replica after it has received everything.
func failOverCleanly(r *recoveryRun, _ *rand.Rand) (string, bool) {
	ctx, old := r.t.Context(), r.server.Client(r.t)
	before := r.lineage(r.server)
	require.NoError(r.t, old.Do(ctx, "client", "pause", 10_000, "write").Err())
	r.eventually("replica in sync", func() bool {
		return r.info(r.server, "master_repl_offset") == r.info(r.replica, "slave_repl_offset")
	})
	lost := r.tops(r.server) - r.tops(r.replica)
	for _, link := range r.allLinks() {
		link.refuse()
	}
	r.promote()
	for _, link := range r.allLinks() {
		link.redirect(r.server.Addr)
		link.restore()
	}
	r.demote()
	require.NoError(r.t, old.Do(ctx, "client", "unpause").Err())
	r.replicate()
	return fmt.Sprintf("%d publications lost", lost), lost == 0 && r.lineage(r.server) != before
}

// splitMasters lets one node use the old master for some time.
func splitMasters(r *recoveryRun, rng *rand.Rand) (string, bool) {
	n := r.reserve(rng)
	defer r.release(n)
	r.backlog.refuse()
	r.promote()
	for _, link := range r.allLinks() {
		if link != n.link {
			link.redirect(r.server.Addr)
		}
	}
	before := r.tops(r.replica)
	time.Sleep(about(rng, time.Second))
	ok := waitFor(func() bool { return r.tops(r.replica) > before })
	isolated := r.tops(r.replica) - before
	n.link.redirect(r.server.Addr)
	r.replicate()
	return fmt.Sprintf("%d publications on the old master", isolated), ok
}

// promoteBySentinel asks for a failover while the master is alive. The old master accepts publications
// until it is demoted.
func promoteBySentinel(r *recoveryRun, _ *rand.Rand) (string, bool) {
	s := r.sentinel
	admin := goredis.NewSentinelClient(&goredis.Options{Addr: r.spec.Addrs[0]})
	defer func() { _ = admin.Close() }()
	r.eventually("replica in sync", func() bool { return r.info(s.Replica, "master_link_status") == "up" })
	begun := now()
	asked := time.Time{}
	ok := waitFor(func() bool {
		if time.Since(asked) > 10*time.Second && r.info(s.Replica, "role") == "slave" {
			if admin.Failover(r.t.Context(), r.spec.Master).Err() == nil {
				asked = time.Now() // Sentinel gives up if it takes too long
			}
		}
		return r.info(s.Replica, "role") == "master" && r.info(s.Master, "role") == "slave"
	})
	s.Master, s.Replica = s.Replica, s.Master
	return fmt.Sprintf("old master demoted after %d ms", (now()-begun)/1e6), ok
}

// killSentinelMaster must be the last fault of a run: the killed master is not started again.
func killSentinelMaster(r *recoveryRun, _ *rand.Rand) (string, bool) {
	r.eventually("replica in sync", func() bool {
		return r.info(r.sentinel.Replica, "role") == "slave" && r.info(r.sentinel.Replica, "master_link_status") == "up"
	})
	begun := now()
	r.sentinel.Master.Stop()
	ok := waitFor(func() bool { return r.info(r.sentinel.Replica, "role") == "master" })
	r.sentinel.Master = r.sentinel.Replica
	return fmt.Sprintf("replica promoted after %d ms", (now()-begun)/1e6), ok
}

// ownerOf returns the metadata of a topic and the index of the server that has it as a master.
func (r *recoveryRun) ownerOf(topic string) (key string, owner int) {
	ctx := r.t.Context()
	for i, s := range r.servers {
		admin := s.Client(r.t, func(opts *goredis.Options) { opts.MaxRetries = -1 })
		if !strings.Contains(admin.Info(ctx, "replication").Val(), "role:master") {
			continue
		}
		if keys := admin.ScanType(ctx, 0, "*:history:"+topic, 100_000, "hash").Iterator(); keys.Next(ctx) {
			return keys.Val(), i
		}
	}
	require.Fail(r.t, "no master has "+topic)
	return "", 0
}

// migrateSlot moves the slot of a topic with its keys to another master, as redis-cli does.
func migrateSlot(r *recoveryRun, rng *rand.Rand) (string, bool) {
	ctx := r.t.Context()
	key, from := r.ownerOf(r.names[rng.IntN(len(r.names))])
	masters := slices.DeleteFunc([]int{0, 1, 2, 3, 4, 5}, func(i int) bool {
		return i != from && r.info(r.servers[i], "role") != "master"
	})
	masters = append(masters, masters...)
	to := masters[slices.Index(masters, from)+1]
	source, target := r.servers[from].Client(r.t), r.servers[to].Client(r.t)
	slot := source.ClusterKeySlot(ctx, key).Val()
	require.NoError(r.t, target.Do(ctx, "cluster", "setslot", slot, "importing", nodeID(r.t, r.servers[from])).Err())
	require.NoError(r.t, source.Do(ctx, "cluster", "setslot", slot, "migrating", nodeID(r.t, r.servers[to])).Err())
	host, port, err := net.SplitHostPort(r.servers[to].Addr)
	require.NoError(r.t, err)
	moved, failures := 0, r.failures()
	for {
		keys := source.ClusterGetKeysInSlot(ctx, int(slot), 100).Val()
		if len(keys) == 0 {
			break
		}
		args := []any{"migrate", host, port, "", 0, 5000, "keys"}
		for _, key := range keys {
			args = append(args, key)
		}
		require.NoError(r.t, source.Do(ctx, args...).Err())
		moved += len(keys)
	}
	id := nodeID(r.t, r.servers[to])
	require.NoError(r.t, target.Do(ctx, "cluster", "setslot", slot, "node", id).Err())
	require.NoError(r.t, source.Do(ctx, "cluster", "setslot", slot, "node", id).Err())
	_, owner := r.ownerOf(key[strings.Index(key, ":history:")+len(":history:"):])
	return fmt.Sprintf("%d keys moved, %d failed attempts", moved, r.failures()-failures), moved > 0 && owner == to
}

// replicaOf returns the index of the replica of a server.
func replicaOf(server int) int { return (server + masterCount) % (2 * masterCount) }

func failClusterOver(r *recoveryRun, rng *rand.Rand) (string, bool) {
	_, master := r.ownerOf(r.names[rng.IntN(len(r.names))])
	replica := r.servers[replicaOf(master)]
	r.eventually("failover begun", func() bool {
		return replica.Client(r.t).Do(r.t.Context(), "cluster", "failover").Err() == nil
	})
	ok := waitFor(func() bool {
		return r.info(replica, "role") == "master" && r.info(r.servers[master], "role") == "slave"
	})
	return "master and replica have changed their roles", ok
}

// killClusterMaster must be the last fault of a run.
func killClusterMaster(r *recoveryRun, rng *rand.Rand) (string, bool) {
	_, master := r.ownerOf(r.names[rng.IntN(len(r.names))])
	replica := r.servers[replicaOf(master)]
	r.eventually("replica in sync", func() bool { return r.info(replica, "master_link_status") == "up" })
	begun := now()
	r.servers[master].Stop()
	r.servers = slices.Delete(slices.Clone(r.servers), master, master+1)
	ok := waitFor(func() bool { return r.info(replica, "role") == "master" })
	return fmt.Sprintf("replica promoted after %d ms", (now()-begun)/1e6), ok
}
