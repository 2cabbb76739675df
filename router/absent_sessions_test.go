package router_test

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// TestSessions_ThatWaitForAnotherConnectionAreBounded resumes a session again and again, and closes each
// connection after the next one has got the session, which is never present.
func TestSessions_ThatWaitForAnotherConnectionAreBounded(t *testing.T) {
	for name, endLast := range map[string]func(*sessionClient){
		"the last connection is lost":   (*sessionClient).Abort,
		"the last connection is closed": func(c *sessionClient) { c.Close() },
	} {
		runSynctest(t, name, func(t *testing.T) {
			const limit = 3
			r := newSessionRouter(nil, func(o *router.Options) {
				o.Limits.SessionsPerUser = limit
				o.Resume.OnSessionEnd = func(router.SessionEnd) {}
			})
			wait := func(ctx *router.Context, _ router.TopicMatch) error { <-ctx.Done(); return ctx.Err() }
			router.Topic(r, "slow/{name}", &router.TopicOptions{Authorize: wait})
			for range 10 {
				c := dialSession(t, r, "ann").hello()
				next := dialSession(t, r, "ann")
				next.SendText(fmt.Sprintf(`{"type":"$ws:resume","meta":{"correlationId":"r","timeoutMs":1},"payload":{"token":%q,"topics":[{"topic":"slow/a"}]}}`, c.token))
				require.Equal(t, "RPC_ERROR", next.Next().Type)
				c.Abort()
				synctest.Wait()
				endLast(next)
				synctest.Wait()
			}
			assert.LessOrEqual(t, r.AwaySessions(), limit)
			assert.LessOrEqual(t, r.SessionOwners(), limit)
		})
	}
}

// TestSession_RecordIsBounded subscribes until the record is full.
func TestSession_RecordIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSessionRouter(nil, func(o *router.Options) { o.Limits.SessionBytes = 1000 })
		router.On(r, func(ctx *router.Context, _ Nothing) error {
			_, err := subscribeSince(ctx, "private/x", broker.Position{})
			return err
		})
		c := dialSession(t, r, "ann").hello()
		n := 0
		var err error
		for ; n < 100 && err == nil; n++ {
			err = c.conn.Subscribe(fmt.Sprint("plain/", n))
		}
		rejection, ok := errors.AsType[*router.LimitExceeded](err)
		require.True(t, ok, err)
		assert.Equal(t, router.LimitSession, rejection.Kind)
		assert.Equal(t, 10, n)
		assert.False(t, c.conn.Subscribed("plain/9"))
		require.NoError(t, c.conn.Subscribe("plain/1"), "again")
		require.Error(t, c.conn.Subscribe("plain/1", router.Present(string(make([]byte, 300)))))
		synctest.Wait()
		drain(c)
		c.Send(Nothing{})
		assert.Equal(t, errors.ResourceExhausted, routertest.ReceiveError(c.Conn).Code)
		assert.False(t, c.conn.Subscribed("private/x"))
		c.call("$ws:subscribe", `{"topic":"room/own"}`) // is not in the record
		c.conn.Unsubscribe("plain/0")
		require.NoError(t, c.conn.Subscribe("plain/9"))
	})
}
