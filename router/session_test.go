package router_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/testscale"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/observe"
	"github.com/penstock-go/penstock/router/routertest"
)

// byExpiringToken authenticates tokens of the form user:duration.
func byExpiringToken(r *http.Request) (router.Identity, error) {
	user, valid, expires := strings.Cut(router.Token(r), ":")
	id := router.Identity{TenantID: "t", UserID: user}
	if expires {
		d, err := time.ParseDuration(valid)
		if err != nil {
			return id, err
		}
		id.ExpiresAt = time.Now().Add(d)
	}
	return id, nil
}

func TestResume_OnResumeDecides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reject := error(errors.Errorf(errors.FailedPrecondition, "the game is over"))
		var sessions recorder[[]string]
		b := memory.NewBroker()
		one := newSessionRouter(b, nil)
		two := newSessionRouter(b, func(o *router.Options) {
			o.Resume = router.ResumeOptions{Within: resumeWithin, OnResume: func(ctx *router.Context, s router.ResumedSession) error {
				sessions.add(append([]string{s.ConnID}, s.Topics...))
				assert.False(t, ctx.Conn().Subscribed("plain/a"), "OnResume precedes the subscriptions")
				return reject
			}}
		})
		old := dialSession(t, one, "ann").hello()
		require.NoError(t, old.conn.Subscribe("plain/b"))
		require.NoError(t, old.conn.Subscribe("plain/a"))
		synctest.Wait()
		c := dialSession(t, two, "ann")
		assert.Equal(t, errors.NotFound, c.resumeError(old.token[:27]+"AAAAAAAAAAAAAAAAAAAAAAAAAA"))
		assert.Empty(t, sessions.all(), "OnResume is for valid tokens")
		assert.Equal(t, errors.FailedPrecondition, c.resumeError(old.token))
		synctest.Wait()
		assert.Len(t, collect(one), 1, "the session is as it was")
		reject = nil
		c.resume(old.token, "")
		want := []string{old.conn.ID(), "plain/a", "plain/b"}
		assert.Equal(t, [][]string{want, want}, sessions.all())
	})
}

func TestResume_IsMeteredAndLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var codes recorder[errors.Code]
		var types recorder[string]
		r := newSessionRouter(nil, nil)
		r.Observe(func(e observe.Event) {
			if e.Kind == observe.SessionResumed {
				codes.add(e.Code)
			}
		})
		r.UseIngress(func(_ context.Context, in router.IngressContext) error {
			types.add(in.Type)
			if in.Type == "$ws:ack" {
				return errors.Errorf(errors.ResourceExhausted, "slow down")
			}
			return nil
		})
		old := dialSession(t, r, "ann").hello()
		c := dialSession(t, r, "ann")
		c.resumeError("x")
		c.resume(old.token, "")
		c.SendText(`{"type":"$ws:ack","meta":{"correlationId":"r2"}}`)
		frame := c.Next()
		assert.Equal(t, "ERROR", frame.Type)
		assert.Empty(t, frame.Meta.CorrelationID, "the ID belongs to $ws:resume")
		assert.Equal(t, []errors.Code{errors.NotFound, ""}, codes.all())
		assert.Equal(t, []string{"$ws:hello", "$ws:resume", "$ws:resume", "$ws:ack"}, types.all())
		dialSession(t, r, "ann").resume(old.token, "") // a rejected acknowledgment has no effect
	})
}

func TestResume_IsUnknownUnlessEnabled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSessionRouter(nil, func(o *router.Options) { o.Resume = router.ResumeOptions{} })
		c := dialSession(t, r, "ann")
		plain, asking := c.call("$ws:hello", `{}`), c.call("$ws:hello", `{"session":true}`)
		assert.Equal(t, string(plain.Payload), string(asking.Payload))
		assert.Equal(t, errors.Unimplemented, c.resumeError("x"))
		c.SendText(`{"type":"$ws:ack","meta":{"correlationId":"r2"}}`)
		assert.Equal(t, errors.Unimplemented, routertest.ReceiveError(c.Conn).Code)
	})
}

func TestOptions_ResumeMustBeValid(t *testing.T) {
	assert.PanicsWithValue(t, "router: Resume.Within is 1ms; it must be at least 1s, or 0 to disable sessions", func() {
		router.New(&router.Options{Resume: router.ResumeOptions{Within: time.Millisecond}})
	})
	assert.Panics(t, func() { router.New(&router.Options{Resume: router.ResumeOptions{Within: -time.Minute}}) })
	assert.PanicsWithValue(t, "router: Resume.Within: Options.Broker, a *router_test.recordingBroker, stores no sessions; it must be a broker.HistoryBroker", func() {
		router.New(&router.Options{Broker: &recordingBroker{}, Resume: router.ResumeOptions{Within: time.Minute}})
	})
}

// TestSession_WritesWhatChanges grants one topic after another, takes some away, and resumes the
// session.
func TestSession_WritesWhatChanges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const each = 256 // bytes for one change
		topics := testscale.Tiers(200, 300, 900)
		b := unreliable()
		r := newSessionRouter(b, nil)
		c := dialSession(t, r, "ann").hello()
		conn := onlyConn(t, r)
		written := func() int64 {
			synctest.Wait()
			return b.written.Swap(0)
		}
		written()
		for n := range topics {
			require.NoError(t, conn.Subscribe(fmt.Sprint("granted/", n)))
			require.LessOrEqual(t, written(), int64(each), n)
		}
		changes := b.changes.Load()
		for _, n := range []int{0, topics / 2, topics - 1} {
			conn.Unsubscribe(fmt.Sprint("granted/", n))
			assert.LessOrEqual(t, written(), int64(each), n)
		}
		assert.Equal(t, changes+3, b.changes.Load(), "each change was stored")
		c.Abort()
		written()
		again := dialSession(t, r, "ann")
		again.resume(c.token, "")
		assert.LessOrEqual(t, written(), int64(4*each))
		for n := range topics {
			kept := n != 0 && n != topics/2 && n != topics-1
			assert.Equal(t, kept, onlyConn(t, r).Subscribed(fmt.Sprint("granted/", n)), n)
		}
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
				o.Resume = router.ResumeOptions{Within: resumeWithin, OnSessionEnd: func(router.SessionEnd) {}}
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
			err := subscribeSince(ctx, "private/x", broker.Position{})
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

// drain drops what a client has received.
func drain(c *sessionClient) {
	for c.Pending() > 0 {
		c.Next()
	}
}

func TestRevoke_InvalidArguments(t *testing.T) {
	r := newSessionRouter(nil, nil)
	assert.Equal(t, errors.InvalidArgument, errors.CodeOf(r.Revoke(t.Context(), "t", "ann", "")))
	assert.Equal(t, errors.InvalidArgument, errors.CodeOf(r.Revoke(t.Context(), "t", "", "plain/a")))
	n, err := r.DisconnectUser("t", "", 4001, "")
	require.NoError(t, err)
	assert.Zero(t, n)
}

const presenceGrace = time.Minute

// TestPresenceGrace_AbsentUsersAreBounded connects and disconnects again and again, in one topic
// and in others.
func TestPresenceGrace_AbsentUsersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opts := discardLogs(router.Options{Authenticate: byUserToken, Limits: router.Limits{SessionsPerUser: 5}})
		r := router.New(opts)
		router.Topic(r, "club/{name}", &router.TopicOptions{PresenceGrace: presenceGrace})
		for i := range 200 {
			c := dialSession(t, r, "ann")
			require.NoError(t, c.conn.Subscribe("club/go", router.Present("")))
			require.NoError(t, c.conn.Subscribe(fmt.Sprint("club/", i), router.Present("")))
			c.Abort()
			synctest.Wait()
		}
		assert.Len(t, r.Presence("club/go"), 1)
		present := 0
		for i := range 200 {
			present += len(r.Presence(fmt.Sprint("club/", i)))
		}
		assert.Equal(t, 5, present)
		assert.LessOrEqual(t, r.AbsentConns(), 5)
		time.Sleep(presenceGrace)
		synctest.Wait()
		assert.Empty(t, r.Presence("club/go"))
		assert.Zero(t, r.AbsentConns())
	})
}

// TestResume_ResumesThatAreCutShortAreBounded resumes a session again and again, and closes each
// connection before it has an answer.
func TestResume_ResumesThatAreCutShortAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 5
		r := newSessionRouter(nil, func(o *router.Options) {
			o.Limits.SessionsPerUser = limit
			o.Resume = router.ResumeOptions{Within: resumeWithin, OnSessionEnd: func(router.SessionEnd) {}}
		})
		wait := func(*router.Context, router.TopicMatch) error { time.Sleep(time.Second); return nil }
		router.Topic(r, "slow/{name}", &router.TopicOptions{Authorize: wait})
		first := dialSession(t, r, "ann").hello()
		for range 50 {
			c := dialSession(t, r, "ann")
			c.SendText(fmt.Sprintf(`{"type":"$ws:resume","meta":{"correlationId":"r"},"payload":{"token":%q,"topics":[{"topic":"slow/a"}]}}`, first.token))
			synctest.Wait()
			c.Abort()
			time.Sleep(2 * time.Second)
			synctest.Wait()
		}
		assert.LessOrEqual(t, r.AwaySessions(), limit+1)
		assert.LessOrEqual(t, r.SessionOwners(), limit+1)
		dialSession(t, r, "ann").resume(first.token, "")
		synctest.Wait()
		assert.Zero(t, r.AwaySessions())
		assert.Equal(t, 1, r.SessionOwners())
	})
}
