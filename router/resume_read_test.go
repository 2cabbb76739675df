package router_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/testscale"
	"github.com/penstock-go/penstock/router"
)

// A meteredBroker counts what a node reads of its histories.
type meteredBroker struct {
	broker.HistoryBroker
	mu                           sync.Mutex
	reads, batches, publications int
	bytes                        int // of packets
}

type meteredSession struct {
	broker.HistoryNode
	m *meteredBroker
}

func (m *meteredBroker) ConnectHistory(h broker.Handler, hh broker.HistoryHandler) broker.HistoryNode {
	return meteredSession{m.HistoryBroker.ConnectHistory(h, hh), m}
}

func (s meteredSession) Read(ctx context.Context, q broker.Query) (broker.Page, error) {
	page, err := s.HistoryNode.Read(ctx, q)
	s.m.count(func() { s.m.reads++ }, page)
	return page, err
}

func (s meteredSession) ReadAll(ctx context.Context, b broker.Batch) ([]broker.BatchPage, error) {
	pages, err := s.HistoryNode.ReadAll(ctx, b)
	s.m.count(func() { s.m.batches++ })
	for _, page := range pages {
		s.m.count(func() {}, page.Page)
	}
	return pages, err
}

func (m *meteredBroker) count(call func(), pages ...broker.Page) {
	m.mu.Lock()
	defer m.mu.Unlock()
	call()
	for _, page := range pages {
		m.publications += len(page.Publications)
		for _, p := range page.Publications {
			m.bytes += len(p.Packet)
		}
	}
}

func (m *meteredBroker) reset() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reads, m.batches, m.publications, m.bytes = 0, 0, 0, 0
}

// TestResume_ReadsOnlyWhatTheClientReceives resumes with the first position of topics of which one
// client can receive only a part. Another connection keeps the topics on the node, so that what is
// counted is read for the resume alone.
func TestResume_ReadsOnlyWhatTheClientReceives(t *testing.T) {
	t.Parallel()
	topics := testscale.Tiers(30, 40, 300)
	for _, tt := range []struct {
		name             string
		missed           func(topic int) int
		bytes            int // of each message
		batches          int
		recovered, shown int // topics, and publications
	}{
		{"nothing was missed", func(int) int { return 0 }, 1000, 0, topics, 0},
		{"little was missed", func(int) int { return 1 }, 1000, 2, topics, topics},
		{"too long for the queue", func(int) int { return 499 }, 1000, 2, 0, 0},
		{"too many for the queue", func(int) int { return 499 }, 10, 2, 1, 499},
		{"one topic with more than all others", func(topic int) int {
			if topic == 0 {
				return 499
			}
			return 1
		}, 1000, 2, topics - 1, topics - 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := &meteredBroker{HistoryBroker: memory.NewBrokerMaxHistoryBytes(1 << 30)}
				r := newSessionRouter(m, nil)
				router.Topic(r, "long/{name}", &router.TopicOptions{
					Authorize: func(*router.Context, router.TopicMatch) error { return nil }, History: router.History{Messages: 500},
				})
				client := dialSession(t, r, "ann").hello()
				client.Abort()
				other := dialSession(t, r, "bob")
				var since []string
				for i := range topics {
					topic := fmt.Sprint("long/", i)
					_, at, err := r.ReadHistory(t.Context(), topic, broker.Query{})
					require.NoError(t, err)
					since = append(since, fmt.Sprintf(`{"topic":%q,"epoch":%q,"offset":0}`, topic, at.Epoch))
				}
				for i := range topics {
					for range tt.missed(i) {
						require.NoError(t, r.Publish(fmt.Sprint("long/", i), plainNote{strings.Repeat("x", tt.bytes)}))
					}
					require.NoError(t, other.conn.Subscribe(fmt.Sprint("long/", i)))
				}
				synctest.Wait()
				m.reset()
				returned := dialSession(t, r, "ann")
				answer := returned.resume(client.token, strings.Join(since, ","))
				recovered := 0
				for _, topic := range answer.Topics {
					require.Nil(t, topic.Error, topic.Topic)
					if *topic.Recovered {
						recovered++
					}
				}
				assert.Equal(t, tt.recovered, recovered)
				assert.Equal(t, []int{0, tt.batches, tt.shown}, []int{m.reads, m.batches, m.publications}, "reads, batches, publications")
				for range tt.shown {
					require.Equal(t, "NOTE", returned.Next().Type)
				}
				returned.Abort()
				other.Abort()
				synctest.Wait()
			})
		})
	}
}
