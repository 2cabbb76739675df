package redis

import (
	"fmt"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/redistest"
)

var retention = broker.Retention{Messages: 100, Age: time.Minute}

// A observedNode records the calls of its history handler.
type observedNode struct {
	*historyNode

	mu        sync.Mutex
	published []broker.Publication
	following int
}

func connectHistory(t testing.TB, client goredis.UniversalClient) *observedNode {
	t.Helper()
	n := &observedNode{}
	handler := broker.Callbacks{
		Receive:         func(string, string, []byte) {},
		Subscribed:      func(string) {},
		MessagesLost:    func(string, int) {},
		PresenceChanged: func(string, broker.Member, bool) {},
		NodeLeft:        func(string) {},
	}
	n.historyNode = NewBroker(client).ConnectHistory(handler, broker.HistoryCallbacks{
		Published: func(_ string, p broker.Publication) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.published = append(n.published, p)
		},
		Following: func(string) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.following++
		},
	}).(*historyNode)
	t.Cleanup(n.Kill)
	return n
}

// followNews follows the topic news and waits for the confirmation.
func (n *observedNode) followNews(t *testing.T) {
	t.Helper()
	n.Follow("news")
	n.eventually(t, "following", func() bool { return n.following > 0 })
}

// eventually waits until happened, which is called with the lock held, returns true.
func (n *observedNode) eventually(t *testing.T, event string, happened func() bool) {
	t.Helper()
	require.Eventually(t, func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return happened()
	}, time.Minute, 5*time.Millisecond, event)
}

// publish appends a packet to the topic news.
func (n *observedNode) publish(t *testing.T, packet string) broker.Appended {
	t.Helper()
	appended, err := n.Append(t.Context(), broker.Append{Topic: "news", Retention: retention, Packet: []byte(packet)})
	require.NoError(t, err)
	return appended
}

// page returns the position of the topic news and the newest 1,000 packets.
func (n *observedNode) page(t *testing.T) (broker.Page, []string) {
	t.Helper()
	return n.read(t, broker.Query{Limit: 1000, Backward: true})
}

func (n *observedNode) read(t *testing.T, q broker.Query) (page broker.Page, packets []string) {
	t.Helper()
	q.Topic = "news"
	if q.Retention.Messages == 0 {
		q.Retention = retention
	}
	page, err := n.Read(t.Context(), q)
	require.NoError(t, err)
	for _, p := range page.Publications {
		packets = append(packets, string(p.Packet))
	}
	return page, packets
}

func numbers(to int) (all []string) {
	for i := 1; i <= to; i++ {
		all = append(all, fmt.Sprint(i))
	}
	return all
}

// TestHistory_StateIsPruned ages the state of a key beyond the lifetime of the topic.
func TestHistory_StateIsPruned(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	n, admin := connectHistory(t, server.Client(t)), server.Client(t)
	publish := func(key string) {
		_, err := n.Append(t.Context(), broker.Append{Topic: "news", Retention: retention, StateKey: key})
		require.NoError(t, err)
	}
	publish("old")
	publish("new")
	keys := n.keysOf("news")
	old := time.Now().Add(-2 * retention.Age).UnixMilli()
	require.NoError(t, admin.HSet(t.Context(), keys.state, "old", fmt.Sprintf("epoch 1 %d 3 old", old)).Err())
	publish("new")
	assert.EqualValues(t, 2, admin.HLen(t.Context(), keys.state).Val(), "lifetimes are not renewed yet")
	require.NoError(t, admin.HSet(t.Context(), keys.channel.Name, "r", 0).Err())
	publish("new")
	assert.Equal(t, []string{"new"}, admin.HKeys(t.Context(), keys.state).Val())
}

func TestParseFrame_RejectsForeignPayload(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"", "a", "a 1 2", "a b 2 0 p", "a 1 b 0 p", "a 1 2 b p", "a 1 2 9 p", "a 1 2 -9 p", "a -1 2 0 p"} {
		_, ok := parseFrame(s)
		assert.False(t, ok, s)
	}
	p, ok := parseFrame("e 1 2 -1 kpacket with spaces")
	assert.True(t, ok)
	assert.Equal(t, broker.Publication{Position: broker.Position{Epoch: "e", Offset: 1}, At: time.UnixMilli(2), Packet: []byte("packet with spaces"), StateKey: "k", Removed: true}, p)
}
