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

// TestClientCall_Observed has a call without an answer and one with an error. What the clients see is in the transcripts.
func TestClientCall_Observed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var events recorder[observe.Event]
		r := router.New(&router.Options{Timeouts: router.Timeouts{Call: callTimeout}})
		r.Observe(func(e observe.Event) {
			if e.Kind == observe.ClientCall || e.Kind == observe.Completed {
				events.add(e)
			}
		})
		client, c := dialConn(t, r)
		<-confirm(t.Context(), c)
		client.Answer(client.Next(), Confirmed{Yes: true}) // late
		done := confirm(t.Context(), c)
		synctest.Wait()
		time.Sleep(time.Second)
		client.AnswerError(client.Next(), &errors.Error{Code: "TEAPOT"})
		<-done
		answered := observe.Event{Kind: observe.Completed, Type: "$ws:answer"}
		assert.Equal(t, []observe.Event{
			{Kind: observe.ClientCall, Type: "CONFIRM", Code: errors.DeadlineExceeded, Duration: callTimeout},
			answered, answered,
			{Kind: observe.ClientCall, Type: "CONFIRM", Code: "other", Duration: time.Second},
		}, events.all())
	})
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
