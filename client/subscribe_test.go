//go:build !js

package client_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket/wsjson"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/client"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
)

// startTopics starts a server with topics that clients may read.
func startTopics(t *testing.T) *testServer {
	t.Helper()
	s := startServer(t, nil)
	router.Topic(s.Router, "room/{id}", &router.TopicOptions{
		History: router.History{Messages: 100_000}, Presence: true,
		Authorize: func(*router.Context, router.TopicMatch) error { return nil },
	})
	router.RPC(s.Router, func(ctx *router.Context, _ JoinRoom) (RoomJoined, error) {
		return RoomJoined{}, ctx.Subscribe("room/server", router.Since(broker.Position{}, nil))
	})
	return s
}

func (s *testServer) publish(topic string, n int) {
	s.t.Helper()
	err := s.Publish(topic, said{fmt.Sprint(n)}, router.Stored(s.t.Context(), nil))
	require.NoError(s.t, err)
}

// inbox returns a handler that notes the topic, the text and the offset.
func inbox() (chan string, func(said, *client.Received)) {
	received := make(chan string, 10_000)
	return received, func(m said, r *client.Received) { received <- fmt.Sprint(r.Topic, " ", m.Text, " ", r.Position.Offset) }
}

func expect(t *testing.T, received chan string, want ...string) {
	t.Helper()
	for _, text := range want {
		select {
		case got := <-received:
			require.Equal(t, text, got)
		case <-time.After(10 * time.Second):
			require.FailNow(t, "missing", text)
		}
	}
}

func TestSubscribe_SecondSubscriptionKeepsItsOptions(t *testing.T) {
	t.Parallel()
	s := startTopics(t)
	s.start()
	c, ctx := s.connect(nil), testContext(t)
	first, onFirst := inbox()
	one, err := c.Subscribe(ctx, "room/a", &client.SubscribeOptions{Handlers: []client.Handler{client.HandlerFor(onFirst)}})
	require.NoError(t, err)
	for n := range 3 {
		s.publish("room/a", n)
	}
	expect(t, first, "room/a 0 1", "room/a 1 2", "room/a 2 3")

	since := one.Position()
	require.NotEmpty(t, since.Epoch)
	since.Offset = 1
	second, onSecond := inbox()
	members := make(chan int, 100)
	two, err := c.Subscribe(ctx, "room/a", &client.SubscribeOptions{
		Since: since, Handlers: []client.Handler{client.HandlerFor(onSecond)},
		OnPresence: func(joined, _ []client.Member, reset bool) { members <- len(joined) },
	})
	require.NoError(t, err)
	require.NotSame(t, one, two)
	expect(t, second, "room/a 1 2", "room/a 2 3")
	assert.Equal(t, 1, <-members)
	s.publish("room/a", 3)
	expect(t, first, "room/a 3 4")
	expect(t, second, "room/a 3 4")

	one.Unsubscribe()
	one.Unsubscribe() // has no effect on the other
	s.publish("room/a", 4)
	expect(t, second, "room/a 4 5")
	assert.Empty(t, first)
	two.Unsubscribe()
	_, err = c.Subscribe(ctx, "secret", nil)
	assert.Equal(t, errors.NotFound, errors.CodeOf(err))
}

func TestOn_ReceivesTopicsThatTheServerHasSubscribed(t *testing.T) {
	t.Parallel()
	s := startTopics(t)
	s.start()
	c, ctx := s.connect(nil), testContext(t)
	received, on := inbox()
	client.On(c, on)
	_, err := client.Call[RoomJoined](ctx, c, JoinRoom{})
	require.NoError(t, err)
	s.publish("room/server", 1)
	expect(t, received, "room/server 1 1")
	mine, onMine := inbox()
	_, err = c.Subscribe(ctx, "room/server", &client.SubscribeOptions{Handlers: []client.Handler{client.HandlerFor(onMine)}})
	require.NoError(t, err)
	s.publish("room/server", 2)
	expect(t, received, "room/server 2 2")
	expect(t, mine, "room/server 2 2")
}

// A server may mark publications of topics without a history.
func TestSubscribe_MarkedPublicationsWithoutPosition(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		httpClient, closeAll := serveScript(func(p peer, m *received) {
			switch m.Type {
			case "$ws:hello":
				p.send("$ws:welcome", m, object{"concurrency": 64})
			case "$ws:subscribe":
				p.send("$ws:subscribed", m, object{"topic": "lobby"})
				meta := object{"timestamp": 1, "topic": "lobby"}
				_ = wsjson.Write(context.Background(), p.Conn, object{"type": "SAID", "meta": meta, "payload": object{"text": "hi"}})
			}
		})
		defer closeAll()
		c := client.New("ws://example.com/", &client.Options{HTTPClient: httpClient})
		received, on := inbox()
		_, err := c.Subscribe(t.Context(), "lobby", &client.SubscribeOptions{Handlers: []client.Handler{client.HandlerFor(on)}})
		require.NoError(t, err)
		expect(t, received, "lobby hi 0")
		require.NoError(t, c.Close(context.Background()))
	})
}

// TestUnsubscribe_NoHandlerBeginsAfterwards although publications wait for a slow one.
func TestUnsubscribe_NoHandlerBeginsAfterwards(t *testing.T) {
	t.Parallel()
	s := startTopics(t)
	s.start()
	c, ctx := s.connect(nil), testContext(t)
	began, release := make(chan string, 10), make(chan struct{})
	sub, err := c.Subscribe(ctx, "room/slow", &client.SubscribeOptions{
		Handlers: []client.Handler{client.HandlerFor(func(m said, _ *client.Received) { began <- m.Text; <-release })},
		OnLoss:   func(client.Loss) { began <- "loss" },
		OnEnd:    func(error) { began <- "end" },
	})
	require.NoError(t, err)
	last := make(chan struct{})
	client.On(c, func(m said, _ *client.Received) {
		if m.Text == "3" {
			close(last)
		}
	})
	start := sub.Position().Offset
	for n := range 3 {
		s.publish("room/slow", n+1)
	}
	require.Equal(t, "1", <-began)
	sub.Unsubscribe()
	close(release)
	s.publish("room/slow", 4)
	<-last
	require.NoError(t, c.Close(ctx))
	assert.Empty(t, began)
	assert.LessOrEqual(t, sub.Position().Offset, start+1, "what no handler has received is not counted")
}

// TestSubscribe_PresenceOfATopicWithoutItIsReported because OnPresence would never be called.
func TestSubscribe_PresenceOfATopicWithoutItIsReported(t *testing.T) {
	s := startServer(t, nil)
	router.Topic(s.Router, "quiet", &router.TopicOptions{Authorize: func(*router.Context, router.TopicMatch) error { return nil }})
	s.start()
	failures := make(chan error, 10)
	c := s.connect(&client.Options{OnError: func(_ string, err error) { failures <- err }})
	sub, err := c.Subscribe(testContext(t), "quiet", &client.SubscribeOptions{OnPresence: func([]client.Member, []client.Member, bool) {
		t.Error("a topic without presence has members")
	}})
	require.NoError(t, err, "publications are received nevertheless")
	failure := <-failures
	assert.Equal(t, errors.FailedPrecondition, errors.CodeOf(failure))
	assert.ErrorContains(t, failure, `topic "quiet" has no presence`)
	sub.Unsubscribe()
	_, err = c.Subscribe(testContext(t), "quiet", nil)
	require.NoError(t, err)
	assert.Empty(t, failures, "this one has not asked")
}

// What is gone for a subscription that begins early is not lost for the others.
func TestSubscribe_LossOfOneSubscriptionIsNotThatOfOthers(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	router.Topic(s.Router, "room/{id}", &router.TopicOptions{
		History: router.History{Messages: 5}, Authorize: func(*router.Context, router.TopicMatch) error { return nil },
	})
	s.start()
	c, ctx := s.connect(nil), testContext(t)
	subscribe := func(since client.Position) (chan string, *client.Subscription) {
		received, on := inbox()
		sub, err := c.Subscribe(ctx, "room/a", &client.SubscribeOptions{
			Since: since, Handlers: []client.Handler{client.HandlerFor(on)},
			OnLoss: func(l client.Loss) { received <- fmt.Sprint("lost until ", l.Position.Offset) },
		})
		require.NoError(t, err)
		return received, sub
	}
	first, one := subscribe(client.Position{})
	for n := range 20 {
		s.publish("room/a", n)
		expect(t, first, fmt.Sprint("room/a ", n, " ", n+1))
	}
	second, _ := subscribe(client.Position{Epoch: one.Position().Epoch, Offset: 1})
	expect(t, second, "lost until 20")
	s.publish("room/a", 20)
	expect(t, first, "room/a 20 21")
	expect(t, second, "room/a 20 21")
}
