package redis

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/redis/internal/pubsub"
	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/redistest"
	"github.com/penstock-go/penstock/internal/sequencer"
	"github.com/penstock-go/penstock/internal/testscale"
)

// A countedNode counts the topics that are read, each for itself or with others.
type countedNode struct {
	broker.HistoryNode
	topics atomic.Int64
}

func (s *countedNode) Read(ctx context.Context, q broker.Query) (broker.Page, error) {
	page, err := s.HistoryNode.Read(ctx, q)
	s.topics.Add(1)
	return page, err
}

func (s *countedNode) ReadAll(ctx context.Context, b broker.Batch) ([]broker.BatchPage, error) {
	pages, err := s.HistoryNode.ReadAll(ctx, b)
	s.topics.Add(int64(len(b.Topics)))
	return pages, err
}

// sent returns how many bytes a server has sent.
func sent(t *testing.T, admin *goredis.Client) int64 {
	return infoNumber(t, admin, "stats", "total_net_output_bytes:")
}

// infoNumber returns the number after a text in a section of INFO.
func infoNumber(t *testing.T, admin *goredis.Client, section, text string) int64 {
	_, after, found := strings.Cut(admin.Info(t.Context(), section).Val(), text)
	require.True(t, found, text)
	n, err := strconv.ParseInt(after[:strings.IndexAny(after, ",\r\n")], 10, 64)
	require.NoError(t, err)
	return n
}

// TestHistory_BlipCostsFewScripts breaks the connections on which nodes receive, and waits until each node has
// compared all of its topics. It logs the numbers in docs/reference/guarantees.md.
func TestHistory_BlipCostsFewScripts(t *testing.T) {
	t.Parallel()
	const nodeCount = 4
	topics := testscale.Tiers(500, 1000, 5000)
	server := redistest.Start(t)
	admin := server.Client(t)
	var nodes []*countedNode
	for range nodeCount {
		sequencers := make(map[string]*sequencer.Sequencer, topics)
		ready := make(chan struct{}) // closed when the sequencers exist
		node := NewBroker(server.Client(t)).ConnectHistory(broker.Handler{}, broker.HistoryHandler{
			Published: func(topic string, p broker.Publication) { <-ready; sequencers[topic].Publish(p) },
			Following: func(topic string) { <-ready; sequencers[topic].Following() },
		})
		t.Cleanup(func() { node.(*historyNode).Kill() })
		counted := &countedNode{HistoryNode: node}
		reader := sequencer.NewReader(counted)
		for i := range topics {
			topic := fmt.Sprint("room/", i)
			sequencers[topic] = sequencer.New(reader, topic, retention, sequencer.Sink{
				Deliver: func(broker.Publication) {}, Lost: func(l sequencer.Loss) { t.Errorf("a notice: %+v", l) },
			})
			t.Cleanup(sequencers[topic].Close)
		}
		close(ready)
		nodes = append(nodes, counted)
	}
	for i := range topics / 2 {
		_, err := nodes[0].Append(t.Context(), broker.Append{Topic: fmt.Sprint("room/", i), Retention: retention, Packet: []byte("packet")})
		require.NoError(t, err)
	}
	awaitAll := func() {
		require.Eventually(t, func() bool {
			for _, s := range nodes {
				if s.topics.Load() < int64(topics) {
					return false
				}
			}
			return true
		}, time.Minute, time.Millisecond)
	}
	awaitAll()
	time.Sleep(100 * time.Millisecond) // reads that have begun end
	for _, s := range nodes {
		s.topics.Store(0)
	}
	server.ResetStats(t)
	before, begun := sent(t, admin), time.Now()
	require.NoError(t, admin.Do(t.Context(), "CLIENT", "KILL", "TYPE", "pubsub").Err())
	awaitAll()
	scripts := server.CommandStats(t)["evalsha"]
	t.Logf("%d nodes with %d topics: %d scripts, %.1f µs of Redis per topic, %d kB from Redis, %v", nodeCount, topics, scripts,
		float64(infoNumber(t, admin, "commandstats", fmt.Sprintf("cmdstat_evalsha:calls=%d,usec=", scripts)))/float64(nodeCount*topics),
		(sent(t, admin)-before)/1000, time.Since(begun).Round(time.Millisecond))
	assert.GreaterOrEqual(t, scripts, int64(nodeCount*pubsub.Connections))
	assert.LessOrEqual(t, scripts, int64(nodeCount*pubsub.Connections*10), "one for each partition, and for what is confirmed before the others")
}

// TestHistory_ReturningClientReadsLittle lets a client return to topics of which each fills its queue, and logs
// the numbers in docs/reference/guarantees.md.
func TestHistory_ReturningClientReadsLittle(t *testing.T) {
	t.Parallel()
	const missed, packetBytes = 499, 1100
	topics := testscale.Tiers(10, 100, 300)
	server := redistest.Start(t)
	admin, n := server.Client(t), connectHistory(t, server.Client(t))
	reader := sequencer.NewReader(n)
	long := broker.Retention{Messages: 500, Age: time.Hour}
	catchup := sequencer.NewCatchup(n, 512, 512<<10)
	var joins sync.WaitGroup
	begin := make(chan struct{})
	var recovered atomic.Int64
	for i := range topics {
		topic := fmt.Sprint("room/", i)
		page, err := n.Read(t.Context(), broker.Query{Topic: topic, Retention: long})
		require.NoError(t, err)
		var publishers sync.WaitGroup
		for range missed {
			publishers.Go(func() {
				_, err := n.Append(t.Context(), broker.Append{Topic: topic, Retention: long, Packet: make([]byte, packetBytes)})
				assert.NoError(t, err)
			})
		}
		publishers.Wait()
		s := sequencer.New(reader, topic, long, sequencer.Sink{Deliver: func(broker.Publication) {}, Lost: func(sequencer.Loss) {}})
		t.Cleanup(s.Close)
		s.Following() // the recorder of the node does not forward
		require.NoError(t, s.Join(t.Context(), broker.Position{}, nil, func(sequencer.Joined) {}))
		from := catchup.Topic(500)
		joins.Go(func() {
			defer from.Close()
			<-begin
			assert.NoError(t, s.Join(t.Context(), page.Position, from, func(j sequencer.Joined) {
				if j.Recovered {
					recovered.Add(1)
				}
			}))
		})
	}
	server.ResetStats(t)
	before := sent(t, admin)
	close(begin)
	joins.Wait()
	scripts, bytes := server.CommandStats(t)["evalsha"], sent(t, admin)-before
	t.Logf("%d topics with %d missed messages of %d bytes: %d scripts, %d kB from Redis", topics, missed, packetBytes, scripts, bytes/1000)
	assert.Zero(t, recovered.Load())
	assert.EqualValues(t, pubsub.Connections+1, scripts, "the positions of all topics, and one topic, which does not fit")
	assert.Less(t, bytes, int64(50_000))
}
