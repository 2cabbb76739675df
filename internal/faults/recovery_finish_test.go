//go:build unix

package faults_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/redistest"
	"github.com/penstock-go/penstock/router"
)

type position = broker.Position

// finish ends a run and checks what it has recorded.
func (r *recoveryRun) finish(ratio float64) *verdict {
	v := &verdict{violations: map[string][]string{}}
	for _, n := range r.upNodes() {
		n.door.heal()
	}
	for _, c := range r.clients {
		c.stay.Store(true)
	}
	r.awaitLive("all", now())
	r.checkPresence(v)
	r.stopPublishers()
	r.readHistories()
	r.leave()
	r.following.Wait()
	r.checkGrowth(v)
	recovered, returns := 0, 0
	var safe counts
	for name, topic := range r.topics {
		checked := checkTopic(topic)
		if strings.HasPrefix(name, "safe/") {
			safe.add(checked.counts)
		}
		if strings.HasPrefix(name, "full/") {
			recovered, returns = recovered+checked.counts.Recovered, returns+checked.counts.Returns
		}
		v.merge(checked)
	}
	r.t.Logf("%+v; on topics with a full history, %d of %d returns recovered; slowest recovery %v; connections broken: %v",
		v.counts, recovered, returns, r.slowest, r.broken())
	if report := v.report(); len(report) > 0 {
		r.t.Errorf("seed %d:\n%s", r.seed, strings.Join(report, "\n"))
	}
	r.checkDurability(&safe, &v.counts)
	if r.kind == durable {
		assert.Zero(r.t, v.counts.Dead, "the server had saved everything that it acknowledged")
	}
	if v.counts.Returns >= 100 { // a shorter run may break none
		assert.NotEmpty(r.t, r.broken(), "connections of clients")
	}
	assert.Greater(r.t, returns, recoveryClients)
	if !assert.GreaterOrEqual(r.t, float64(recovered), ratio*float64(returns), "%d of %d returns recovered", recovered, returns) {
		slices.Sort(v.resets)
		r.t.Logf("clients that had to load their state:\n%s", strings.Join(v.resets, "\n"))
	}
	assert.Less(r.t, r.slowest, liveFactor*liveWithin, "until all clients were live after a fault")
	return v
}

// checkDurability checks that faults have lost no acknowledged publication on the topics with a
// Durability.
func (r *recoveryRun) checkDurability(safe, all *counts) {
	if r.spec.Durability == (broker.Durability{}) {
		return
	}
	r.t.Logf("acknowledged and lost: with %+v %d of %d, without %d of %d",
		r.spec.Durability, safe.Dead, safe.Stored, all.Dead-safe.Dead, all.Stored-safe.Stored)
	assert.Zero(r.t, safe.Dead, "acknowledged publications with %+v were lost", r.spec.Durability)
	assert.Positive(r.t, safe.Stored)
}

// broken returns how many connections of clients were broken.
func (r *recoveryRun) broken() map[sabotageKind]int {
	all := map[sabotageKind]int{}
	for _, n := range r.nodes {
		n.door.mu.Lock()
		for kind, count := range n.door.sabotage {
			all[kind] += count
		}
		n.door.mu.Unlock()
	}
	return all
}

// checkPresence checks that every node with a client knows all clients and no others.
func (r *recoveryRun) checkPresence(v *verdict) {
	var want []string
	for _, c := range r.clients {
		want = append(want, c.name)
	}
	for _, n := range r.upNodes() {
		if r.clientsOf(n) == 0 {
			continue // it does not follow the topic
		}
		members := ""
		if !assert.Eventually(r.t, func() bool {
			n.command(r.t, "presence")
			members = n.await(r.t, "presence").Text
			return samePeople(members, want)
		}, wait/2, 100*time.Millisecond) {
			v.violations[samePresence] = append(v.violations[samePresence], n.name+" knows "+members)
		}
	}
}

// samePeople reports whether the members that a node knows are the clients, each with one connection.
func samePeople(members string, clients []string) bool {
	return members == strings.Join(slices.Sorted(slices.Values(clients)), ",")
}

func (r *recoveryRun) stopPublishers() {
	close(r.stop)
	r.writers.Wait()
	for _, n := range r.upNodes() {
		n.command(r.t, "stop")
	}
	for _, n := range r.upNodes() {
		n.await(r.t, "stopped")
	}
	for _, topic := range r.topics {
		topic.quiet = now()
	}
}

// readHistories reads all topics, and waits until the clients have reached their ends. A client that
// does not shows in the check.
func (r *recoveryRun) readHistories() {
	spec := r.spec
	if r.server != nil {
		spec.Addrs = []string{r.server.Addr}
	}
	reader := newRecoveryRouter(&spec)
	defer func() { assert.NoError(r.t, reader.Shutdown(context.Background())) }()
	for name, topic := range r.topics {
		topic.final, topic.top = readHistory(r.t, reader, name)
	}
	deadline := time.Now().Add(liveFactor * liveWithin)
	for _, c := range r.clients {
		for name, topic := range r.topics {
			for time.Now().Before(deadline) && !c.reached(name, topic.top.Offset) {
				time.Sleep(10 * time.Millisecond)
			}
		}
	}
}

func (f *follower) reached(topic string, offset uint64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last[topic].Offset >= offset
}

func readHistory(t *testing.T, r *router.Router, topic string) (entries []entry, top position) {
	t.Helper()
	after := uint64(0)
	for deadline := time.Now().Add(wait); ; {
		messages, current, err := r.ReadHistory(t.Context(), topic, broker.Query{After: after, Limit: 1000})
		if err != nil && time.Now().Before(deadline) {
			time.Sleep(50 * time.Millisecond) // a master may have failed
			continue
		}
		require.NoError(t, err)
		for _, m := range messages {
			var s story
			require.NoError(t, m.Decode(&s))
			assert.Equal(t, s.checksum(), s.Sum)
			entries = append(entries, entry{m.Position, storyID{s.Publisher, s.Number}})
			after = m.Position.Offset
		}
		if len(messages) == 0 || after == current.Offset {
			return entries, current
		}
	}
}

// Goroutines of a node that serves no client: those of its connections to Redis and of requests that
// end may be more than at its start.
const moreGoroutines = 40

// checkGrowth checks what is left when all clients have gone, and ends the nodes.
func (r *recoveryRun) checkGrowth(v *verdict) {
	for _, n := range r.upNodes() {
		n.door.close()
		count := 0
		if !assert.Eventually(r.t, func() bool {
			n.command(r.t, "idle")
			count = n.await(r.t, "idle").Count
			return count <= n.goroutines+moreGoroutines
		}, wait/2, 100*time.Millisecond) {
			v.violations[nothingGrows] = append(v.violations[nothingGrows], fmt.Sprintf("%s has %d goroutines, %d at its start", n.name, count, n.goroutines))
		}
		n.finish(r.t)
	}
	for _, s := range r.masters() {
		v.violations[nothingGrows] = append(v.violations[nothingGrows], r.keysWithoutExpiry(s)...)
	}
	if len(v.violations[nothingGrows]) == 0 {
		delete(v.violations, nothingGrows)
	}
}

// masters returns the servers that have the data.
func (r *recoveryRun) masters() []*redistest.Server {
	switch {
	case r.server != nil:
		return []*redistest.Server{r.server}
	case r.sentinel != nil:
		return []*redistest.Server{r.sentinel.Master}
	}
	return r.servers
}

func (r *recoveryRun) keysWithoutExpiry(s *redistest.Server) (names []string) {
	ctx, admin := r.t.Context(), s.Client(r.t)
	if admin.Ping(ctx).Err() != nil {
		return nil // killed
	}
	keys := 0
	for iter := admin.Scan(ctx, 0, "*", 1000).Iterator(); iter.Next(ctx); keys++ {
		if admin.TTL(ctx, iter.Val()).Val() == -1 {
			names = append(names, iter.Val())
		}
	}
	return names
}
