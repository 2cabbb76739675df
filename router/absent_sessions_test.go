package router_test

import (
	"fmt"
	"strings"
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

// TestSessions_OfAbsentClientsAreBounded leaves sessions behind, of one user and of one address.
func TestSessions_OfAbsentClientsAreBounded(t *testing.T) {
	for name, tt := range map[string]struct {
		user  func(n int) string
		limit router.Limits
	}{
		"user":    {func(int) string { return "ann" }, router.Limits{SessionsPerUser: 3}},
		"address": {func(n int) string { return fmt.Sprint("user", n) }, router.Limits{ConnsPerIP: 3}},
	} {
		runSynctest(t, name, func(t *testing.T) {
			b := memory.NewBroker()
			one := newSessionRouter(b, func(o *router.Options) { o.Limits = tt.limit })
			two := newSessionRouter(b, nil)
			leave := func(n int) (token string) {
				c := dialSession(t, one, tt.user(n)).hello()
				c.Abort()
				synctest.Wait()
				return c.token
			}
			tokens := make([]string, 6)
			for n := range tokens {
				tokens[n] = leave(n)
			}
			for n, token := range tokens {
				c := dialSession(t, two, tt.user(n))
				if n < 3 {
					assert.Equal(t, errors.NotFound, c.resumeError(token), n)
				} else {
					c.resume(token, "")
				}
			}
			// What was resumed elsewhere is not ended, and what has expired does not count.
			first := leave(0)
			time.Sleep(resumeWithin)
			last := []string{leave(0), leave(1), leave(2)}
			assert.Equal(t, errors.NotFound, dialSession(t, two, tt.user(0)).resumeError(first))
			for n, token := range last {
				dialSession(t, two, tt.user(n)).resume(token, "")
			}
		})
	}
}

// TestSessions_ThatAreResumedDoNotCount leaves a session behind while another client of the user loses its
// connection again and again.
func TestSessions_ThatAreResumedDoNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSessionRouter(nil, func(o *router.Options) { o.Limits.SessionsPerUser = 2 })
		laptop := dialSession(t, r, "ann").hello()
		laptop.Abort()
		phone := dialSession(t, r, "ann").hello()
		for range 5 {
			synctest.Wait()
			phone.Abort()
			synctest.Wait()
			token := phone.token
			phone = dialSession(t, r, "ann")
			phone.resume(token, "")
			phone.acknowledge()
		}
		dialSession(t, r, "ann").resume(laptop.token, "")
	})
}

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
		r := newSessionRouter(nil, nil)
		router.On(r, func(ctx *router.Context, _ Nothing) error {
			_, err := subscribeSince(ctx, "private/x", broker.Position{})
			return err
		})
		c := dialSession(t, r, "ann").hello()
		n := 0
		fill := func(info int) error {
			for ; n < 1000; n++ {
				if err := c.conn.Subscribe(fmt.Sprint("plain/", n), router.Present(strings.Repeat("i", info))); err != nil {
					return err
				}
			}
			return nil
		}
		require.NoError(t, c.conn.Subscribe("plain/none"))
		require.Error(t, fill(300))
		rejection, ok := errors.AsType[*router.LimitExceeded](fill(0))
		require.True(t, ok)
		assert.Equal(t, router.LimitSession, rejection.Kind)
		last := fmt.Sprint("plain/", n)
		assert.False(t, c.conn.Subscribed(last))
		require.NoError(t, c.conn.Subscribe("plain/none"), "again")
		require.Error(t, c.conn.Subscribe("plain/none", router.Present(strings.Repeat("i", 300))))
		synctest.Wait()
		drain(c)
		c.Send(Nothing{})
		assert.Equal(t, errors.ResourceExhausted, routertest.ReceiveError(c.Conn).Code)
		assert.False(t, c.conn.Subscribed("private/x"))
		c.call("$ws:subscribe", `{"topic":"room/own"}`) // is not in the record
		c.conn.Unsubscribe("plain/0")
		require.NoError(t, c.conn.Subscribe(last))
	})
}
