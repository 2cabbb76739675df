package router_test

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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
