package router_test

import (
	"context"
	"encoding/json"
	"fmt"
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

// resumeWithin is the time for a resume in these tests.
const resumeWithin = 2 * time.Minute

func TestResume_ContinuesOnAnotherNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.NewBroker()
		one, two := newSessionRouter(b, nil), newSessionRouter(b, nil)
		publishTexts(t, one, 1, 3)
		old := dialSession(t, one, "ann").hello()
		frame := old.call("$ws:subscribe", `{"topic":"feed/a","positions":true}`)
		var at subscribed
		require.NoError(t, json.Unmarshal(frame.Payload, &at))
		publishTexts(t, two, 4, 4)
		assert.Equal(t, []string{"4"}, old.texts())
		old.Abort()
		publishTexts(t, two, 5, 7)

		c := dialSession(t, two, "ann")
		answer := c.resume(old.token, fmt.Sprintf(`{"topic":"feed/a","epoch":%q,"offset":4}`, at.Epoch))
		topic := answer.topic(t, "feed/a")
		assert.True(t, *topic.Recovered)
		assert.Equal(t, at.Epoch, topic.Epoch)
		assert.EqualValues(t, 4, topic.Offset)
		assert.NotEqual(t, old.token, c.token)
		publishTexts(t, one, 8, 8)
		assert.Equal(t, []string{"5", "6", "7", "8"}, c.texts())
	})
}

func TestResume_RestoresWhatHandlersHaveSubscribed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.NewBroker()
		one, two := newSessionRouter(b, nil), newSessionRouter(b, nil)
		watcher := dialSession(t, two, "eve")
		require.NoError(t, watcher.conn.Subscribe("room/go", router.Present("")))
		old := dialSession(t, one, "ann").hello()
		require.NoError(t, old.conn.Subscribe("room/go", router.Present("Ann")))
		require.NoError(t, old.conn.Subscribe("private/ann"))
		require.NoError(t, old.conn.Subscribe("plain/a"))
		require.NoError(t, old.conn.Subscribe("plain/left"))
		old.conn.Unsubscribe("plain/left")
		old.call("$ws:subscribe", `{"topic":"room/own"}`)
		synctest.Wait()
		_, at, err := one.ReadHistory(t.Context(), "private/ann", broker.Query{})
		require.NoError(t, err)
		old.Abort()
		synctest.Wait()
		err = two.Publish("private/ann", Blob{Text: "missed"}, router.Stored(t.Context(), nil))
		require.NoError(t, err)
		assert.Len(t, two.Presence("room/go"), 2)

		c := dialSession(t, two, "ann")
		answer := c.resume(old.token, fmt.Sprintf(`{"topic":"private/ann","epoch":%q,"offset":0}`, at.Epoch))
		require.Len(t, answer.Topics, 3)
		for _, topic := range answer.Topics {
			assert.Nil(t, topic.Error, topic.Topic)
			assert.True(t, c.conn.Subscribed(topic.Topic))
		}
		assert.Equal(t, "private/ann", answer.Topics[0].Topic, "presented topics come first")
		assert.True(t, *answer.topic(t, "private/ann").Recovered)
		assert.Nil(t, answer.topic(t, "plain/a").Recovered)
		assert.False(t, c.conn.Subscribed("room/own"), "the client has not presented it")
		assert.False(t, c.conn.Subscribed("plain/left"))
		assert.Equal(t, []string{"missed"}, c.texts())
		synctest.Wait()
		var infos []string
		for _, m := range two.Presence("room/go") {
			infos = append(infos, m.UserID+" "+m.Info)
		}
		assert.ElementsMatch(t, []string{"eve ", "ann Ann"}, infos)

		c.Abort() // the restored topics are in the record again
		synctest.Wait()
		again := dialSession(t, one, "ann").resume(c.token, "")
		require.Len(t, again.Topics, 3)
		assert.False(t, *again.topic(t, "private/ann").Recovered, "the client has not presented a position")
		assert.EqualValues(t, 1, again.topic(t, "private/ann").Offset)
	})
}

func TestSession_ClientLearnsOfSubscriptionsThatHandlersMake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSessionRouter(nil, func(o *router.Options) {
			o.OnOpen = func(_ context.Context, c *router.Conn) error {
				return errors.Join(c.Subscribe("plain/first"), c.Subscribe("private/first"))
			}
		})
		c := dialSession(t, r, "ann")
		synctest.Wait()
		c.hello()
		synctest.Wait()
		first := []string{c.Next().Text, c.Next().Text}
		assert.Contains(t, fmt.Sprint(first), `{"type":"$ws:subscribed","meta":{"timestamp":946684800000},"payload":{"topic":"plain/first"}}`)
		assert.Regexp(t, `\{"type":"\$ws:subscribed","meta":\{"timestamp":946684800000\},"payload":\{"topic":"private/first","epoch":"[A-Z2-7]+","offset":0\}\}`, fmt.Sprint(first))

		require.NoError(t, c.conn.Subscribe("private/ann"))
		require.NoError(t, c.conn.Subscribe("private/ann"))
		synctest.Wait()
		assert.Contains(t, c.Next().Text, `"payload":{"topic":"private/ann","epoch":`)
		require.NoError(t, r.Publish("private/ann", Blob{Text: "1"}))
		require.NoError(t, r.Publish("private/first", Blob{Text: "2"}))
		assert.Contains(t, c.Next().Text, `"topic":"private/ann","offset":1}`)
		assert.Contains(t, c.Next().Text, `"topic":"private/first","offset":1}`)
		require.NoError(t, c.conn.Subscribe("plain/first", router.Present("Ann")), "the client knows of it already")

		c.conn.Unsubscribe("private/ann")
		c.conn.Unsubscribe("private/ann")
		assert.Equal(t, `{"type":"$ws:unsubscribed","meta":{"timestamp":946684800000},"payload":{"topic":"private/ann"}}`, c.Next().Text)
		assert.Contains(t, c.call("$ws:unsubscribe", `{"topic":"plain/first"}`).Text, "$ws:unsubscribed")
		assert.Contains(t, c.call("$ws:subscribe", `{"topic":"feed/a"}`).Text, "$ws:subscribed")
		synctest.Wait()
		assert.Zero(t, c.Pending(), "answers are not repeated")
	})
}

func TestSession_SinceIsAnnouncedBeforeWhatWasMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSessionRouter(nil, nil)
		router.RPC(r, func(ctx *router.Context, m Echo) (Echoed, error) {
			_, at, err := r.ReadHistory(ctx, "private/a", broker.Query{})
			if err == nil {
				_, err = subscribeSince(ctx, "private/a", broker.Position{Epoch: at.Epoch})
			}
			return Echoed(m), err
		})
		err := r.Publish("private/a", Blob{Text: "1"}, router.Stored(t.Context(), nil))
		require.NoError(t, err)
		c := dialSession(t, r, "ann").hello()
		routertest.Call[Echoed](c.Conn, Echo{})
		assert.Contains(t, c.Next().Text, `"topic":"private/a"`)
		assert.Equal(t, []string{"1"}, c.texts())
		c.Abort()
		dialSession(t, r, "ann").resume(c.token, "").topic(t, "private/a")
	})
}

func TestSession_ConnectionsWithoutOneAreNotNotified(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSessionRouter(nil, nil)
		c := dialSession(t, r, "ann")
		c.Greet()
		require.NoError(t, c.conn.Subscribe("private/a"))
		c.conn.Unsubscribe("private/a")
		synctest.Wait()
		assert.Zero(t, c.Pending())
	})
}
