package router_test

import (
	"context"
	"fmt"
	"sync"
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

// newHistoryRouter returns a router whose topics log/… have a history. Clients subscribe to log/a when
// they connect.
func newHistoryRouter(b broker.Broker, h router.History) *router.Router {
	r := router.New(&router.Options{Broker: b, OnOpen: func(_ context.Context, c *router.Conn) error { return c.Subscribe("log/a") }})
	router.Topic(r, "log/{name}", &router.TopicOptions{History: h})
	router.On(r, func(ctx *router.Context, m Blob) error { return ctx.Publish("log/a", m, router.Except(ctx.Conn())) })
	return r
}

func TestHistory_SubscribersOfAllNodesSeeOneOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const publishers, each = 8, 50
		b := memory.NewBroker()
		nodes := []*router.Router{newHistoryRouter(b, router.History{Messages: 1000}), newHistoryRouter(b, router.History{Messages: 1000})}
		var clients []*routertest.Conn
		for n := range 6 {
			clients = append(clients, routertest.Dial(t, nodes[n%2]))
		}
		synctest.Wait()
		positions := make(map[uint64]string)
		var mu sync.Mutex
		var wg sync.WaitGroup
		for p := range publishers {
			wg.Go(func() {
				for n := range each {
					m := Blob{N: p, Text: fmt.Sprint(n)}
					at, err := publishStored(t.Context(), nodes[p%2], "log/a", m)
					require.NoError(t, err)
					mu.Lock()
					positions[at.Offset] = fmt.Sprintf("%d %d", p, n)
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		synctest.Wait()
		require.Len(t, positions, publishers*each, "every publication has an offset of its own")
		for _, client := range clients {
			require.Equal(t, publishers*each, client.Pending())
			for offset := range uint64(publishers * each) {
				m := routertest.Receive[Blob](client)
				require.Equal(t, positions[offset+1], fmt.Sprintf("%d %s", m.N, m.Text))
			}
		}
	})
}

func TestHistory_KeepsPublicationsWithoutSubscribers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := router.New(nil)
		router.Topic(r, "log/{name}", &router.TopicOptions{History: router.History{Messages: 5, Age: time.Minute}})
		_, first, err := r.ReadHistory(t.Context(), "log/a", broker.Query{Limit: 10})
		require.NoError(t, err)
		assert.Zero(t, first.Offset)
		assert.NotEmpty(t, first.Epoch, "the position precedes the first publication")
		for n := range 8 {
			require.NoError(t, r.Publish("log/a", Blob{N: n}))
		}
		messages, current, err := r.ReadHistory(t.Context(), "log/a", broker.Query{Limit: 3, Backward: true})
		require.NoError(t, err)
		assert.Equal(t, broker.Position{Epoch: first.Epoch, Offset: 8}, current)
		require.Len(t, messages, 3)
		for i, m := range messages {
			var blob Blob
			require.NoError(t, m.Decode(&blob))
			assert.Equal(t, 5+i, blob.N)
			assert.EqualValues(t, 6+i, m.Position.Offset)
			assert.Equal(t, "BLOB", m.Type)
			assert.Equal(t, time.Now(), m.At)
		}
		messages, _, err = r.ReadHistory(t.Context(), "log/a", broker.Query{Limit: 100})
		require.NoError(t, err)
		assert.Len(t, messages, 5)
		time.Sleep(time.Minute + time.Millisecond)
		messages, current, err = r.ReadHistory(t.Context(), "log/a", broker.Query{Limit: 100})
		require.NoError(t, err)
		assert.Empty(t, messages)
		assert.EqualValues(t, 8, current.Offset, "positions outlive messages")
	})
}

func TestHistory_ExceptSelfAndIdempotencyKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newHistoryRouter(nil, router.History{Messages: 10})
		one, two := routertest.Dial(t, r), routertest.Dial(t, r)
		synctest.Wait()
		one.Send(Blob{N: 1})
		assert.Equal(t, 1, routertest.Receive[Blob](two).N)
		at, err := publishStored(t.Context(), r, "log/a", Blob{N: 2}, router.IdempotencyKey("k"))
		require.NoError(t, err)
		again, err := publishStored(t.Context(), r, "log/a", Blob{N: 2}, router.IdempotencyKey("k"))
		require.NoError(t, err)
		assert.Equal(t, at, again)
		assert.EqualValues(t, 2, at.Offset)
		for _, client := range []*routertest.Conn{one, two} {
			assert.Equal(t, 2, routertest.Receive[Blob](client).N)
		}
		synctest.Wait()
		assert.Zero(t, one.Pending()+two.Pending())
	})
}

func TestHistory_TopicWithoutOneIsRejected(t *testing.T) {
	r := router.New(nil)
	err := r.Publish("log/a", Blob{}, router.Stored(t.Context(), nil))
	assert.Equal(t, errors.FailedPrecondition, errors.CodeOf(err))
	_, _, err = r.ReadHistory(t.Context(), "log/a", broker.Query{})
	assert.Equal(t, errors.FailedPrecondition, errors.CodeOf(err))
	err = r.Publish("", Blob{}, router.Stored(t.Context(), nil))
	assert.Equal(t, errors.InvalidArgument, errors.CodeOf(err))
}

func TestRouter_PublicationIsStoredByAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.NewBroker()
		r := newHistoryRouter(b, router.History{Messages: 10, Age: time.Hour, Bytes: 1000})
		client := routertest.Dial(t, r)
		for topic, code := range map[string]errors.Code{"": errors.InvalidArgument, "chat": errors.FailedPrecondition} {
			_, err := r.Publication(topic, Blob{})
			assert.Equal(t, code, errors.CodeOf(err), topic)
		}
		for _, o := range []router.PublishOption{router.Local(), router.Stored(t.Context(), nil)} {
			_, err := r.Publication("log/a", Blob{}, o)
			assert.Equal(t, errors.InvalidArgument, errors.CodeOf(err))
		}
		a, err := r.Publication("log/a", Blob{Text: "hello"}, router.IdempotencyKey("1"))
		require.NoError(t, err)
		assert.Equal(t, "log/a", a.Topic)
		assert.Equal(t, "1", a.IdempotencyKey)
		assert.Equal(t, broker.Retention{Messages: 10, Age: time.Hour, Bytes: 1000}, a.Retention)
		synctest.Wait()
		assert.Zero(t, client.Pending(), "nothing is published")

		n := b.ConnectHistory(broker.Handler{}, broker.HistoryHandler{})
		defer func() { _ = n.Close(t.Context()) }()
		_, err = n.Append(t.Context(), a)
		require.NoError(t, err)
		assert.Equal(t, "hello", routertest.Receive[Blob](client).Text)
	})
}
