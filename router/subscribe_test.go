package router_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// TestSubscribe_AuthorizeThatBlocksGrantsNothingLater blocks Authorize until the client has gone,
// or has received an error.
func TestSubscribe_AuthorizeThatBlocksGrantsNothingLater(t *testing.T) {
	for name, tt := range map[string]struct {
		end  func(*routertest.Conn)
		want errors.Code
	}{
		"deadline": {func(*routertest.Conn) { time.Sleep(time.Minute) }, errors.DeadlineExceeded},
		"abort": {func(c *routertest.Conn) {
			c.SendText(`{"type":"$ws:abort","meta":{"correlationId":"c"}}`)
			synctest.Wait()
		}, errors.Canceled},
		"close": {func(c *routertest.Conn) { c.Close() }, ""},
	} {
		runSynctest(t, name, func(t *testing.T) {
			var conn *router.Conn
			returned := make(chan struct{})
			r := router.New(&router.Options{OnError: func(report router.ErrorReport) {
				assert.Fail(t, "nothing is wrong on the server", "%v", report)
			}})
			router.Topic(r, "room/{id}", &router.TopicOptions{Presence: true, Authorize: func(ctx *router.Context, _ router.TopicMatch) error {
				defer close(returned)
				conn = ctx.Conn()
				<-ctx.Done()
				return nil
			}})
			client := routertest.Dial(t, r)
			client.SendText(`{"type":"$ws:subscribe","meta":{"correlationId":"c"},"payload":{"topic":"room/go","presence":true}}`)
			synctest.Wait()
			tt.end(client)
			<-returned
			synctest.Wait()
			assert.False(t, conn.Subscribed("room/go"))
			assert.Empty(t, r.Presence("room/go"))
			if tt.want != "" {
				assert.Equal(t, tt.want, routertest.ReceiveError(client).Code)
				assert.Zero(t, client.Pending())
			}
		})
	}
}

// TestSubscribe_IsChargedLikeAnyMessage counts what ingress functions and middleware see.
func TestSubscribe_IsChargedLikeAnyMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ingress, middleware recorder[string]
		r := router.New(nil)
		r.UseIngress(func(_ context.Context, in router.IngressContext) error {
			if ingress.add(in.Type); len(ingress.all()) > 3 {
				return &router.LimitExceeded{Kind: router.LimitRate, Observed: 1, Limit: 3, RetryAfter: time.Second}
			}
			return nil
		})
		r.Use(func(next router.Handler) router.Handler {
			return func(ctx *router.Context) error {
				middleware.add(ctx.Type())
				return next(ctx)
			}
		})
		router.Topic(r, "room/{id}", &router.TopicOptions{Authorize: permit})
		conn := routertest.Dial(t, r)
		routertest.Subscribe(conn, "room/go")
		assert.Equal(t, errors.NotFound, routertest.SubscribeError(conn, "news").Code)
		routertest.Unsubscribe(conn, "room/go")
		err := routertest.SubscribeError(conn, "room/go")
		assert.Equal(t, errors.ResourceExhausted, err.Code)
		assert.Equal(t, time.Second, err.RetryAfter)
		assert.Equal(t, []string{"$ws:subscribe", "$ws:subscribe", "$ws:unsubscribe", "$ws:subscribe"}, ingress.all())
		assert.Equal(t, []string{"$ws:subscribe", "$ws:subscribe", "$ws:unsubscribe"}, middleware.all())
		assert.NotContains(t, slices.Collect(r.Types()), "$ws:subscribe")
	})
}

func TestSubscribe_LaterMessagesSeeSubscription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newChat()
		router.Topic(r, "{room}", &router.TopicOptions{Authorize: func(*router.Context, router.TopicMatch) error {
			time.Sleep(time.Second)
			return nil
		}})
		conn := routertest.Dial(t, r)
		conn.SendText(`{"type":"$ws:subscribe","meta":{"correlationId":"c"},"payload":{"topic":"go"}}`)
		conn.Send(Say{"go", "hi"})
		assert.Equal(t, "$ws:subscribed", conn.Next().Type)
		assert.Equal(t, "hi", routertest.Receive[Say](conn).Text)
	})
}

func TestTopicOptions_MaxPerConn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := router.New(&router.Options{Limits: router.Limits{Topics: 4}})
		router.Topic(r, "room/{id}", &router.TopicOptions{Authorize: permit, MaxPerConn: 2})
		router.Topic(r, "room/lobby", &router.TopicOptions{Authorize: permit})
		router.Topic(r, "news", &router.TopicOptions{Authorize: permit})
		client := routertest.Dial(t, r)
		synctest.Wait()
		conn := onlyConn(t, r)
		rejected := func(topic string, observed, limit float64) {
			t.Helper()
			err := routertest.SubscribeError(client, topic)
			assert.Equal(t, errors.ResourceExhausted, err.Code)
			assert.Equal(t, errors.Never, err.RetryAfter, "it is not retryable")
			assert.Equal(t, map[string]any{"kind": "topics", "observed": observed, "limit": limit}, err.Details)
		}
		require.NoError(t, conn.Subscribe("room/1"))
		routertest.Subscribe(client, "room/2")
		routertest.Subscribe(client, "room/2")
		rejected("room/3", 3, 2)
		exceeded, ok := errors.AsType[*router.LimitExceeded](conn.Subscribe("room/3", router.Present("")))
		require.True(t, ok)
		assert.Equal(t, router.LimitExceeded{Kind: router.LimitTopics, Option: "router.TopicOptions.MaxPerConn", Observed: 3, Limit: 2, RetryAfter: errors.Never}, *exceeded)
		routertest.Subscribe(client, "room/lobby") // another pattern
		require.NoError(t, conn.Subscribe("undeclared"))
		rejected("news", 5, 4)
		routertest.Unsubscribe(client, "room/1")
		routertest.Subscribe(client, "room/3")
	})
}
