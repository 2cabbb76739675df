package router_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/codec/cbor"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// newStateRouter returns a router with topics feed/… that keep the current state.
func newStateRouter(b broker.Broker, opts *router.Options) *router.Router {
	if opts == nil {
		opts = &router.Options{}
	}
	opts.Broker = b
	opts.Codecs = []router.Codec{cbor.New(nil)}
	r := router.New(opts)
	router.Topic(r, "feed/{name}", &router.TopicOptions{
		History: router.History{Messages: 1}, Authorize: permit,
	})
	return r
}

func decodeFrame[M router.Message](t *testing.T, frame routertest.Frame) (m M) {
	t.Helper()
	unmarshal := json.Unmarshal
	if frame.Binary {
		unmarshal = cbor.New(nil).Unmarshal
	}
	require.NoError(t, unmarshal(frame.Payload, &m))
	return m
}

func TestReadState_ReturnsLatestMessageOfEachKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newStateRouter(nil, nil)
		require.NoError(t, r.Publish("feed/a", Quote{Symbol: "go", N: 1}))
		require.NoError(t, r.Publish("feed/a", Quote{Symbol: "js", N: 2}))
		require.NoError(t, r.Publish("feed/a", Quote{N: 3})) // the empty key is a key
		require.NoError(t, r.Publish("feed/a", Quote{Symbol: "go", N: 4}))
		require.NoError(t, r.Publish("feed/a", Delisted{"js"}, router.Removed()))
		require.NoError(t, r.Publish("feed/a", Blob{Text: "no key"}))
		require.NoError(t, r.Publish("feed/a", Quote{Symbol: "c", N: 7}))
		messages, at, err := r.ReadState(t.Context(), "feed/a")
		require.NoError(t, err)
		assert.EqualValues(t, 7, at.Offset)
		var got []string
		for _, m := range messages {
			var quote Quote
			require.NoError(t, m.Decode(&quote))
			got = append(got, fmt.Sprintf("%d %s %d", m.Position.Offset, quote.Symbol, quote.N))
		}
		assert.Equal(t, []string{"3  3", "4 go 4", "7 c 7"}, got)
		_, _, err = r.ReadState(t.Context(), "other")
		assert.Equal(t, errors.FailedPrecondition, errors.CodeOf(err))
		_, _, err = r.ReadState(t.Context(), "")
		assert.Equal(t, errors.InvalidArgument, errors.CodeOf(err))
	})
}

func TestReadState_ReturnsAStateOfSeveralParts(t *testing.T) {
	counted := unreliable()
	r := newStateRouter(counted, nil)
	const keys = 2000
	for n := range keys {
		err := r.Publish("feed/a", Quote{Symbol: fmt.Sprint(n, strings.Repeat("x", 200)), N: n}, router.Stored(t.Context(), nil))
		require.NoError(t, err)
	}
	messages, at, err := r.ReadState(t.Context(), "feed/a")
	require.NoError(t, err)
	assert.Greater(t, counted.reads.all().parts, int64(1))
	assert.EqualValues(t, keys, at.Offset)
	require.Len(t, messages, keys)
	for i, m := range messages {
		assert.EqualValues(t, i+1, m.Position.Offset)
	}
}

func TestStored_RemovalNeedsAKey(t *testing.T) {
	r := newStateRouter(nil, nil)
	err := r.Publish("feed/a", Blob{}, router.Removed(), router.Stored(t.Context(), nil))
	assert.Equal(t, errors.InvalidArgument, errors.CodeOf(err))
	assert.ErrorContains(t, err, "router_test.Blob")
}

// TestState_ThatLacksTheFormatIsAnError stores a message on a node without codecs.
func TestState_ThatLacksTheFormatIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := memory.NewBroker()
		plain := router.New(&router.Options{Broker: shared})
		router.Topic(plain, "feed/{name}", &router.TopicOptions{History: router.History{Messages: 1}})
		require.NoError(t, plain.Publish("feed/a", Quote{Symbol: "go", N: 1}))
		r := newStateRouter(shared, discardLogs(router.Options{}))
		client := routertest.Dial(t, r, routertest.Codec(cbor.New(nil)))
		subscribe := `{"type":"$ws:subscribe","meta":{"correlationId":"s"},"payload":{"topic":"feed/a","state":true}}`
		client.SendText(subscribe)
		assert.Equal(t, errors.FailedPrecondition, routertest.ReceiveError(client).Code)
		require.NoError(t, r.Publish("feed/a", Quote{Symbol: "go", N: 2}))
		client.SendText(subscribe)
		assert.Equal(t, "$ws:subscribed", client.Next().Type)
		assert.Equal(t, 2, routertest.Receive[Quote](client).N)
	})
}
