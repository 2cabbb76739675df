package router_test

import (
	"bytes"
	"context"
	"log/slog"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

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
	router.Topic(r, "feed/{name}", &router.TopicOptions{Authorize: func(*router.Context, router.TopicMatch) error { return nil }, History: router.History{Messages: 10}})
	other := b.ConnectHistory(broker.Handler{}, broker.HistoryHandler{})
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
