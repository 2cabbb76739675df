package router_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
)

// userHistory is that of the routers in these tests, unless they say otherwise.
var userHistory = router.History{Messages: 100}

// newUserLogRouter returns a router with sessions and a history for each user.
func newUserLogRouter(b broker.Broker, change func(*router.Options)) *router.Router {
	return newSessionRouter(b, func(o *router.Options) {
		o.UserHistory = userHistory
		if change != nil {
			change(o)
		}
	})
}

// An islandBroker connects one node to a shared broker, and can cut it off from the store and from
// other nodes. When it returns, what the broker has passed on meanwhile is lost, as by a connection
// that broke.
type islandBroker struct {
	*memory.Broker

	mu        sync.Mutex
	cut       bool
	followed  map[string]bool
	following func(topic string)
}

func newIsland(b *memory.Broker) *islandBroker {
	return &islandBroker{Broker: b, followed: map[string]bool{}}
}

func (b *islandBroker) isCut() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.cut
}

// setCut cuts the node off, or ends that.
func (b *islandBroker) setCut(cut bool) {
	b.mu.Lock()
	b.cut = cut
	var topics []string
	for topic := range b.followed {
		topics = append(topics, topic)
	}
	b.mu.Unlock()
	for _, topic := range topics {
		if !cut {
			b.following(topic)
		}
	}
	synctest.Wait()
}

// ConnectHistory adds the node.
func (b *islandBroker) ConnectHistory(h broker.Handler, histories broker.HistoryHandler) broker.HistoryNode {
	receive, published, following := h.Receive, histories.Published, histories.Following
	h.Receive = func(topic, node string, packet []byte) {
		if !b.isCut() {
			receive(topic, node, packet)
		}
	}
	histories.Published = func(topic string, p broker.Publication) {
		if !b.isCut() {
			published(topic, p)
		}
	}
	histories.Following = func(topic string) {
		if !b.isCut() {
			following(topic)
		}
	}
	b.following = following
	return &islandSession{b.Broker.ConnectHistory(h, histories), b}
}

type islandSession struct {
	broker.HistoryNode

	broker *islandBroker
}

var errIsland = errors.New("the node is cut off")

func (s *islandSession) Publish(topic string, packet []byte) error {
	if s.broker.isCut() {
		return nil
	}
	return s.HistoryNode.Publish(topic, packet)
}

func (s *islandSession) Follow(topic string) {
	s.broker.mu.Lock()
	s.broker.followed[topic] = true
	s.broker.mu.Unlock()
	s.HistoryNode.Follow(topic)
}

func (s *islandSession) Append(ctx context.Context, a broker.Append) (broker.Appended, error) {
	if s.broker.isCut() {
		return broker.Appended{}, errIsland
	}
	return s.HistoryNode.Append(ctx, a)
}

func (s *islandSession) ReadAll(ctx context.Context, b broker.Batch) ([]broker.BatchPage, error) {
	if s.broker.isCut() {
		return nil, errIsland
	}
	return s.HistoryNode.ReadAll(ctx, b)
}

func (s *islandSession) LoadValue(ctx context.Context, key string) (broker.Value, error) {
	if s.broker.isCut() {
		return broker.Value{}, errIsland
	}
	return s.HistoryNode.LoadValue(ctx, key)
}

// sendTexts sends messages to a user of the tenant "t", and waits until they have arrived.
func sendTexts(t *testing.T, r *router.Router, user string, from, to int) {
	t.Helper()
	for n := from; n <= to; n++ {
		_, err := r.SendToUser("t", user, Blob{Text: fmt.Sprint(n)})
		require.NoError(t, err)
	}
	synctest.Wait()
}

// A userLogMeta is the position of a message to a user.
type userLogMeta struct {
	Topic  *string `json:"topic"`
	Offset uint64  `json:"offset"`
}

// A logClient is a client with a session that follows the log of its user, and fails the test if a
// message is repeated or left out without a notice.
type logClient struct {
	*sessionClient

	epoch  string
	offset uint64
	lost   []string // notices
}

// dialLog connects a client that greets and learns the position of the log.
func dialLog(t *testing.T, r *router.Router, user string) *logClient {
	t.Helper()
	c := &logClient{sessionClient: dialSession(t, r, user).hello()}
	require.Empty(t, c.received())
	require.NotEmpty(t, c.epoch)
	return c
}

// resumeOn continues the session on another connection.
func (c *logClient) resumeOn(r *router.Router, user string) *logClient {
	c.t.Helper()
	next := &logClient{sessionClient: dialSession(c.t, r, user), epoch: c.epoch, offset: c.offset}
	next.continued(next.resume(c.token, fmt.Sprintf(`{"topic":"","epoch":%q,"offset":%d}`, c.epoch, c.offset)))
	return next
}

// continued handles the answer to a resume.
func (c *logClient) continued(answer resumed) {
	c.t.Helper()
	at := answer.topic(c.t, "")
	require.Nil(c.t, at.Error)
	if !*at.Recovered {
		c.lost = append(c.lost, "resume")
	} else {
		require.Equal(c.t, c.epoch, at.Epoch)
		require.Equal(c.t, c.offset, at.Offset)
	}
	c.epoch, c.offset = at.Epoch, at.Offset
}

// received returns the texts of the messages that have arrived, and follows notices.
func (c *logClient) received() (texts []string) {
	c.t.Helper()
	synctest.Wait()
	for c.Pending() > 0 {
		frame := c.Next()
		switch frame.Type {
		case "BLOB":
			at := metaOf(c.t, frame.Text)
			require.NotNil(c.t, at.Topic, frame.Text)
			require.Empty(c.t, *at.Topic)
			require.Equal(c.t, c.offset+1, at.Offset, frame.Text)
			c.offset = at.Offset
			var blob Blob
			require.NoError(c.t, json.Unmarshal(frame.Payload, &blob))
			texts = append(texts, blob.Text)
		case "$ws:subscribed", "$ws:position":
			var m struct {
				resumedTopic

				Lost *struct{ From, To uint64 }
			}
			require.NoError(c.t, json.Unmarshal(frame.Payload, &m))
			require.Empty(c.t, m.Topic, frame.Text)
			if m.Lost != nil {
				c.lost = append(c.lost, fmt.Sprint(m.Lost.From, "-", m.Lost.To))
			}
			c.epoch, c.offset = m.Epoch, m.Offset
		default:
			require.Fail(c.t, "unexpected", frame.Text)
		}
	}
	return texts
}

func metaOf(t *testing.T, text string) userLogMeta {
	t.Helper()
	var message struct {
		Meta userLogMeta `json:"meta"`
	}
	require.NoError(t, json.Unmarshal([]byte(text), &message))
	return message.Meta
}

// numbers returns the texts of messages.
func numbers(from, to int) (texts []string) {
	for n := from; n <= to; n++ {
		texts = append(texts, fmt.Sprint(n))
	}
	return texts
}
