package router_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// publishStored publishes a message, waits until it is stored, and returns its position.
func publishStored(ctx context.Context, r *router.Router, topic string, m router.Message, opts ...router.PublishOption) (at broker.Position, err error) {
	err = r.Publish(topic, m, append(opts, router.Stored(ctx, &at))...)
	return at, err
}

// subscribeSince subscribes the connection of a message from a position on.
func subscribeSince(ctx *router.Context, topic string, position broker.Position) error {
	return ctx.Subscribe(topic, router.Since(position, nil))
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
		assert.Equal(t, errors.FailedPrecondition, errors.CodeOf(c.Subscribe("plain", router.CurrentState(nil))))
		assert.False(t, c.Subscribed("plain"))
	})
}

// TestPublish_SlowsPublisherWhileSubscribersAreBehind delays the connection that publishes to subscribers that do not
// read, and no other one.
func TestPublish_SlowsPublisherWhileSubscribersAreBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const messages = 10
		handled := map[string]*recorder[time.Duration]{"busy": {}, "quiet": {}}
		start := time.Now()
		r := router.New(discardLogs(router.Options{SlowConsumer: router.DropNewest, Limits: router.Limits{QueueMessages: 64}, Timeouts: patient}))
		router.On(r, func(ctx *router.Context, m Blob) error {
			handled[m.Text].add(time.Since(start))
			return ctx.Publish(m.Text, Nothing{})
		})
		_, conn := dialPaused(t, r)
		require.NoError(t, conn.Subscribe("busy"))
		for !conn.QueueStats().Backpressure {
			require.NoError(t, r.Publish("busy", Nothing{}))
		}
		for _, topic := range []string{"busy", "quiet"} {
			client := routertest.Dial(t, r)
			for range messages {
				client.Send(Blob{Text: topic})
			}
			synctest.Wait()
		}
		time.Sleep(time.Minute)
		assert.Equal(t, make([]time.Duration, messages), handled["quiet"].all())
		assert.Equal(t, (messages-1)*100*time.Millisecond, handled["busy"].all()[messages-1])
	})
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
