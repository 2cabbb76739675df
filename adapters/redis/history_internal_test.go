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
	"github.com/penstock-go/penstock/internal/keyname"
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
	handler := broker.Handler{
		Receive:         func(string, string, []byte) {},
		Subscribed:      func(string) {},
		MessagesLost:    func(string, int) {},
		PresenceChanged: func(string, broker.Member, bool) {},
		NodeLeft:        func(string) {},
	}
	n.historyNode = NewBroker(client).ConnectHistory(handler, broker.HistoryHandler{
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

func numbers(from, to int) (all []string) {
	for i := from; i <= to; i++ {
		all = append(all, fmt.Sprint(i))
	}
	return all
}

func TestHistory_PublicationIsStoredAndPublished(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	a, b := connectHistory(t, server.Client(t)), connectHistory(t, server.Client(t))
	b.followNews(t)
	began := time.Now()
	start, _ := a.page(t)
	assert.NotEmpty(t, start.Position.Epoch)
	assert.Zero(t, start.Position.Offset)
	packet := "\x00binary \xff 1 2 3 "
	appended, err := a.Append(t.Context(), broker.Append{Topic: "news", Retention: retention, Packet: []byte(packet), StateKey: "a key", Removed: true})
	require.NoError(t, err)
	want := broker.Publication{
		Position: broker.Position{Epoch: start.Position.Epoch, Offset: 1},
		Packet:   []byte(packet), StateKey: "a key", Removed: true,
	}
	assert.Equal(t, broker.Appended{Position: want.Position}, appended)
	page, _ := b.page(t)
	assert.Equal(t, want.Position, page.Position)
	require.Len(t, page.Publications, 1)
	want.At = page.Publications[0].At
	assert.WithinRange(t, want.At, began.Add(-time.Second), time.Now().Add(time.Second))
	assert.Equal(t, want, page.Publications[0])
	b.eventually(t, "published", func() bool { return len(b.published) == 1 })
	assert.Equal(t, want, b.published[0])
	assert.Zero(t, page.Previous)
}

// TestHistory_ConcurrentPublications lets 64 publishers use two nodes. Two others follow the topic.
func TestHistory_ConcurrentPublications(t *testing.T) {
	t.Parallel()
	const publishers, each = 64, 100
	server := redistest.Start(t)
	var nodes, followers [2]*observedNode
	for i := range nodes {
		nodes[i], followers[i] = connectHistory(t, server.Client(t)), connectHistory(t, server.Client(t))
		followers[i].followNews(t)
	}
	r := broker.Retention{Messages: publishers * each}
	var wg sync.WaitGroup
	offsets := make([][]uint64, publishers)
	for i := range publishers {
		wg.Go(func() {
			for j := range each {
				a := broker.Append{Topic: "news", Retention: r, Packet: fmt.Appendf(nil, "%d %d", i, j)}
				appended, err := nodes[i%2].Append(t.Context(), a)
				if !assert.NoError(t, err) {
					return
				}
				offsets[i] = append(offsets[i], appended.Position.Offset)
			}
		})
	}
	wg.Wait()
	page, packets := nodes[0].read(t, broker.Query{Retention: r, Limit: publishers * each})
	require.Len(t, packets, publishers*each)
	next := make([]int, publishers)
	for i, packet := range packets {
		assert.EqualValues(t, i+1, page.Publications[i].Position.Offset)
		var publisher, number int
		_, err := fmt.Sscanf(packet, "%d %d", &publisher, &number)
		require.NoError(t, err)
		require.Equal(t, next[publisher], number, "publisher %d", publisher)
		require.EqualValues(t, i+1, offsets[publisher][number])
		next[publisher]++
	}
	for _, f := range followers {
		f.eventually(t, "published", func() bool { return len(f.published) == len(packets) })
		assert.Equal(t, page.Publications, f.published)
	}
	calls := server.CommandStats(t)["evalsha"]
	assert.Less(t, calls, int64(publishers*each/4), "publications must share script calls")
}

func TestHistory_IdempotencyKey(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	a, b := connectHistory(t, server.Client(t)), connectHistory(t, server.Client(t))
	a.followNews(t)
	publish := func(n *observedNode, topic, key string) broker.Appended {
		appended, err := n.Append(t.Context(), broker.Append{Topic: topic, Retention: retention, Packet: []byte(key), IdempotencyKey: key})
		assert.NoError(t, err)
		return appended
	}
	first := publish(a, "news", "key")
	assert.False(t, first.Duplicate)
	second := publish(b, "news", "key 2")
	assert.EqualValues(t, 2, second.Position.Offset)
	assert.Equal(t, broker.Appended{Position: first.Position, Duplicate: true}, publish(b, "news", "key"))
	assert.False(t, publish(b, "other", "key").Duplicate, "keys belong to a topic")

	var mu sync.Mutex
	var wg sync.WaitGroup
	duplicates, positions := 0, map[broker.Position]bool{}
	for i := range 20 {
		wg.Go(func() {
			appended := publish([]*observedNode{a, b}[i%2], "news", "concurrent")
			mu.Lock()
			defer mu.Unlock()
			positions[appended.Position] = true
			if appended.Duplicate {
				duplicates++
			}
		})
	}
	wg.Wait()
	assert.Equal(t, 19, duplicates)
	assert.Len(t, positions, 1)
	page, packets := a.page(t)
	assert.EqualValues(t, 3, page.Position.Offset)
	assert.Equal(t, []string{"key", "key 2", "concurrent"}, packets)
	a.eventually(t, "published", func() bool { return len(a.published) == 3 })
	lifetime := server.Client(t).PTTL(t.Context(), keyname.Join(a.keysOf("news").key, []string{"concurrent"})).Val()
	assert.InDelta(t, broker.IdempotencyTime, lifetime, float64(time.Minute))
}

func TestHistory_Pages(t *testing.T) {
	t.Parallel()
	n := connectHistory(t, redistest.Start(t).Client(t))
	for _, packet := range numbers(1, 20) {
		n.publish(t, packet)
	}
	for name, c := range map[string]struct {
		query broker.Query
		want  []string
	}{
		"all":               {broker.Query{Limit: 100}, numbers(1, 20)},
		"only the position": {broker.Query{}, nil},
		"first":             {broker.Query{Limit: 3}, numbers(1, 3)},
		"last":              {broker.Query{Limit: 3, Backward: true}, numbers(18, 20)},
		"after":             {broker.Query{After: 15, Limit: 3}, numbers(16, 18)},
		"after, last":       {broker.Query{After: 15, Limit: 3, Backward: true}, numbers(18, 20)},
		"before":            {broker.Query{Before: 5, Limit: 10}, numbers(1, 4)},
		"before, last":      {broker.Query{Before: 5, Limit: 2, Backward: true}, numbers(3, 4)},
		"between":           {broker.Query{After: 5, Before: 8, Limit: 10}, numbers(6, 7)},
		"nothing between":   {broker.Query{After: 5, Before: 6, Limit: 10}, nil},
		"before after":      {broker.Query{After: 5, Before: 3, Limit: 10}, nil},
		"before the first":  {broker.Query{Before: 1, Limit: 10}, nil},
		"after the last":    {broker.Query{After: 20, Limit: 10}, nil},
		"far after":         {broker.Query{After: 1<<64 - 1, Limit: 10}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			page, packets := n.read(t, c.query)
			assert.Equal(t, c.want, packets)
			assert.EqualValues(t, 20, page.Position.Offset)
		})
	}
}

func TestHistory_RetentionChanges(t *testing.T) {
	t.Parallel()
	n := connectHistory(t, redistest.Start(t).Client(t))
	publish := func(packet string, r broker.Retention) uint64 {
		appended, err := n.Append(t.Context(), broker.Append{Topic: "news", Retention: r, Packet: []byte(packet)})
		require.NoError(t, err)
		return appended.Position.Offset
	}
	stored := func() []string {
		_, packets := n.page(t)
		return packets
	}
	start, _ := n.page(t)
	for i := range 9 {
		publish(fmt.Sprint("packet ", i), broker.Retention{Messages: 5})
	}
	assert.Len(t, stored(), 5)
	assert.EqualValues(t, 10, publish("10 bytes..", broker.Retention{Messages: 3}))
	assert.Equal(t, []string{"packet 7", "packet 8", "10 bytes.."}, stored())
	publish("10 bytes,,", broker.Retention{Messages: 10})
	assert.Len(t, stored(), 4)
	publish("10 bytes;;", broker.Retention{Messages: 10, Bytes: 28})
	assert.Equal(t, []string{"10 bytes,,", "10 bytes;;"}, stored())
	publish("8 bytes.", broker.Retention{Messages: 10, Bytes: 28})
	assert.Equal(t, []string{"10 bytes,,", "10 bytes;;", "8 bytes."}, stored())
	publish("1", broker.Retention{Messages: 10, Bytes: 28})
	assert.Equal(t, []string{"10 bytes;;", "8 bytes.", "1"}, stored())
	publish("2", broker.Retention{Messages: 2, Bytes: 28})
	assert.Equal(t, []string{"1", "2"}, stored())
	publish("more than the limit of 28 bytes", broker.Retention{Messages: 2, Bytes: 28})
	assert.Empty(t, stored())
	publish("1", broker.Retention{Messages: 2})
	assert.EqualValues(t, 18, publish("2", broker.Retention{}))
	assert.Equal(t, []string{"2"}, stored())
	page, _ := n.page(t)
	assert.Equal(t, broker.Position{Epoch: start.Position.Epoch, Offset: 18}, page.Position)
}

func TestHistory_AgeIsBounded(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	n, admin := connectHistory(t, server.Client(t)), server.Client(t)
	for _, packet := range numbers(1, 30) {
		n.publish(t, packet)
	}
	boundary, _ := n.page(t)
	expired := boundary.Publications[29].At
	// A second before the next one is what a busy computer may need for a read.
	require.Eventually(t, func() bool { return time.Since(expired) > time.Second }, time.Minute, 10*time.Millisecond)
	for _, packet := range numbers(31, 50) {
		n.publish(t, packet)
	}
	// The clock goes on between the reads, so the age grows with it.
	age := func() broker.Retention {
		return broker.Retention{Messages: 100, Age: time.Since(expired) - 15*time.Millisecond}
	}
	_, packets := n.read(t, broker.Query{Retention: age(), Limit: 10})
	assert.Equal(t, numbers(31, 40), packets)
	_, packets = n.read(t, broker.Query{Retention: age(), After: 20, Before: 35, Limit: 10})
	assert.Equal(t, numbers(31, 34), packets)
	_, packets = n.read(t, broker.Query{Retention: age(), After: 20, Before: 25, Limit: 10})
	assert.Empty(t, packets)
	_, packets = n.read(t, broker.Query{Retention: age(), Limit: 100, Backward: true})
	assert.Equal(t, numbers(31, 50), packets)
	page, packets := n.read(t, broker.Query{Retention: broker.Retention{Messages: 1, Age: time.Nanosecond}, Limit: 100})
	assert.Empty(t, packets)
	assert.EqualValues(t, 50, page.Position.Offset)

	keys := n.keysOf("news")
	stream, metadata := admin.PTTL(t.Context(), keys.stream).Val(), admin.PTTL(t.Context(), keys.channel.Name).Val()
	assert.InDelta(t, 76*time.Second, stream, float64(15*time.Second))
	assert.Greater(t, metadata, stream+24*time.Hour)
	for _, key := range admin.Keys(t.Context(), "*").Val() {
		assert.Positive(t, admin.PTTL(t.Context(), key).Val(), key)
	}
}

func TestHistory_StateOfKeys(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	n := connectHistory(t, server.Client(t))
	r := broker.Retention{Messages: 1}
	publish := func(key, packet string, removed bool) {
		_, err := n.Append(t.Context(), broker.Append{Topic: "news", Retention: r, Packet: []byte(packet), StateKey: key, Removed: removed})
		require.NoError(t, err)
	}
	state := func(r broker.Retention) (broker.Position, map[string]string) {
		s, err := n.ReadState(t.Context(), broker.StateQuery{Topic: "news", Retention: r})
		require.NoError(t, err)
		packets := map[string]string{}
		for _, p := range s.Publications {
			packets[p.StateKey] = fmt.Sprint(p.Position.Offset, " ", string(p.Packet))
		}
		return s.Position, packets
	}
	start, packets := state(r)
	assert.Empty(t, packets)
	publish("a", "1", false)
	publish("b", "2", false)
	publish("", "3", false)
	publish("a", "4", false)
	publish("c", "5", false)
	publish("c", "6", true)
	position, packets := state(r)
	assert.Equal(t, broker.Position{Epoch: start.Epoch, Offset: 6}, position)
	assert.Equal(t, map[string]string{"a": "4 4", "b": "2 2"}, packets)
	assert.Positive(t, server.Client(t).PTTL(t.Context(), n.keysOf("news").state).Val())
	assert.Eventually(t, func() bool { // the age counts in milliseconds
		_, packets := state(broker.Retention{Age: time.Nanosecond})
		return len(packets) == 0
	}, time.Minute, time.Millisecond)
	require.NoError(t, server.Client(t).Del(t.Context(), n.keysOf("news").channel.Name).Err())
	position, packets = state(r)
	assert.Zero(t, position.Offset)
	assert.Empty(t, packets, "the state belongs to the lost epoch")
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
