package router_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/testscale"
	"github.com/penstock-go/penstock/router"
)

// resumeWithin is the time for a resume in these tests.
const resumeWithin = 2 * time.Minute

func TestResume_AcknowledgmentWithAnotherIDHasNoEffect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSessionRouter(nil, nil)
		old := dialSession(t, r, "ann").hello()
		c := dialSession(t, r, "ann")
		c.SendText(`{"type":"$ws:ack","meta":{"correlationId":"r1"}}`) // before the session is resumed
		c.SendText(`{"type":"$ws:ack"}`)
		c.resume(old.token, "")
		c.SendText(`{"type":"$ws:ack","meta":{"correlationId":"other"}}`)
		c.SendText(`{"type":"$ws:ack"}`)
		synctest.Wait()
		assert.Zero(t, c.Pending())
		dialSession(t, r, "ann").resume(old.token, "")
	})
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
				m := &unreliableBroker{Broker: memory.NewBrokerMaxHistoryBytes(1 << 30)}
				r := newSessionRouter(m, nil)
				router.Topic(r, "long/{name}", &router.TopicOptions{
					Authorize: permit, History: router.History{Messages: 500},
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
				m.reads.reset()
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
				assert.Equal(t, []int{0, tt.batches, tt.shown}, []int{m.reads.all().reads, m.reads.all().batches, m.reads.all().publications}, "reads, batches, publications")
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
