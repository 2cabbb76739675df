package router_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/observe"
	"github.com/penstock-go/penstock/router/routertest"
)

// publishStored publishes a message, waits until it is stored, and returns its position.
func publishStored(ctx context.Context, r *router.Router, topic string, m router.Message, opts ...router.PublishOption) (at broker.Position, err error) {
	err = r.Publish(topic, m, append(opts, router.Stored(ctx, &at))...)
	return at, err
}

// subscribeSince subscribes the connection of a message from a position on.
func subscribeSince(ctx *router.Context, topic string, position broker.Position) (recovery router.Recovery, err error) {
	err = ctx.Subscribe(topic, router.Since(position, &recovery))
	return recovery, err
}

// subscribeState subscribes the connection of a message to the current state of a topic.
func subscribeState(ctx *router.Context, topic string) (recovery router.Recovery, err error) {
	err = ctx.Subscribe(topic, router.CurrentState(&recovery))
	return recovery, err
}

// TestPublishOptions_ThatExcludeEachOther combines what cannot be combined, and asks topics for
// what they cannot do.
func TestPublishOptions_ThatExcludeEachOther(t *testing.T) {
	r := router.New(nil)
	router.Topic(r, "kept", &router.TopicOptions{History: router.History{Messages: 5}})
	var at broker.Position
	for name, opt := range map[string]router.PublishOption{
		"stored": router.Stored(t.Context(), &at), "key": router.IdempotencyKey("k"), "removed": router.Removed(),
	} {
		assert.Equal(t, errors.InvalidArgument, errors.CodeOf(r.Publish("kept", Quote{}, router.Local(), opt)), name)
		assert.Equal(t, errors.FailedPrecondition, errors.CodeOf(r.Publish("plain", Quote{}, opt)), name)
	}
	assert.Zero(t, at)
	require.NoError(t, r.Publish("kept", Quote{}, router.IdempotencyKey(""), router.Except(nil), router.Stored(t.Context(), &at)))
	assert.EqualValues(t, 1, at.Offset)
}

// TestPublishOptions_OfTwoNodes publishes with every option on a topic with a history, and on one
// without.
func TestPublishOptions_OfTwoNodes(t *testing.T) {
	for _, topic := range []string{"kept", "plain"} {
		runSynctest(t, topic, func(t *testing.T) {
			shared := memory.NewBroker()
			var nodes [2]*router.Router
			var clients [2]*routertest.Conn
			for i := range nodes {
				nodes[i] = router.New(&router.Options{Broker: shared})
				router.Topic(nodes[i], "kept", &router.TopicOptions{History: router.History{Messages: 5}})
				clients[i] = routertest.Dial(t, nodes[i])
				require.NoError(t, onlyConn(t, nodes[i]).Subscribe(topic))
			}
			synctest.Wait()
			pending := func(opts ...router.PublishOption) (n [2]int) {
				require.NoError(t, nodes[0].Publish(topic, Quote{}, opts...))
				synctest.Wait()
				for i, c := range clients {
					for ; c.Pending() > 0; n[i]++ {
						c.Next()
					}
				}
				return n
			}
			self := router.Except(onlyConn(t, nodes[0]))
			assert.Equal(t, [2]int{1, 1}, pending())
			assert.Equal(t, [2]int{0, 1}, pending(self))
			assert.Equal(t, [2]int{1, 0}, pending(router.Local()))
			assert.Equal(t, [2]int{0, 0}, pending(router.Local(), self))
		})
	}
}

// TestSubscribeOptions_Combined makes a client present on a topic whose state and history it receives.
func TestSubscribeOptions_Combined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := router.New(nil)
		router.Topic(r, "kept", &router.TopicOptions{History: router.History{Messages: 5}})
		client := routertest.Dial(t, r)
		c := onlyConn(t, r)
		for n := range 3 {
			require.NoError(t, r.Publish("kept", Quote{Symbol: "a", N: n}))
		}
		var recovery router.Recovery
		require.NoError(t, c.Subscribe("kept", router.CurrentState(nil), router.Present("Ann"), router.Since(broker.Position{}, &recovery)))
		assert.EqualValues(t, 3, recovery.Position.Offset)
		assert.Equal(t, 1, recovery.State)
		assert.Equal(t, 2, routertest.Receive[Quote](client).N)
		assert.Equal(t, "Ann", r.Presence("kept")[0].Info)
		assert.Equal(t, errors.FailedPrecondition, errors.CodeOf(c.Subscribe("plain", router.Since(broker.Position{}, nil))))
		assert.False(t, c.Subscribed("plain"))
	})
}

// TestPublish_SlowsPublisherWhileSubscribersAreBehind has subscribers that do not read. The
// connection that publishes to them is delayed, and no other one.
func TestPublish_SlowsPublisherWhileSubscribersAreBehind(t *testing.T) {
	t.Parallel()
	const messages, size = 10, 4000
	type handled struct {
		text string
		at   time.Time
	}
	var log recorder[handled]
	var subscribed sync.WaitGroup
	subscribed.Add(3)
	r := router.New(discardLogs(router.Options{
		SlowConsumer: router.DropNewest, Limits: router.Limits{QueueMessages: 64},
		Timeouts: router.Timeouts{Message: time.Minute},
		OnOpen: func(_ context.Context, c *router.Conn) error {
			if c.Identity().UserID != "" {
				return nil
			}
			defer subscribed.Done()
			return c.Subscribe("busy")
		},
		Authenticate: byUser,
	}))
	router.On(r, func(ctx *router.Context, m Blob) error {
		log.add(handled{m.Text, time.Now()})
		return ctx.Publish(m.Text, Blob{Text: strings.Repeat("x", size)})
	})
	server := httptest.NewServer(r)
	defer server.Close()
	for range 3 {
		dialTCP(t, server)
	}
	subscribed.Wait()
	behind := func() (n int) {
		for c := range r.Conns() {
			if c.QueueStats().Backpressure {
				n++
			}
		}
		return n
	}
	full := 0 // how often they were behind in a row: the buffers of the kernel may grow
	require.Eventually(t, func() bool {
		if full++; behind() < 3 {
			full = 0
		}
		for range 1000 {
			require.NoError(t, r.Publish("busy", Blob{Text: strings.Repeat("x", size)}))
		}
		return full == 20
	}, time.Minute, 10*time.Millisecond)
	send := func(topic string) {
		ws, _, err := websocket.Dial(t.Context(), server.URL+"?access_token="+topic, nil)
		require.NoError(t, err)
		t.Cleanup(func() { _ = ws.CloseNow() })
		for range messages {
			require.NoError(t, ws.Write(t.Context(), websocket.MessageText, []byte(`{"type":"BLOB","payload":{"text":"`+topic+`"}}`)))
		}
	}
	send("busy")
	send("quiet")
	require.Eventually(t, func() bool { return len(log.all()) == 2*messages }, time.Minute, time.Millisecond)
	var busy []time.Time
	for _, h := range log.all() {
		if h.text == "busy" {
			busy = append(busy, h.at)
		}
	}
	assert.GreaterOrEqual(t, busy[messages-1].Sub(busy[0]), (messages-1)*100*time.Millisecond)
	assert.Equal(t, "busy", log.all()[2*messages-1].text, "the other publisher is not delayed")
}

// TestPublish_ErrorOfAStoreSaysWhoReceivesTheMessage publishes on a topic with a History while its
// store fails.
func TestPublish_ErrorOfAStoreSaysWhoReceivesTheMessage(t *testing.T) {
	unavailable := errors.Errorf(errors.Unavailable, "the store is away")
	unknown := errors.Errorf(errors.OutcomeUnknown, "the connection broke")
	for name, test := range map[string]struct {
		store    func(ctx context.Context, a broker.Append, session broker.HistoryNode) (broker.Appended, error)
		code     errors.Code
		waits    time.Duration
		received int
	}{
		"not stored": {
			store: func(context.Context, broker.Append, broker.HistoryNode) (broker.Appended, error) {
				return broker.Appended{}, unavailable
			},
			code: errors.Unavailable,
		},
		"stored, without an answer": {
			store: func(ctx context.Context, a broker.Append, session broker.HistoryNode) (broker.Appended, error) {
				_, err := session.Append(ctx, a)
				return broker.Appended{}, errors.Join(err, unknown)
			},
			code:     errors.OutcomeUnknown,
			received: 1,
		},
		"slow": {
			store: func(ctx context.Context, _ broker.Append, _ broker.HistoryNode) (broker.Appended, error) {
				<-ctx.Done()
				return broker.Appended{}, unknown
			},
			code:  errors.OutcomeUnknown,
			waits: 3 * time.Second,
		},
	} {
		runSynctest(t, name, func(t *testing.T) {
			r := router.New(&router.Options{
				Broker:   &unreliableBroker{Broker: memory.NewBroker(), append: test.store},
				Timeouts: router.Timeouts{Call: 3 * time.Second},
			})
			router.Topic(r, "feed/{name}", &router.TopicOptions{History: router.History{Messages: 10}})
			client := routertest.Dial(t, r)
			require.NoError(t, onlyConn(t, r).Subscribe("feed/a"))
			synctest.Wait() // until the broker has subscribed the node
			begin := time.Now()
			err := r.Publish("feed/a", Blob{Text: "x"})
			assert.Equal(t, test.code, errors.CodeOf(err))
			assert.Equal(t, test.waits, time.Since(begin))
			synctest.Wait()
			assert.Equal(t, test.received, client.Pending())
		})
	}
}

// TestStored_UnconfirmedMessageIsDeliveredOnce publishes what a store confirms at the second attempt.
func TestStored_UnconfirmedMessageIsDeliveredOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var requested []broker.Durability
		b := &unreliableBroker{Broker: memory.NewBroker(), append: func(ctx context.Context, a broker.Append, session broker.HistoryNode) (broker.Appended, error) {
			requested = append(requested, a.Durability)
			stored, err := session.Append(ctx, a)
			if err == nil && len(requested) == 1 {
				return broker.Appended{}, errors.Errorf(errors.OutcomeUnknown, "no replica has confirmed it")
			}
			return stored, err
		}}
		r := router.New(&router.Options{Broker: b})
		durability := broker.Durability{Replicas: 2, OnDisk: true}
		router.Topic(r, "feed/{name}", &router.TopicOptions{History: router.History{Messages: 10, Durability: durability}})
		client := routertest.Dial(t, r)
		require.NoError(t, onlyConn(t, r).Subscribe("feed/a"))
		synctest.Wait()
		err := r.Publish("feed/a", Blob{Text: "x"}, router.IdempotencyKey("k"), router.Stored(t.Context(), nil))
		assert.Equal(t, errors.OutcomeUnknown, errors.CodeOf(err))
		synctest.Wait()
		assert.Equal(t, 1, client.Pending(), "subscribers do not wait for the confirmation")
		at, err := publishStored(t.Context(), r, "feed/a", Blob{Text: "x"}, router.IdempotencyKey("k"))
		require.NoError(t, err, "the memory broker accepts every Durability")
		assert.EqualValues(t, 1, at.Offset)
		synctest.Wait()
		assert.Equal(t, 1, client.Pending())
		assert.Equal(t, []broker.Durability{durability, durability}, requested)
	})
}

// A refusingBroker passes nothing on.
type refusingBroker struct{ recordingBroker }

func (b *refusingBroker) Connect(broker.Callbacks) broker.Node { return b }

func (*refusingBroker) Publish(string, []byte) error {
	return errors.Errorf(errors.ResourceExhausted, "too many messages wait")
}

func TestPublish_ErrorOfTheBrokerFollowsDeliveryOnThisNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := router.New(&router.Options{Broker: &refusingBroker{}})
		client := routertest.Dial(t, r)
		require.NoError(t, onlyConn(t, r).Subscribe("room"))
		err := r.Publish("room", Blob{Text: "x"})
		assert.Equal(t, errors.ResourceExhausted, errors.CodeOf(err))
		synctest.Wait()
		assert.Equal(t, 1, client.Pending())
	})
}

// TestLocal_StoresNothing publishes on this node only, on a topic with a History whose store fails.
func TestLocal_StoresNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := router.New(&router.Options{Broker: unreliable()})
		router.Topic(r, "feed/{name}", &router.TopicOptions{History: router.History{Messages: 10}})
		client := routertest.Dial(t, r)
		require.NoError(t, onlyConn(t, r).Subscribe("feed/a"))
		require.NoError(t, r.Publish("feed/a", Blob{Text: "x"}, router.Local()))
		synctest.Wait()
		require.Equal(t, 1, client.Pending())
		assert.NotContains(t, client.Next().Text, "offset")
		messages, _, err := r.ReadHistory(t.Context(), "feed/a", broker.Query{Limit: 10})
		require.NoError(t, err)
		assert.Empty(t, messages)
	})
}

// TestPublish_ReachesManySubscribers publishes to more subscribers than are looked at together, while
// some of them disconnect.
func TestPublish_ReachesManySubscribers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var receivers recorder[int]
		r := newChat()
		r.Observe(func(e observe.Event) {
			if e.Kind == observe.Published {
				receivers.add(e.Count)
			}
		})
		var clients []*routertest.Conn
		for range 100 {
			clients = append(clients, routertest.Dial(t, r))
		}
		for i := range clients { // in another order than they have connected
			clients[i*37%len(clients)].Send(Subscribe{"go"})
		}
		synctest.Wait()
		for round := range 5 {
			clients[round*5].Abort()
			clients = slices.Delete(clients, round*5, round*5+1)
			synctest.Wait()
			publisher := clients[round*17%len(clients)]
			publisher.Send(SayOthers{"go", fmt.Sprint(round)})
			synctest.Wait()
			for _, c := range clients {
				if c == publisher {
					assert.Zero(t, c.Pending())
					continue
				}
				require.Equal(t, 1, c.Pending())
				require.Equal(t, Say{"go", fmt.Sprint(round)}, routertest.Receive[Say](c))
			}
			assert.Equal(t, len(clients)-1, receivers.all()[round])
		}
	})
}

// TestPublish_ReachesManyFollowers publishes to more followers than are looked at together, and to a
// subscriber without positions.
func TestPublish_ReachesManyFollowers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFeedRouter(nil, router.History{Messages: 100})
		feeds := make([]*feed, 40)
		for i := range feeds {
			feeds[i] = &feed{t: t}
			feeds[i].subscribe(r)
		}
		plain := routertest.Dial(t, r)
		plain.SendText(`{"type":"$ws:subscribe","meta":{"correlationId":"s"},"payload":{"topic":"feed/a"}}`)
		require.Equal(t, "$ws:subscribed", plain.Next().Type)
		for round := range 5 {
			feeds[0].client.Abort()
			feeds = feeds[1:]
			synctest.Wait()
			feeds[7].client.Send(Blob{Text: fmt.Sprint(round)})
			synctest.Wait()
			for i, f := range feeds {
				f.receive()
				require.Equal(t, uint64(round)+1, f.offset)
				if i != 7 {
					require.Equal(t, fmt.Sprint(round), f.texts[round])
				}
			}
			require.Equal(t, 1, plain.Pending())
			require.Equal(t, Blob{Text: fmt.Sprint(round)}, routertest.Receive[Blob](plain))
		}
	})
}
