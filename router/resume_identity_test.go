package router_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
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

func TestResume_OtherTenantIsRejected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSessionRouter(nil, func(o *router.Options) {
			o.Authenticate = func(req *http.Request) (router.Identity, error) {
				tenant, user, _ := strings.Cut(router.Token(req), ":")
				return router.Identity{TenantID: tenant, UserID: user}, nil
			}
		})
		old := dialSession(t, r, "acme:ann").hello()
		assert.Equal(t, errors.PermissionDenied, dialSession(t, r, "other:ann").resumeError(old.token))
	})
}

func TestResume_OnResumeDecides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reject := error(errors.Errorf(errors.FailedPrecondition, "the game is over"))
		var sessions recorder[[]string]
		b := memory.NewBroker()
		one := newSessionRouter(b, nil)
		two := newSessionRouter(b, func(o *router.Options) {
			o.Resume.OnResume = func(ctx *router.Context, s router.ResumedSession) error {
				sessions.add(append([]string{s.ConnID}, s.Topics...))
				assert.False(t, ctx.Conn().Subscribed("plain/a"), "OnResume precedes the subscriptions")
				return reject
			}
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
		r.Observe(func(e router.Event) {
			if e.Kind == router.EventSessionResumed {
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

// TestSession_GreetingsWithoutOneHaveTheSameAnswer compares the answers of servers with and without
// sessions.
func TestSession_GreetingsWithoutOneHaveTheSameAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		on := newSessionRouter(nil, nil)
		off := newSessionRouter(nil, func(o *router.Options) { o.Resume = router.ResumeOptions{} })
		for _, payload := range []string{``, `,"payload":{}`, `,"payload":{"session":false}`, `,"payload":{"other":1}`, `,"payload":null`, `,"payload":[]`} {
			var answers []string
			for _, r := range []*router.Router{on, off} {
				c := dialSession(t, r, "ann")
				c.SendText(`{"type":"$ws:hello","meta":{"correlationId":"h"}` + payload + `}`)
				answers = append(answers, strings.ReplaceAll(c.Next().Text, c.conn.ID(), "ID"))
			}
			assert.Equal(t, answers[1], answers[0], payload)
		}
	})
}

func TestOptions_ResumeMustBeValid(t *testing.T) {
	assert.PanicsWithValue(t, "router: Resume.Within is 1ms; it must be at least 1s, or 0 to disable sessions", func() {
		router.New(&router.Options{Resume: router.ResumeOptions{Within: time.Millisecond}})
	})
	assert.Panics(t, func() { router.New(&router.Options{Resume: router.ResumeOptions{Within: -time.Minute}}) })
	assert.PanicsWithValue(t, "router: Resume.Within: Options.Broker, a *router_test.discardBroker, stores no sessions; it must be a broker.HistoryBroker", func() {
		router.New(&router.Options{Broker: &discardBroker{}, Resume: router.ResumeOptions{Within: time.Minute}})
	})
}
