package router_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// resumeWithin is the time for a resume in these tests.
const resumeWithin = 2 * time.Minute

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
