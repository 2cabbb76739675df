//go:build unix

package faults_test

import (
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/redistest"
)

func killNode(r *run) {
	victim := r.nodes[0]
	victim.kill(r.t)
	r.killed = victim.name
	published := r.log.publishedBy(victim.name, 0, now())
	r.tookEffect(published > 0, "killed after %s publications", thousands(published))
	time.Sleep(r.lasts)
	r.startNode("node4")
	r.end()
}

func stopNode(r *run) {
	victim := r.nodes[0]
	victim.signal(r.t, syscall.SIGSTOP)
	time.Sleep(r.lasts)
	r.isolated(r.nodes[:1])
	victim.signal(r.t, syscall.SIGCONT)
	r.end()
}

// stopNodeBriefly stops a node for less than Redis and the system keep what is sent to it.
func stopNodeBriefly(r *run) {
	stopNode(r)
	r.lossless = true
}

// shutNodeDown shuts a node down immediately after it has published a burst, most of which waits
// because Redis does not respond to the node.
func shutNodeDown(r *run) {
	victim := r.nodes[0]
	proxy := r.proxies[victim.name]
	proxy.Stall()
	r.ended = now()
	victim.signal(r.t, syscall.SIGTERM)
	time.Sleep(r.lasts)
	proxy.Restore()
	victim.wait(r.t)
	r.settle()
	r.log.mu.Lock()
	shutdown := r.log.shutdowns[victim.name]
	r.log.mu.Unlock()
	assert.Equal(r.t, "true <nil>", shutdown)
	published := r.log.publishedBy(victim.name, r.ended, now())
	r.tookEffect(published >= shutdownBurst, "%s published after SIGTERM", thousands(published))
	r.lossless = true
}

func cutOne(r *run) {
	proxy := r.proxies[r.nodes[0].name]
	proxy.Cut()
	time.Sleep(r.lasts)
	r.isolated(r.nodes[:1])
	proxy.Restore()
	r.end()
}

func cutAll(r *run) {
	for _, proxy := range r.proxies {
		proxy.Cut()
	}
	time.Sleep(r.lasts)
	r.isolated(r.nodes)
	for _, proxy := range r.proxies {
		proxy.Restore()
	}
	r.end()
}

func stallReplies(r *run) {
	proxy := r.proxies[r.nodes[0].name]
	proxy.StallReplies()
	time.Sleep(r.lasts)
	r.isolated(r.nodes[:1])
	proxy.Restore()
	r.end()
}

func delay(r *run) {
	victim := r.nodes[0]
	proxy := r.proxies[victim.name]
	const delayed = 50 * time.Millisecond
	proxy.Delay(delayed)
	time.Sleep(r.lasts)
	latencies := r.log.latencies(victim.name, r.began+underWay)
	proxy.Delay(0)
	r.end()
	slices.Sort(latencies)
	require.NotEmpty(r.t, latencies)
	median := latencies[len(latencies)/2]
	r.tookEffect(median >= delayed*9/10, "%s messages, %d ms in the median", thousands(len(latencies)), median.Milliseconds())
}

// denyPublish denies the command PUBLISH to a node, whose subscriptions stay.
func denyPublish(r *run) {
	victim, admin := r.nodes[0], r.server.Client(r.t)
	require.NoError(r.t, admin.Do(r.t.Context(), "acl", "setuser", victim.name, "-publish").Err())
	time.Sleep(r.lasts)
	after, before := r.began+underWay, now()
	arrived := r.log.deliveredTo(r.nodes[1].name, victim.name, after, before)
	received := r.log.deliveredTo(victim.name, "", after, before)
	published := r.log.publishedBy(victim.name, after, before)
	require.NoError(r.t, admin.Do(r.t.Context(), "acl", "setuser", victim.name, "+publish").Err())
	r.end()
	r.tookEffect(arrived == 0 && received > 0 && published > 0, "%s of %s arrived, %s received", thousands(arrived), thousands(published), thousands(received))
}

func restartRedis(r *run) {
	require.NoError(r.t, r.server.Client(r.t).Set(r.t.Context(), "mark", 1, 0).Err())
	r.server.Stop()
	time.Sleep(r.lasts)
	r.allowed = float64(policy.Capacity) // a bucket that is lost is full
	r.isolated(r.nodes)
	r.server.Restart()
	r.end()
	exists, err := r.server.Client(r.t).Exists(r.t.Context(), "mark").Result()
	require.NoError(r.t, err)
	assert.Zero(r.t, exists, "the data was not lost")
}

func pauseRedis(r *run) {
	r.server.Pause()
	time.Sleep(r.lasts)
	r.isolated(r.nodes)
	r.server.Resume()
	r.end()
}

// failOver promotes the replica while the master runs, so that all connections stay open.
func failOver(r *run) {
	old := r.sentinel.Master
	r.ended = now()
	r.sentinel.Promote(r.t)
	// The old master grants until it is demoted, and the bucket of the new one refills meanwhile.
	// Both grant for a moment, up to a second on a busy machine, since not all nodes switch at the
	// same time.
	r.allowed = float64(int(policy.Capacity) + r.pick(100, 10))
	time.Sleep(time.Second)
	r.settle()
	r.tookEffect(old != r.sentinel.Master, "replica promoted after %s", seconds(time.Duration(r.settled-r.ended)-time.Second))
	time.Sleep(6 * time.Second) // until all nodes have noticed
}

// killMonitored kills the master, so that Sentinel promotes the replica.
func killMonitored(r *run) {
	r.ended = now()
	r.sentinel.Master.Stop()
	r.awaitPromotion(r.sentinel.Replica)
	time.Sleep(3 * time.Second) // until all nodes have noticed
}

// awaitPromotion waits until the replica of a killed master is the master.
func (r *run) awaitPromotion(replica *redistest.Server) {
	client := replica.Client(r.t)
	r.await("new master", func() bool {
		return strings.Contains(client.Info(r.t.Context(), "replication").Val(), "role:master")
	})
	promoted := time.Duration(now() - r.ended)
	r.allowed = float64(policy.Capacity) // what was not replicated
	r.settle()
	r.tookEffect(true, "replica promoted after %s", seconds(promoted))
}
