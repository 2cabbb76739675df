package router_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/observe"
	"github.com/penstock-go/penstock/router/routertest"
)

func TestClientCall_EndsAtTimeoutAndDropsLateAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var events recorder[observe.Event]
		r := router.New(&router.Options{Timeouts: router.Timeouts{Call: callTimeout}})
		r.Observe(func(e observe.Event) {
			if e.Kind == observe.ClientCall || e.Kind == observe.Completed {
				events.add(e)
			}
		})
		client, c := dialConn(t, r)
		got := <-confirm(t.Context(), c)
		assert.Equal(t, &errors.Error{Code: errors.DeadlineExceeded, Message: "the client has not answered in time"}, got.err)
		assert.Equal(t, callTimeout, got.after)
		late := client.Next()
		client.Answer(late, Confirmed{Yes: true})

		done := confirm(t.Context(), c)
		call := client.Next()
		assert.Equal(t, "$ws:2", call.Meta.CorrelationID)
		client.Answer(late, Confirmed{Yes: true}) // still late
		synctest.Wait()
		time.Sleep(time.Second)
		client.AnswerError(call, &errors.Error{Code: "TEAPOT", RetryAfter: 1})
		assert.Equal(t, &errors.Error{Code: "TEAPOT", RetryAfter: time.Millisecond}, answered((<-done).err))
		assert.Zero(t, client.Pending(), "answers are not answered")
		answered := observe.Event{Kind: observe.Completed, Type: "$ws:answer"}
		assert.Equal(t, []observe.Event{
			{Kind: observe.ClientCall, Type: "CONFIRM", Code: errors.DeadlineExceeded, Duration: callTimeout},
			answered, answered, answered,
			{Kind: observe.ClientCall, Type: "CONFIRM", Code: "other", Duration: time.Second},
		}, events.all())
	})
}

func TestClientCall_EndsWithContext(t *testing.T) {
	cause := errors.New("the user has left the page")
	for name, tt := range map[string]struct {
		ctx  func() (context.Context, context.CancelFunc)
		want error
		code errors.Code
	}{
		"canceled": {func() (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancelCause(context.Background())
			time.AfterFunc(time.Second, func() { cancel(cause) })
			return ctx, func() {}
		}, cause, errors.Canceled},
		"deadline": {func() (context.Context, context.CancelFunc) {
			return context.WithTimeout(context.Background(), time.Second)
		}, context.DeadlineExceeded, errors.DeadlineExceeded},
	} {
		runSynctest(t, name, func(t *testing.T) {
			var codes recorder[errors.Code]
			r := router.New(nil)
			r.Observe(func(e observe.Event) {
				if e.Kind == observe.ClientCall {
					codes.add(e.Code)
				}
			})
			client, c := dialConn(t, r)
			ctx, cancel := tt.ctx()
			defer cancel()
			got := <-confirm(ctx, c)
			assert.Equal(t, tt.want, got.err)
			assert.Equal(t, time.Second, got.after)
			client.Next()
			got = <-confirm(ctx, c)
			assert.Equal(t, tt.want, got.err, "nothing is sent for a context that is done")
			assert.Equal(t, []errors.Code{tt.code, tt.code}, codes.all())
			synctest.Wait()
			assert.Zero(t, client.Pending())
		})
	}
}

func TestClientCall_EndsWithConnection(t *testing.T) {
	for name, end := range map[string]func(*routertest.Conn, *router.Conn){
		"client closes": func(client *routertest.Conn, _ *router.Conn) { client.Close() },
		"client aborts": func(client *routertest.Conn, _ *router.Conn) { client.Abort() },
		"server closes": func(_ *routertest.Conn, c *router.Conn) { c.Close(4000, "") },
	} {
		runSynctest(t, name, func(t *testing.T) {
			r := router.New(nil)
			client, c := dialConn(t, r)
			fromContext := confirm(c.Context(), c)
			fromBackground := confirm(t.Context(), c)
			synctest.Wait()
			end(client, c)
			for _, done := range []<-chan outcome{fromContext, fromBackground, confirm(t.Context(), c)} {
				got := <-done
				assert.Equal(t, &errors.Error{Code: errors.Unavailable, Message: "connection is closed"}, got.err)
				assert.Zero(t, got.after)
			}
		})
	}
}

func TestClientCall_FullSendQueueEndsWithContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := router.New(discardLogs(router.Options{Limits: router.Limits{QueueMessages: 4}, SlowConsumer: router.DropNewest, Timeouts: patient}))
		client, c := dialConn(t, r)
		client.Pause()
		for range 10 {
			_ = c.Send(Say{"a", strings.Repeat("x", 100_000)})
			synctest.Wait()
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		got := <-confirm(ctx, c)
		assert.Equal(t, context.DeadlineExceeded, got.err)
		assert.Equal(t, time.Minute, got.after)
		client.Resume()
		synctest.Wait()
		for client.Pending() > 0 {
			assert.Equal(t, "SAY", client.Next().Type, "the call was not sent")
		}
		routertest.Handle(client, func(Confirm) (Confirmed, error) { return Confirmed{Yes: true}, nil })
		got = <-confirm(t.Context(), c)
		require.NoError(t, got.err)

		client.Pause()
		for range 10 {
			_ = c.Send(Say{"a", strings.Repeat("x", 100_000)})
			synctest.Wait()
		}
		done := confirm(c.Context(), c)
		synctest.Wait()
		client.Abort()
		assert.Equal(t, errors.Unavailable, errors.CodeOf((<-done).err), "the context ends with the connection")
	})
}

// TestClientCall_AnswerAtDeadlineSettlesOnce answers in the instant in which the timeout passes.
func TestClientCall_AnswerAtDeadlineSettlesOnce(t *testing.T) {
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			r := router.New(&router.Options{Timeouts: router.Timeouts{Call: callTimeout}})
			client, c := dialConn(t, r)
			routertest.Handle(client, func(Confirm) (Confirmed, error) {
				time.Sleep(callTimeout)
				return Confirmed{Yes: true}, nil
			})
			got := <-confirm(t.Context(), c)
			assert.Equal(t, callTimeout, got.after)
			if got.err != nil {
				assert.Equal(t, errors.DeadlineExceeded, errors.CodeOf(got.err))
				assert.Zero(t, got.reply)
			} else {
				assert.Equal(t, Confirmed{Yes: true}, got.reply)
			}
			synctest.Wait()
			assert.Zero(t, client.Pending())
		})
	}
}

func TestClientCall_ForeignAndDuplicateAnswersAreDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := router.New(nil)
		router.RPC(r, echo)
		client, c := dialConn(t, r)
		other, _ := dialConn(t, r)
		yes := func(id string) string { return answer(id, "CONFIRMED", `{"yes":true}`) }
		client.SendText(yes("$ws:1")) // guessed before there is a call
		synctest.Wait()
		done := confirm(t.Context(), c)
		client.Next()
		for _, id := range []string{"$ws:", "$ws:01", "$ws:+1", "$ws:1 ", "$ws:0", "$ws:2", "$ws:18446744073709551617", "$ws:1x"} {
			client.SendText(yes(id))
		}
		other.SendText(yes("$ws:1")) // of another connection
		client.SendText(`{"type":"CONFIRMED","meta":{"correlationId":""},"payload":{"yes":true}}`)
		assert.Equal(t, errors.Unimplemented, routertest.ReceiveError(client).Code, "without an ID it is a message like any other")
		synctest.Wait()
		assert.Empty(t, done)
		for range 3 {
			client.SendText(yes("$ws:1"))
		}
		assert.Equal(t, Confirmed{Yes: true}, (<-done).reply)
		assert.Equal(t, Echoed{3}, routertest.Call[Echoed](client, Echo{3}), "the connection works")
		assert.Zero(t, client.Pending())
		assert.Zero(t, other.Pending())
	})
}

// TestClientCall_WordsOfAClientReachNoOther has a handler that calls bob, and returns what he answers. Ann would take the
// code and the delay for those of the server.
func TestClientCall_WordsOfAClientReachNoOther(t *testing.T) {
	pass := map[string]func(error) error{
		"as it is": func(err error) error { return err },
		"wrapped":  func(err error) error { return fmt.Errorf("ask: %w", errors.Join(errors.New("first"), err)) },
		"replaced": func(err error) error { return &errors.Error{Code: "NO", Err: err} },
	}
	for _, code := range []errors.Code{errors.Unimplemented, errors.Unauthenticated, errors.ResourceExhausted, errors.Internal, "TEAPOT"} {
		said := &errors.Error{Code: code, Message: "secret", Details: map[string]any{"kind": "rate"}, RetryAfter: errors.Never}
		for name, pass := range pass {
			runSynctest(t, fmt.Sprint(code, "/", name), func(t *testing.T) {
				var reports recorder[error]
				r := router.New(discardLogs(router.Options{OnError: func(e router.ErrorReport) { reports.add(e.Err) }}))
				var called *router.Conn
				router.RPC(r, func(ctx *router.Context, _ Echo) (Echoed, error) {
					_, err := router.Call[Confirmed](ctx, called, Confirm{})
					return Echoed{}, pass(err)
				})
				bob, conn := dialConn(t, r)
				called = conn
				routertest.Handle(bob, func(Confirm) (Confirmed, error) { return Confirmed{}, said })
				want, own := &errors.Error{Code: errors.FailedPrecondition, Message: "another client has answered with an error"}, said
				if name == "replaced" {
					want = &errors.Error{Code: "NO"}
					own = want
				}
				assert.Equal(t, want, routertest.CallError(routertest.Dial(t, r), Echo{}))
				synctest.Wait()
				require.Len(t, reports.all(), 1, "the application learns what bob has answered")
				assert.ErrorContains(t, reports.all()[0], string(code))
				assert.Equal(t, own, routertest.CallError(bob, Echo{}), "bob may receive his own words")
			})
		}
	}
}
