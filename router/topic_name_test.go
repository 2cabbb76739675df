package router_test

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// TestPublication_NamesItsTopicToClientsThatHaveGreeted has topics with a history and without.
func TestPublication_NamesItsTopicToClientsThatHaveGreeted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := router.New(discardLogs(router.Options{}))
		router.Topic(r, "kept/{name}", &router.TopicOptions{History: router.History{Messages: 10}})
		greeted, plain := routertest.Dial(t, r), routertest.Dial(t, r)
		greeted.SendText(`{"type":"$ws:hello"}`)
		assert.Equal(t, "$ws:welcome", greeted.Next().Type)
		for c := range r.Conns() {
			require.NoError(t, c.Subscribe("a"))
			require.NoError(t, c.Subscribe("kept/a"))
		}
		for _, topic := range []string{"a", "kept/a"} {
			synctest.Wait() // the topic is followed
			require.NoError(t, r.Publish(topic, Blob{N: 1}))
			assert.Contains(t, greeted.Next().Text, `,"topic":"`+topic+`"},"payload":{"n":1,`)
			assert.NotContains(t, plain.Next().Text, "topic")
		}
	})
}

// TestSince_ClientsThatHaveNotGreetedReceiveNoPositions lets a handler subscribe clients to a topic
// with a history from a position on.
func TestSince_ClientsThatHaveNotGreetedReceiveNoPositions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := router.New(nil)
		router.Topic(r, "feed/{name}", &router.TopicOptions{
			History:   router.History{Messages: 10},
			Authorize: func(*router.Context, router.TopicMatch) error { return nil },
		})
		router.RPC(r, func(ctx *router.Context, m Echo) (Echoed, error) {
			_, err := subscribeSince(ctx, "feed/a", broker.Position{})
			return Echoed(m), err
		})
		router.On(r, func(ctx *router.Context, m Blob) error { return ctx.Publish("feed/a", m, router.Except(ctx.Conn())) })
		plain, asks, greeted := routertest.Dial(t, r), routertest.Dial(t, r), routertest.Dial(t, r)
		greeted.SendText(`{"type":"$ws:hello"}`)
		assert.Equal(t, "$ws:welcome", greeted.Next().Type)
		asks.SendText(`{"type":"$ws:subscribe","meta":{"correlationId":"s"},"payload":{"topic":"feed/a","positions":true}}`)
		assert.Equal(t, "$ws:subscribed", asks.Next().Type)
		for _, client := range []*routertest.Conn{plain, greeted} {
			client.SendText(`{"type":"ECHO","meta":{"correlationId":"e"},"payload":{}}`)
			assert.Equal(t, "ECHOED", client.Next().Type)
		}
		require.NoError(t, r.Publish("feed/a", Blob{Text: "x"}))
		assert.NotContains(t, plain.Next().Text, "feed/a")
		assert.Contains(t, asks.Next().Text, `"topic":"feed/a","offset":1`)
		assert.Contains(t, greeted.Next().Text, `"topic":"feed/a","offset":1`)
		plain.Send(Blob{Text: "y"}) // which it does not receive, and no position either
		synctest.Wait()
		asks.Send(Blob{Text: "z"})
		synctest.Wait()
		assert.Contains(t, plain.Next().Text, `"z"`)
		assert.Zero(t, plain.Pending())
		assert.Equal(t, "BLOB", asks.Next().Type)
		assert.Equal(t, "$ws:position", asks.Next().Type)
		assert.Equal(t, 2, greeted.Pending())
	})
}
