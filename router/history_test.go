package router_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/codec/cbor"
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
		time.Sleep(time.Minute + time.Millisecond)
		messages, current, err = r.ReadHistory(t.Context(), "log/a", broker.Query{Limit: 100})
		require.NoError(t, err)
		assert.Empty(t, messages)
		assert.EqualValues(t, 8, current.Offset, "positions outlive messages")
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
			_, err := r.PrepareAppend(topic, Blob{})
			assert.Equal(t, code, errors.CodeOf(err), topic)
		}
		for _, o := range []router.PublishOption{router.Local(), router.Stored(t.Context(), nil)} {
			_, err := r.PrepareAppend("log/a", Blob{}, o)
			assert.Equal(t, errors.InvalidArgument, errors.CodeOf(err))
		}
		a, err := r.PrepareAppend("log/a", Blob{Text: "hello"}, router.IdempotencyKey("1"))
		require.NoError(t, err)
		assert.Equal(t, "log/a", a.Topic)
		assert.Equal(t, "1", a.IdempotencyKey)
		assert.Equal(t, broker.Retention{Messages: 10, Age: time.Hour, Bytes: 1000}, a.Retention)
		synctest.Wait()
		assert.Zero(t, client.Pending(), "nothing is published")

		n := b.ConnectHistory(broker.Callbacks{}, broker.HistoryCallbacks{})
		defer func() { _ = n.Close(t.Context()) }()
		_, err = n.Append(t.Context(), a)
		require.NoError(t, err)
		assert.Equal(t, "hello", routertest.Receive[Blob](client).Text)
	})
}

// TestHistory_FullMemory fills the memory of the histories of two nodes: publishers get an error, and
// subscribers miss nothing that was stored.
func TestHistory_FullMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.NewBrokerMaxHistoryBytes(50_000)
		h := router.History{Messages: 10_000, Age: time.Minute}
		one, two := newHistoryRouter(b, h), newHistoryRouter(b, h)
		publisher, subscriber := routertest.Dial(t, one), routertest.Dial(t, two)
		synctest.Wait()
		stored := 0
		fill := func() (err error) {
			for ; err == nil && stored < 10_000; synctest.Wait() {
				if err = one.Publish("log/a", Blob{N: stored, Text: strings.Repeat(" ", 100)}); err == nil {
					assert.Equal(t, stored, routertest.Receive[Blob](subscriber).N)
					stored++
				}
			}
			return err
		}
		assert.Equal(t, errors.ResourceExhausted, errors.CodeOf(fill()))
		for range stored {
			publisher.Next()
		}
		publisher.Send(Blob{Text: strings.Repeat(" ", 100)})
		assert.Equal(t, errors.ResourceExhausted, routertest.ReceiveError(publisher).Code)
		for i := range 1000 { // reading needs no memory
			_, _, err := one.ReadHistory(t.Context(), fmt.Sprint("log/", i), broker.Query{})
			require.NoError(t, err)
		}
		messages, _, err := two.ReadHistory(t.Context(), "log/a", broker.Query{Limit: 10_000})
		require.NoError(t, err)
		assert.Len(t, messages, stored)
		time.Sleep(h.Age + time.Second) // older publications expire
		before := stored
		for attempt := 0; stored < before+100 && attempt < 200; attempt++ {
			_ = fill()
		}
		assert.GreaterOrEqual(t, stored, before+100)
	})
}

// TestHistory_UnreadableMessageIsSkippedAndReported stores what another program may write to a store.
func TestHistory_UnreadableMessageIsSkippedAndReported(t *testing.T) {
	for name, packet := range map[string]string{"no packet": "not a packet", "nothing": "", "cut": "\x01"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testUnreadable(t, packet) })
		})
	}
}

func testUnreadable(t *testing.T, packet string) {
	var log bytes.Buffer
	lost := 0
	b := memory.NewBroker()
	r := router.New(&router.Options{
		Broker: b, Logger: slog.New(slog.NewTextHandler(&log, nil)), OnMessagesLost: func(_ string, messages int) { lost += messages },
	})
	router.Topic(r, "feed/{name}", &router.TopicOptions{Authorize: permit, History: router.History{Messages: 10}})
	other := b.ConnectHistory(broker.Callbacks{}, broker.HistoryCallbacks{})
	defer func() { assert.NoError(t, other.Close(context.Background())) }()
	client := routertest.Dial(t, r)
	client.SendText(`{"type":"$ws:subscribe","meta":{"correlationId":"s"},"payload":{"topic":"feed/a","positions":true}}`)
	assert.Equal(t, "$ws:subscribed", client.Next().Type)

	require.NoError(t, r.Publish("feed/a", Blob{N: 1}))
	_, err := other.Append(t.Context(), broker.Append{Topic: "feed/a", Retention: broker.Retention{Messages: 10}, Packet: []byte(packet), StateKey: "=k"})
	require.NoError(t, err)
	require.NoError(t, r.Publish("feed/a", Blob{N: 3}))
	synctest.Wait()
	assert.Equal(t, 1, routertest.Receive[Blob](client).N)
	assert.Contains(t, client.Next().Text, `"lost":{"from":2,"to":2}`)
	assert.Equal(t, 3, routertest.Receive[Blob](client).N)
	assert.Equal(t, 1, lost)

	messages, current, err := r.ReadHistory(t.Context(), "feed/a", broker.Query{Limit: 10})
	require.NoError(t, err)
	assert.Equal(t, []uint64{1, 3}, offsetsOf(messages))
	assert.EqualValues(t, 3, current.Offset)
	assert.Contains(t, log.String(), `msg="stored message skipped" topic=feed/a error="the message at`)
	state, _, err := r.ReadState(t.Context(), "feed/a")
	require.NoError(t, err)
	assert.Empty(t, state)
	var followed []router.StoredMessage
	for m, err := range r.Follow(t.Context(), "feed/a", broker.Position{}) {
		require.NoError(t, err)
		if followed = append(followed, m); m.Position.Offset == 3 {
			break
		}
	}
	assert.Equal(t, []uint64{1, 3}, offsetsOf(followed))
	require.NoError(t, r.Shutdown(t.Context()))
}

func offsetsOf(messages []router.StoredMessage) (offsets []uint64) {
	for _, m := range messages {
		offsets = append(offsets, m.Position.Offset)
	}
	return offsets
}

func TestHistory_BinaryFormat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		codec := cbor.New(nil)
		r := newSessionRouter(nil, func(o *router.Options) { o.Codecs = []router.Codec{codec} })
		at, err := publishStored(t.Context(), r, "feed/a", Blob{N: 1})
		require.NoError(t, err)
		client := routertest.Dial(t, r, routertest.Codec(codec))
		client.SendText(fmt.Sprintf(`{"type":"$ws:subscribe","meta":{"correlationId":"s"},"payload":{"topic":"feed/a","epoch":%q,"offset":0}}`, at.Epoch))
		assert.Equal(t, "$ws:subscribed", client.Next().Type)
		require.NoError(t, r.Publish("feed/a", Blob{N: 2}))
		for n := range 2 {
			assert.Equal(t, n+1, routertest.Receive[Blob](client).N)
		}
	})
}
