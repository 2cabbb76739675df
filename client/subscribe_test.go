//go:build !js

package client_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/coder/websocket/wsjson"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/client"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/testscale"
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

// Subscriptions of one topic begin at random positions, also with the state, and end at random times, while connections are
// cut: each receives every publication from its position on, once and in order.
func TestSubscribe_SubscriptionsOfOneTopicMissNothing(t *testing.T) {
	t.Parallel()
	s := startTopics(t)
	s.start()
	c, ctx := s.connect(nil), testContext(t)
	var readers, subscribed sync.WaitGroup
	publications := testscale.Tiers(300, 600, 2000)
	all := make(chan uint64, 2*publications)
	publish := func(n int) {
		err := s.Publish("room/a", moved{fmt.Sprint("p", n%5), n}, router.Stored(ctx, nil))
		require.NoError(t, err)
	}
	client.On(c, func(_ moved, r *client.Received) {
		if !r.State {
			all <- r.Position.Offset
		}
	})
	base, err := c.Subscribe(ctx, "room/a", nil)
	require.NoError(t, err)
	publish(0)
	require.Eventually(t, func() bool { return base.Position().Offset == 1 }, time.Minute, time.Millisecond)
	for n := 1; n < publications; n++ {
		publish(n)
		if n%50 == 25 {
			s.cut()
		}
		if n%100 == 99 { // the server recovers a bounded number of publications
			subscribed.Wait()
			require.Eventually(t, func() bool { return base.Position().Offset > uint64(n) }, time.Minute, time.Millisecond)
		}
		if n%20 != 0 {
			continue
		}
		since := client.Position{}
		if n%40 == 0 {
			since = client.Position{Epoch: base.Position().Epoch, Offset: uint64(n) - rand.Uint64N(uint64(min(n, 100)))}
		}
		subscribed.Add(1)
		readers.Go(func() {
			next, done, last := uint64(0), make(chan struct{}), uint64(publications+1)
			sub, err := c.Subscribe(ctx, "room/a", &client.SubscribeOptions{
				Since: since, State: since.Epoch == "" && n%60 == 0,
				OnLoss: func(l client.Loss) { t.Errorf("lost %+v", l) },
				Handlers: []client.Handler{client.HandlerFor(func(_ moved, r *client.Received) {
					switch {
					case r.State:
						return
					case next == 0 && since.Epoch != "":
						assert.Equal(t, since.Offset+1, r.Position.Offset)
					case next != 0:
						assert.Equal(t, next, r.Position.Offset)
					}
					if next = r.Position.Offset + 1; r.Position.Offset == last {
						close(done)
					}
				})},
			})
			subscribed.Done()
			if !assert.NoError(t, err) {
				return
			}
			if n%100 == 0 {
				sub.Unsubscribe()
				return
			}
			select {
			case <-done:
			case <-ctx.Done():
				t.Errorf("subscription %d, since %d, has not received the last publication: its position is %d", n, since.Offset, sub.Position().Offset)
			}
		})
	}
	subscribed.Wait()
	publish(publications)
	for offset := range publications + 1 {
		select {
		case got := <-all:
			require.EqualValues(t, offset+1, got)
		case <-ctx.Done():
			require.FailNow(t, "missing", offset+1)
		}
	}
	readers.Wait()
}

// A server may mark publications of topics without a history.
func TestSubscribe_MarkedPublicationsWithoutPosition(t *testing.T) {
	t.Parallel()
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		ws, err := websocket.Accept(w, req, nil)
		if err != nil {
			return
		}
		defer ws.CloseNow()
		for {
			var m struct {
				Type string
				Meta struct{ CorrelationID string }
			}
			if wsjson.Read(req.Context(), ws, &m) != nil {
				return
			}
			meta := object{"timestamp": 1, "correlationId": m.Meta.CorrelationID}
			if m.Type == "$ws:hello" {
				_ = wsjson.Write(req.Context(), ws, object{"type": "$ws:welcome", "meta": meta, "payload": object{"concurrency": 64}})
				continue
			}
			_ = wsjson.Write(req.Context(), ws, object{"type": "$ws:subscribed", "meta": meta, "payload": object{"topic": "lobby"}})
			_ = wsjson.Write(req.Context(), ws, object{"type": "SAID", "meta": object{"timestamp": 1, "topic": "lobby"}, "payload": object{"text": "hi"}})
		}
	}))
	defer web.Close()
	c, ctx := client.New(strings.Replace(web.URL, "http", "ws", 1), nil), testContext(t)
	received, on := inbox()
	_, err := c.Subscribe(ctx, "lobby", &client.SubscribeOptions{Handlers: []client.Handler{client.HandlerFor(on)}})
	require.NoError(t, err)
	expect(t, received, "lobby hi 0")
	require.NoError(t, c.Close(ctx))
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
