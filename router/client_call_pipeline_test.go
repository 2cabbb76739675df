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
	"github.com/penstock-go/penstock/router/routertest"
)

// askInEvent registers SAY as an event whose handler calls the client and records the order.
func askInEvent(r *router.Router) *recorder[string] {
	var order recorder[string]
	router.On(r, func(ctx *router.Context, m Say) error {
		order.add("begin " + m.Text)
		reply, err := router.Call[Confirmed](ctx, ctx.Conn(), Confirm{m.Text})
		order.add(fmt.Sprintf("end %s %v %s", m.Text, reply.Yes, errors.CodeOf(err)))
		return nil
	})
	return &order
}

func TestClientCall_EventHandlerReceivesAnswerWhileMessagesWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := router.New(nil)
		order := askInEvent(r)
		client := routertest.Dial(t, r)
		for n := range 5 {
			client.Send(Say{Text: fmt.Sprint(n)})
		}
		synctest.Wait()
		assert.Equal(t, []string{"begin 0"}, order.all())
		for range 5 {
			client.Answer(client.Next(), Confirmed{Yes: true})
		}
		synctest.Wait()
		assert.Equal(t, []string{
			"begin 0", "end 0 true ", "begin 1", "end 1 true ", "begin 2", "end 2 true ", "begin 3", "end 3 true ", "begin 4", "end 4 true ",
		}, order.all())
	})
}

// TestClientCall_FullSerialQueueDelaysAnswer sends more messages before the answer than fit, so the
// connection is not read.
func TestClientCall_FullSerialQueueDelaysAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := router.New(&router.Options{Timeouts: router.Timeouts{Call: callTimeout}})
		order := askInEvent(r)
		client := routertest.Dial(t, r)
		go func() {
			for n := range 70 {
				client.SendText(fmt.Sprintf(`{"type":"SAY","payload":{"text":"%d"}}`, n))
			}
			client.SendText(answer("$ws:1", "CONFIRMED", `{"yes":true}`)) // not read in time
			routertest.Handle(client, func(Confirm) (Confirmed, error) { return Confirmed{Yes: true}, nil })
		}()
		time.Sleep(time.Minute)
		synctest.Wait()
		got := order.all()
		require.Len(t, got, 2*70)
		assert.Equal(t, []string{"begin 0", "end 0 false DEADLINE_EXCEEDED"}, got[:2])
		assert.Equal(t, "end 69 true ", got[139])
	})
}

func TestClientCall_AnswersPassIngressOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen recorder[string]
		limited := true
		r := router.New(&router.Options{Limits: router.Limits{MaxMessageBytes: 1000}})
		r.UseIngress(func(_ context.Context, in router.IngressContext) error {
			seen.add(in.Type)
			if limited {
				return &router.LimitExceeded{Kind: router.LimitRate, Observed: 1, Limit: 1, RetryAfter: time.Second}
			}
			return nil
		})
		client, c := dialConn(t, r)
		done := confirm(t.Context(), c)
		call := client.Next()
		client.Answer(call, Confirmed{Yes: true})
		frame := client.Next()
		assert.Equal(t, "ERROR", frame.Type)
		assert.Empty(t, frame.Meta.CorrelationID, "the ID is that of the call")
		assert.Contains(t, frame.Text, `"code":"RESOURCE_EXHAUSTED"`)

		limited = false
		client.SendText(answer("$ws:1", "CONFIRMED", `{"By":"`+strings.Repeat("x", 1000)+`"}`))
		frame = client.Next()
		assert.Equal(t, "ERROR", frame.Type)
		assert.Empty(t, frame.Meta.CorrelationID)
		assert.Contains(t, frame.Text, `"kind":"payload"`)

		synctest.Wait()
		assert.Empty(t, done, "a rejected answer does not end the call")
		client.Answer(call, Confirmed{Yes: true})
		assert.Equal(t, Confirmed{Yes: true}, (<-done).reply)
		assert.Equal(t, []string{"$ws:answer", "$ws:answer", "$ws:answer"}, seen.all())
	})
}

func TestClientCall_GreetedClientLearnsTimeoutAndAbort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := router.New(&router.Options{Timeouts: router.Timeouts{Call: callTimeout}})
		client, c := dialConn(t, r)
		done := confirm(t.Context(), c)
		assert.NotContains(t, client.Next().Text, "timeoutMs", "the client has not greeted")
		assert.Equal(t, errors.DeadlineExceeded, errors.CodeOf((<-done).err))
		synctest.Wait()
		assert.Zero(t, client.Pending(), "no abort for a client that has not greeted")

		c.Greet()
		ctx, cancel := context.WithCancel(t.Context())
		done = confirm(ctx, c)
		call := client.Next()
		assert.EqualValues(t, 5000, call.Meta.TimeoutMs)
		cancel()
		assert.Equal(t, context.Canceled, (<-done).err)
		abort := client.Next()
		assert.Regexp(t, `^{"type":"\$ws:abort","meta":{"timestamp":\d+,"correlationId":"\$ws:2"}}$`, abort.Text)

		ctx, cancel = context.WithTimeout(t.Context(), 1500*time.Microsecond)
		defer cancel()
		done = confirm(ctx, c)
		assert.EqualValues(t, 2, client.Next().Meta.TimeoutMs, "rounded up")
		<-done
		assert.Equal(t, "$ws:abort", client.Next().Type)

		done = confirm(t.Context(), c)
		client.Answer(client.Next(), Confirmed{})
		require.NoError(t, (<-done).err)
		synctest.Wait()
		assert.Zero(t, client.Pending(), "no abort after the answer")
	})
}

// TestClientCall_AbortForFullSendQueueIsDropped ends a call while the client reads nothing: it stays
// connected.
func TestClientCall_AbortForFullSendQueueIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := router.New(discardLogs(router.Options{Limits: router.Limits{QueueMessages: 4}, Timeouts: patient}))
		client, c := dialConn(t, r)
		c.Greet()
		client.Pause()
		ctx, cancel := context.WithCancel(t.Context())
		done := confirm(ctx, c)
		synctest.Wait()
		for c.QueueStats().Messages < 4 {
			require.NoError(t, c.Send(Say{"a", strings.Repeat("x", 100_000)}))
			synctest.Wait()
		}
		cancel()
		assert.Equal(t, context.Canceled, (<-done).err)
		client.Resume()
		synctest.Wait()
		assert.NoError(t, c.Context().Err())
		assert.Equal(t, "CONFIRM", client.Next().Type)
		for client.Pending() > 0 {
			assert.Equal(t, "SAY", client.Next().Type)
		}
	})
}

func TestClientCall_ShutdownWaitsForAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := router.New(nil)
		router.RPC(r, func(ctx *router.Context, m Echo) (Echoed, error) {
			reply, err := router.Call[Confirmed](ctx, ctx.Conn(), Confirm{})
			if !reply.Yes {
				return Echoed{}, err
			}
			return Echoed(m), err
		})
		client := routertest.Dial(t, r)
		client.Send(Echo{7})
		call := client.Next()
		done := make(chan error, 1)
		go func() { done <- r.Shutdown(t.Context()) }()
		time.Sleep(time.Second)
		client.Send(Echo{8})
		assert.Equal(t, errors.Unavailable, routertest.ReceiveError(client).Code, "the connection is drained")
		client.Answer(call, Confirmed{Yes: true})
		assert.Equal(t, Echoed{7}, routertest.Receive[Echoed](client))
		assert.EqualValues(t, 1012, client.Closed().Code)
		require.NoError(t, <-done)
	})
}

func TestClientCall_ShutdownEndsCallsWithoutHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := router.New(nil)
		_, c := dialConn(t, r)
		done := confirm(t.Context(), c)
		synctest.Wait()
		require.NoError(t, r.Shutdown(t.Context()))
		got := <-done
		assert.Equal(t, errors.Unavailable, errors.CodeOf(got.err))
		assert.Zero(t, got.after.Round(time.Second))
	})
}

func TestClientCall_FromOnOpenNeedsGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		outcomes := make(chan outcome, 2)
		r := router.New(&router.Options{
			Timeouts: router.Timeouts{Call: callTimeout},
			OnOpen: func(ctx context.Context, c *router.Conn) error {
				outcomes <- <-confirm(ctx, c)
				go func() { outcomes <- <-confirm(ctx, c) }()
				return nil
			},
		})
		client := routertest.Dial(t, r)
		routertest.Handle(client, func(Confirm) (Confirmed, error) { return Confirmed{Yes: true}, nil })
		got := <-outcomes
		assert.Equal(t, errors.DeadlineExceeded, errors.CodeOf(got.err))
		assert.Equal(t, callTimeout, got.after)
		got = <-outcomes
		require.NoError(t, got.err)
		assert.Equal(t, Confirmed{Yes: true}, got.reply)
	})
}
