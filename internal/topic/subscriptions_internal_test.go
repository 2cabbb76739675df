package topic

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/testscale"
)

// TestConn_SubscriptionMemory bounds the memory of subscriptions, which a server has more of than
// anything else.
func TestConn_SubscriptionMemory(t *testing.T) {
	for _, tt := range []struct {
		topics   int
		own      bool // no connection shares a topic with another one
		maxBytes int  // per connection
	}{
		{1, false, 56},
		{3, false, 104},
		{10, false, 280},
		{1, true, 220},
		{10, true, 1800},
	} {
		t.Run(fmt.Sprintf("%d topics, own=%v", tt.topics, tt.own), func(t *testing.T) {
			assert.LessOrEqual(t, subscriptionBytes(t, tt.topics, tt.own), tt.maxBytes)
		})
	}
}

// subscriptionBytes returns how much memory the subscriptions of a connection need, without the names
// of the topics.
func subscriptionBytes(t *testing.T, topicsPerConn int, own bool) int {
	const n = 9000
	var ts Topics
	ts.Init(Config{MaxTopics: topicsPerConn})
	ts.Connect(silentNode{}, nil)
	conns, names := numbered(n), make([]string, n*topicsPerConn)
	for i := range names {
		if names[i] = "topic/" + strconv.Itoa(i%topicsPerConn); own {
			names[i] = "topic/" + strconv.Itoa(i)
		}
	}
	before := heapBytes()
	for i, c := range conns {
		for _, name := range names[i*topicsPerConn : (i+1)*topicsPerConn] {
			_, err := ts.SubscribeLocked(name, c, false)
			require.NoError(t, err)
		}
	}
	bytes := int(heapBytes()-before) / n
	t.Logf("%d bytes per connection", bytes)
	for _, c := range conns {
		for _, topic := range c.TopicsLocked() {
			ts.Remove(topic, c, true)
		}
	}
	for i := range ts.shards {
		require.Empty(t, ts.shards[i].topics)
	}
	runtime.KeepAlive(names)
	return bytes
}

func heapBytes() uint64 {
	runtime.GC()
	runtime.GC() // what the first collection moved out of pools
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestSubscriptions_MatchModel subscribes and unsubscribes at random, and compares the subscriptions
// with a set of names.
func TestSubscriptions_MatchModel(t *testing.T) {
	t.Parallel()
	counted, uncounted := &Pattern{Options: Options{MaxPerConn: 1000}}, &Pattern{}
	topics := make([]*Topic, 300)
	for i := range topics {
		topics[i] = &Topic{Name: "topic/" + strconv.Itoa(i), Pattern: uncounted}
		if i%3 == 0 {
			topics[i].Pattern = counted
		}
	}
	var s subscriptions
	model := map[string]bool{}
	random := rand.New(rand.NewPCG(1, 2))
	steps := testscale.Pick(4000, 20_000)
	for step := range steps {
		topic := topics[random.IntN(len(topics))]
		if !model[topic.Name] {
			require.Nil(t, s.find(topic.Name))
			s.add(topic)
			model[topic.Name] = true
		} else if random.IntN(10) < 4*step/steps*3 { // they become fewer
			require.Same(t, topic, s.find(topic.Name))
			s.remove(topic)
			delete(model, topic.Name)
		}
		inPattern := 0
		for _, topic := range s.all() {
			require.True(t, model[topic.Name])
			if topic.Pattern == counted {
				inPattern++
			}
		}
		require.Len(t, s.all(), len(model))
		require.Equal(t, inPattern, s.countOf(counted))
		require.Zero(t, s.countOf(uncounted))
	}
	assert.True(t, slices.IsSortedFunc(s.all(), func(a, b *Topic) int { return strings.Compare(a.Name, b.Name) }))
}

// TestTopic_WalksConnectionsInOrderOfAcceptance subscribes connections in another order than that in
// which they were accepted.
func TestTopic_WalksConnectionsInOrderOfAcceptance(t *testing.T) {
	var ts Topics
	ts.Init(Config{MaxTopics: 1})
	ts.Connect(silentNode{}, nil)
	conns := numbered(2 * maxBlockEntries)
	for _, i := range rand.New(rand.NewPCG(1, 2)).Perm(len(conns)) {
		_, err := ts.SubscribeLocked("all", conns[i], false)
		require.NoError(t, err)
	}
	all := ts.Find("all")
	assert.True(t, slices.Equal(conns, slices.Collect(all.subscribersLocked())))
	for _, c := range conns[1:] {
		ts.Remove(all, c, true)
	}
	assert.True(t, slices.Equal(conns[:1], slices.Collect(all.subscribersLocked())))
}

// A silentNode is a node without others.
type silentNode struct{ broker.Node }

func (silentNode) Subscribe(string)   {}
func (silentNode) Unsubscribe(string) {}
