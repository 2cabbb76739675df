package redis

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/redistest"
	"github.com/penstock-go/penstock/internal/testscale"
)

// A failoverLoad publishes on topics, half of which have a Durability, and counts what is lost.
type failoverLoad struct {
	node *observedNode

	mu           sync.Mutex
	acknowledged map[string][]string // packets, by topic
	attempts     atomic.Int64
}

const failoverTopics = 8

var keepEverything = broker.Retention{Messages: 10_000_000}

func failoverTopic(i int) (topic string, d broker.Durability) {
	if i%2 == 0 {
		return fmt.Sprint("safe ", i), onReplica
	}
	return fmt.Sprint("plain ", i), broker.Durability{}
}

// publish publishes on a topic until stop is closed.
func (l *failoverLoad) publish(topic string, d broker.Durability, stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		packet := fmt.Sprint(l.attempts.Add(1))
		ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
		_, err := l.node.Append(ctx, broker.Append{Topic: topic, Retention: keepEverything, Packet: []byte(packet), Durability: d})
		cancel()
		if err != nil {
			time.Sleep(10 * time.Millisecond)
			continue
		}
		l.mu.Lock()
		l.acknowledged[topic] = append(l.acknowledged[topic], packet)
		l.mu.Unlock()
		time.Sleep(time.Millisecond) // the server has other things to do, too
	}
}

// counts returns how many publications of each topic were acknowledged.
func (l *failoverLoad) counts() (n [failoverTopics]int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range n {
		topic, _ := failoverTopic(i)
		n[i] = len(l.acknowledged[topic])
	}
	return n
}

// await waits until more publications of each topic are acknowledged, only of those without a
// Durability if there is no replica.
func (l *failoverLoad) await(t *testing.T, more int, hasReplica bool) {
	t.Helper()
	from := l.counts()
	require.Eventually(t, func() bool {
		for i, n := range l.counts() {
			if _, d := failoverTopic(i); n < from[i]+more && (hasReplica || d == broker.Durability{}) {
				return false
			}
		}
		return true
	}, time.Minute, 5*time.Millisecond)
}

// lost returns how many acknowledged publications of a topic are not in its history.
func (l *failoverLoad) lost(t *testing.T, topic string) int {
	t.Helper()
	missing := map[string]bool{}
	for _, packet := range l.acknowledged[topic] {
		missing[packet] = true
	}
	for after := uint64(0); ; {
		var page broker.Page
		require.Eventually(t, func() (ok bool) {
			var err error
			page, err = l.node.Read(t.Context(), broker.Query{Topic: topic, Retention: keepEverything, After: after, Limit: 1000})
			return err == nil
		}, time.Minute, 50*time.Millisecond)
		for _, p := range page.Publications {
			delete(missing, string(p.Packet))
			after = p.Position.Offset
		}
		if len(page.Publications) == 0 {
			return len(missing)
		}
	}
}

// TestHistory_FailoverKeepsWhatIsConfirmed replaces the master under load, and counts the acknowledged
// publications that are lost.
func TestHistory_FailoverKeepsWhatIsConfirmed(t *testing.T) {
	testscale.FullOnly(t, "TestHistory_FailoverWithoutThePublication")
	t.Parallel()
	sentinel := func(fail func(*redistest.Sentinel)) func(*testing.T) (goredis.UniversalClient, func()) {
		return func(t *testing.T) (goredis.UniversalClient, func()) {
			t.Helper()
			s := redistest.StartSentinel(t)
			return s.Client(t), func() { fail(s) }
		}
	}
	for _, c := range []struct {
		name       string
		start      func(*testing.T) (goredis.UniversalClient, func())
		hasReplica bool // afterwards
	}{
		{"Sentinel, master alive", sentinel(func(s *redistest.Sentinel) { s.Promote(t) }), true},
		{"Sentinel, master killed", sentinel(func(s *redistest.Sentinel) { s.Master.Stop() }), false},
		{"Cluster, master alive", func(t *testing.T) (goredis.UniversalClient, func()) {
			t.Helper()
			servers, client := startReplicatedCluster(t)
			return client(), func() {
				assert.NoError(t, servers[4].Client(t).Do(t.Context(), "cluster", "failover", "takeover").Err())
			}
		}, true},
		{"Cluster, master killed", func(t *testing.T) (goredis.UniversalClient, func()) {
			t.Helper()
			servers, client := startReplicatedCluster(t)
			return client(), servers[1].Stop
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for range 2 {
				client, fail := c.start(t)
				l := &failoverLoad{node: connectHistory(t, client), acknowledged: map[string][]string{}}
				l.run(t, fail, c.hasReplica)
			}
		})
	}
}

// run publishes while the master fails.
func (l *failoverLoad) run(t *testing.T, fail func(), hasReplica bool) {
	t.Helper()
	stop := make(chan struct{})
	var publishers sync.WaitGroup
	for i := range 8 * failoverTopics {
		topic, d := failoverTopic(i % failoverTopics)
		publishers.Go(func() { l.publish(topic, d, stop) })
	}
	l.await(t, 200, true)
	fail()
	l.await(t, 200, hasReplica)
	close(stop)
	publishers.Wait()
	var lost, acknowledged [2]int // with a Durability, and without
	for i, n := range l.counts() {
		topic, _ := failoverTopic(i)
		acknowledged[i%2] += n
		lost[i%2] += l.lost(t, topic)
	}
	t.Logf("acknowledged and lost: %d of %d that a replica has confirmed, %d of %d others", lost[0], acknowledged[0], lost[1], acknowledged[1])
	assert.Zero(t, lost[0])
	l.node.Kill()
}
