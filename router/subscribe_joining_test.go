package router_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// receivedTexts returns the texts of the messages that have arrived.
func receivedTexts(client *routertest.Conn) (texts []string) {
	for client.Pending() > 0 {
		if f := client.Next(); f.Type == (Blob{}).MessageType() {
			texts = append(texts, f.Text)
		}
	}
	return texts
}

// TestSubscribe_OutlivesTheFailedRequestOfTheClient for the same topic, which waits for the store.
func TestSubscribe_OutlivesTheFailedRequestOfTheClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := unreliable()
		r := newFeedRouter(shared, router.History{Messages: 10})
		shared.away.Store(true)
		client := routertest.Dial(t, r)
		conn := onlyConn(t, r)
		client.SendText(`{"type":"$ws:subscribe","meta":{"correlationId":"s","timeoutMs":2000},"payload":{"topic":"feed/a","positions":true}}`)
		synctest.Wait()
		result := make(chan error, 1)
		go func() { result <- conn.Subscribe("feed/a") }()
		expired(t, client, "s")
		synctest.Wait()
		shared.away.Store(false)
		require.NoError(t, <-result)
		assert.True(t, conn.Subscribed("feed/a"))
		publishTexts(t, r, 1, 1)
		assert.Len(t, receivedTexts(client), 1)
	})
}

// TestSubscribe_ReceivesWhileTheClientWaits for the answer to its own request for the same topic.
func TestSubscribe_ReceivesWhileTheClientWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := unreliable()
		r := newFeedRouter(shared, router.History{Messages: 10})
		shared.slow.Store(true)
		client := routertest.Dial(t, r)
		conn := onlyConn(t, r)
		client.SendText(`{"type":"$ws:subscribe","meta":{"correlationId":"s"},"payload":{"topic":"feed/a","positions":true}}`)
		time.Sleep(time.Second)
		result := make(chan error, 1)
		go func() { result <- conn.Subscribe("feed/a") }()
		synctest.Wait()
		require.NoError(t, r.Publish("feed/a", Blob{Text: "stored"}))
		require.NoError(t, r.Publish("feed/a", Blob{Text: "local"}, router.Local()))
		time.Sleep(time.Second)
		shared.slow.Store(false)
		require.NoError(t, <-result)
		time.Sleep(10 * time.Second)
		assert.Len(t, receivedTexts(client), 2)
	})
}

// TestSubscribe_WithoutTheStoreSubscribesNothing: the connection would miss what is published before the store is back.
func TestSubscribe_WithoutTheStoreSubscribesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := unreliable()
		r := newFeedRouter(shared, router.History{Messages: 10})
		shared.away.Store(true)
		client := routertest.Dial(t, r)
		conn := onlyConn(t, r)
		start := time.Now()
		require.ErrorIs(t, conn.Subscribe("feed/a"), context.DeadlineExceeded)
		assert.Equal(t, 30*time.Second, time.Since(start), "Timeouts.Call")
		assert.False(t, conn.Subscribed("feed/a"))
		client.SendText(`{"type":"$ws:subscribe","meta":{"correlationId":"s","timeoutMs":2000},"payload":{"topic":"feed/a"}}`)
		expired(t, client, "s")
		synctest.Wait()
		assert.False(t, conn.Subscribed("feed/a"))
	})
}

// TestSubscribe_EndsWithTheRequestThatReplacesIt and fails: no connection stays subscribed that receives nothing.
func TestSubscribe_EndsWithTheRequestThatReplacesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := unreliable()
		r := newFeedRouter(shared, router.History{Messages: 10})
		shared.away.Store(true)
		client := routertest.Dial(t, r)
		conn := onlyConn(t, r)
		result := make(chan error, 1)
		go func() { result <- conn.Subscribe("feed/a", router.Since(broker.Position{}, nil)) }()
		time.Sleep(time.Second)
		client.SendText(`{"type":"$ws:subscribe","meta":{"correlationId":"s","timeoutMs":2000},"payload":{"topic":"feed/a","positions":true}}`)
		expired(t, client, "s")
		synctest.Wait()
		shared.away.Store(false)
		require.Error(t, <-result)
		assert.False(t, conn.Subscribed("feed/a"))
		client.SendText(`{"type":"$ws:subscribe","meta":{"correlationId":"t"},"payload":{"topic":"feed/a"}}`)
		require.Equal(t, "$ws:subscribed", client.Next().Type)
		synctest.Wait() // the node follows the topic again
		publishTexts(t, r, 1, 1)
		assert.Len(t, receivedTexts(client), 1)
	})
}

// TestSubscribe_OutlivesTheRequestThatItReplaces, which fails first.
func TestSubscribe_OutlivesTheRequestThatItReplaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := unreliable()
		r := newFeedRouter(shared, router.History{Messages: 10})
		shared.slow.Store(true)
		client := routertest.Dial(t, r)
		conn := onlyConn(t, r)
		result := make(chan error, 1)
		go func() { result <- conn.Subscribe("feed/a", router.Since(broker.Position{}, nil)) }()
		time.Sleep(time.Second) // both wait for Timeouts.Call
		client.SendText(`{"type":"$ws:subscribe","meta":{"correlationId":"t"},"payload":{"topic":"feed/a","positions":true}}`)
		require.Error(t, <-result)
		shared.slow.Store(false)
		require.Equal(t, "$ws:subscribed", client.Next().Type)
		assert.True(t, conn.Subscribed("feed/a"))
		publishTexts(t, r, 1, 1)
		assert.Len(t, receivedTexts(client), 1)
	})
}
