//go:build unix

// Package faults_test runs a router against what simulations do not have: processes that are killed, a real Redis, the sockets of
// the kernel, and an older version in the same cluster.
package faults_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/redistest"
	"github.com/penstock-go/penstock/internal/testscale"
)

// The files recovery_*_test.go show that processes on a real Redis behave as the simulated cluster does
// (internal/simtest): node processes publish while clients move between them and faults are injected, and every publication is
// counted at every client. See recovery_check_test.go for what must hold.

// A scenario is a way to run Redis, with the faults that fit it. Those of last can only end a run.
type scenario struct {
	name         string
	start        func(*recovery)
	faults, last []recoveryFault
	keeps        bool // every publication that it acknowledges, so that all clients that return are recovered
}

// A recoveryFault is injected into a run. Its function ends the fault, and fails the test if it had no effect.
type recoveryFault struct {
	name   string
	inject func(*recovery, *rand.Rand)
}

var linkFaults = []recoveryFault{
	{"connections to Redis cut", cutLinks},
	{"replies of Redis stalled", stallLink((*redistest.Proxy).StallReplies)},
	{"connections to Redis stalled", stallLink((*redistest.Proxy).Stall)},
}

var nodeFaults = []recoveryFault{
	{"node killed", func(r *recovery, rng *rand.Rand) {
		r.takeDown(rng).kill()
		r.startNode()
	}},
	{"node stopped above time-outs", func(r *recovery, rng *rand.Rand) {
		n := r.nodes[rng.IntN(len(r.nodes))]
		n.signal(r.t, syscall.SIGSTOP)
		time.Sleep(7 * time.Second)
		n.signal(r.t, syscall.SIGCONT)
	}},
	{"node shut down under load", func(r *recovery, rng *rand.Rand) {
		n := r.takeDown(rng)
		n.signal(r.t, syscall.SIGTERM)
		n.wait(r.t)
		r.startNode()
	}},
}

var serverFaults = []recoveryFault{
	{"Redis paused", func(r *recovery, _ *rand.Rand) {
		r.failing("attempts", r.failures, 1, r.server.Pause)
		r.server.Resume()
	}},
	{"Redis killed, restarted with its data", func(r *recovery, _ *rand.Rand) {
		r.failing("attempts", r.failures, 1, r.server.Stop)
		r.failing("ends of epochs", r.ended, recoveryClients, r.server.Restart)
	}},
	{"first replica attached", func(r *recovery, _ *rand.Rand) {
		if !r.replicated {
			r.replicated = true
			r.failing("ends of epochs", r.ended, recoveryClients, func() { redistest.Start(r.t, "--replicaof", replicaOf(r.server)) })
		}
	}},
}

// lossFaults remove data that cannot be recovered. All clients have to load their state, or only those that return.
var lossFaults = []recoveryFault{
	{"FLUSHALL", func(r *recovery, _ *rand.Rand) {
		r.failing("resets", r.resets, recoveryClients, func() { require.NoError(r.t, r.server.Client(r.t).FlushAll(r.t.Context()).Err()) })
	}},
	{"metadata deleted", func(r *recovery, _ *rand.Rand) {
		r.failing("resets", r.resets, recoveryClients, func() { r.deleteKeys("hash") })
	}},
	{"publications deleted while clients are away", func(r *recovery, _ *rand.Rand) {
		r.away.Store(true)
		for _, f := range r.followers {
			f.line.move("")
		}
		time.Sleep(500 * time.Millisecond) // for what they miss
		r.failing("resets", r.resets, recoveryClients, func() {
			r.deleteKeys("stream")
			r.away.Store(false)
		})
	}},
	{"Redis killed, restarted without data", func(r *recovery, _ *rand.Rand) {
		r.failing("resets", r.resets, recoveryClients, r.server.Restart)
	}},
}

var sentinelFaults = []recoveryFault{
	{"failover by Sentinel, old master alive", func(r *recovery, _ *rand.Rand) { r.failing("ends of epochs", r.ended, recoveryClients, r.failOver) }},
	{"master under Sentinel killed", func(r *recovery, _ *rand.Rand) {
		r.awaitReplica()
		r.failing("ends of epochs", r.ended, recoveryClients, r.sentinel.Master.Stop)
	}},
}

func scenarios() []scenario {
	return []scenario{
		{"server with its data", startDurable, slices.Concat(nodeFaults, linkFaults, serverFaults), nil, true},
		{"server that loses its data", startVolatile, lossFaults, nil, false},
		{"Sentinel", startMonitored, sentinelFaults[:1], sentinelFaults[1:], false},
	}
}

// TestRecovery_EveryClientReceivesEveryPublicationOnce injects each fault once. The quick tier cuts connections.
func TestRecovery_EveryClientReceivesEveryPublicationOnce(t *testing.T) {
	redistest.Start(t) // skips the test without redis-server
	cuts := []scenario{{"connections cut", startDurable, linkFaults[:2], nil, true}}
	for i, s := range testscale.Pick(cuts, scenarios()) {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			runRecovery(t, &s, uint64(i), slices.Concat(s.faults, s.last))
		})
	}
}

// TestSoak repeats random scenarios with five random faults each for the time of the soak test. SOAK_SEED is the seed of the
// first run, whose number the log of each run contains; the next runs have the next seeds.
func TestSoak(t *testing.T) {
	testscale.SoakOnly(t, "TestRecovery_EveryClientReceivesEveryPublicationOnce")
	redistest.Start(t) // skips the test without redis-server
	seed := uint64(now())
	if text := os.Getenv("SOAK_SEED"); text != "" {
		var err error
		seed, err = strconv.ParseUint(text, 10, 64)
		require.NoError(t, err, "SOAK_SEED")
	}
	injections := map[string]int{}
	for end := time.Now().Add(testscale.Soak()); time.Now().Before(end) && !t.Failed(); seed++ {
		rng := rand.New(rand.NewPCG(seed, 0))
		s := scenarios()[[]int{0, 0, 0, 1, 1, 2}[rng.IntN(6)]] // more often those with many faults
		candidates := slices.Concat(s.faults, nodeFaults[:1])
		faults := s.last
		for range 5 {
			faults = append([]recoveryFault{candidates[rng.IntN(len(candidates))]}, faults...)
		}
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) { runRecovery(t, &s, seed, faults) })
		for _, f := range faults {
			injections[f.name]++
		}
	}
	t.Log("injections: ", fmt.Sprint(injections))
}

// cutLinks cuts the connections of all nodes, at random moments.
func cutLinks(r *recovery, rng *rand.Rand) {
	for range 5 {
		for _, n := range r.nodes {
			n.link.Cut()
			time.Sleep(time.Duration(rng.IntN(100)) * time.Millisecond)
			n.link.Restore()
		}
	}
}

// stallLink stalls the connections of one node for up to two seconds.
func stallLink(stall func(*redistest.Proxy)) func(*recovery, *rand.Rand) {
	return func(r *recovery, rng *rand.Rand) {
		link := r.nodes[rng.IntN(len(r.nodes))].link
		stall(link)
		time.Sleep(time.Second + time.Duration(rng.Int64N(int64(time.Second))))
		link.Restore()
	}
}

// deleteKeys deletes the keys of a type that belong to histories.
func (r *recovery) deleteKeys(kind string) {
	ctx, admin := r.t.Context(), r.server.Client(r.t, func(opts *goredis.Options) { opts.MaxRetries = -1 })
	deleted := int64(0)
	iter := admin.ScanType(ctx, 0, "*:history:*", 1000, kind).Iterator()
	for iter.Next(ctx) {
		deleted += admin.Del(ctx, iter.Val()).Val()
	}
	require.NoError(r.t, iter.Err())
	require.Positive(r.t, deleted)
}

// awaitReplica waits until the replica has what the master has.
func (r *recovery) awaitReplica() {
	r.eventually("replica in sync", func() bool { return r.replicates(r.sentinel.Replica, "master_link_status:up") })
}

// failOver asks Sentinel for another master, again if Sentinel gives up. The old one accepts publications until it is demoted.
func (r *recovery) failOver() {
	r.awaitReplica()
	address, asked := r.sentinel.Address(), time.Time{}
	admin := goredis.NewSentinelClient(&goredis.Options{Addr: address.Addr})
	defer func() { _ = admin.Close() }()
	s := r.sentinel
	r.eventually("another master", func() bool {
		if time.Since(asked) > 10*time.Second && r.replicates(s.Replica, "role:slave") && admin.Failover(r.t.Context(), address.Master).Err() == nil {
			asked = time.Now()
		}
		return r.replicates(s.Replica, "role:master") && r.replicates(s.Master, "role:slave")
	})
	s.Master, s.Replica = s.Replica, s.Master
}

// replicates reports whether the replication section of a server has a field.
func (r *recovery) replicates(s *redistest.Server, field string) bool {
	return strings.Contains(s.Client(r.t).Info(r.t.Context(), "replication").Val(), field)
}
