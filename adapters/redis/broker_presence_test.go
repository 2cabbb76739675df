package redis_test

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/redis"
	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/redistest"
	"github.com/penstock-go/penstock/internal/testscale"
)

// A presenceNode counts the members on other nodes.
type presenceNode struct {
	broker.Node

	mu      sync.Mutex
	members int
}

func connectPresence(t *testing.T, client goredis.UniversalClient) *presenceNode {
	n := &presenceNode{}
	n.Node = redis.NewBroker(client).Connect(broker.Handler{
		Receive:      func(string, string, []byte) {},
		Subscribed:   func(string) {},
		MessagesLost: func(string, int) {},
		NodeLeft:     func(string) {},
		PresenceChanged: func(_ string, _ broker.Member, joined bool) {
			n.mu.Lock()
			defer n.mu.Unlock()
			if n.members--; joined {
				n.members += 2
			}
		},
	})
	t.Cleanup(func() { _ = n.Close(context.Background()) })
	return n
}

// TestBroker_InterruptionCostsFewPresenceMessages interrupts 16 nodes that share 50 topics, while
// each of them changes a member of 10 topics.
func TestBroker_InterruptionCostsFewPresenceMessages(t *testing.T) {
	testscale.FullOnly(t, "TestBroker_KeepsContract")
	const nodes, topics, members, changes = 16, 50, 10, 10
	t.Parallel()
	server := redistest.Start(t)
	published := func() int64 { return server.CommandStats(t)["publish"] }
	var all []*presenceNode
	for range nodes {
		n := connectPresence(t, server.Client(t))
		all = append(all, n)
		for topic := range topics {
			name := fmt.Sprint("topic ", topic)
			n.Subscribe(name)
			n.Track(name)
			for m := range members {
				n.Join(name, strconv.Itoa(m), "")
			}
		}
	}
	converged := func(members int) {
		require.Eventually(t, func() bool {
			for _, n := range all {
				n.mu.Lock()
				seen := n.members
				n.mu.Unlock()
				if seen != (nodes-1)*members {
					return false
				}
			}
			return true
		}, time.Minute, 10*time.Millisecond)
	}
	converged(topics * members)

	// What the nodes publish anyway, such as heartbeats, is counted first.
	const span = 6 * time.Second
	before := published()
	time.Sleep(span)
	idle := published() - before

	require.NoError(t, server.Client(t).ClientKillByFilter(t.Context(), "TYPE", "pubsub").Err())
	for _, n := range all {
		for topic := range changes {
			n.Leave(fmt.Sprint("topic ", topic), "0")
		}
	}
	before = published()
	time.Sleep(span)
	converged(topics*members - changes)
	cost := published() - before - idle
	t.Logf("%d messages in addition to the %d of an idle cluster", cost, idle)
	assert.Less(t, cost, int64(2000))
}
