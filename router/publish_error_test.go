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

func (b *refusingBroker) Connect(broker.Handler) broker.Node { return b }

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
