package router_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/testscale"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

func abortText(id string) string {
	return fmt.Sprintf(`{"type":"$ws:abort","meta":{"correlationId":%q}}`, id)
}

// canceled receives an answer and checks that it is CANCELLED.
func canceled(t *testing.T, client *routertest.Conn, id string) {
	t.Helper()
	frame := client.Next()
	assert.Equal(t, "RPC_ERROR", frame.Type)
	assert.Equal(t, id, frame.Meta.CorrelationID)
	assert.JSONEq(t, `{"code":"CANCELLED","message":"the call was canceled","retryable":false}`, string(frame.Payload))
}

func TestAbort_CancelsRunningCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var causes recorder[error]
		r := router.New(discardLogs(router.Options{Limits: router.Limits{Concurrency: 1}}))
		router.RPC(r, func(ctx *router.Context, m Echo) (Echoed, error) {
			if m.N == 0 {
				return Echoed{}, nil
			}
			<-ctx.Done()
			assert.ErrorIs(t, ctx.Err(), context.Canceled)
			causes.add(context.Cause(ctx))
			return Echoed(m), ctx.Progress("too late")
		})
		client := routertest.Dial(t, r)
		for n := range 3 {
			id := fmt.Sprint(n)
			client.SendText(strings.Replace(callText(id, ""), `,"text":""`, "", 1))
			synctest.Wait() // the handler has started
			client.SendText(abortText(id))
			canceled(t, client, id)
			synctest.Wait()
			assert.Equal(t, errors.Canceled, errors.CodeOf(causes.all()[n]))
			assert.Equal(t, Echoed{}, routertest.Call[Echoed](client, Echo{}), "the permit is free again")
		}
		assert.Zero(t, client.Pending(), "neither progress nor a second answer")
	})
}

func TestAbort_CancelsWaitingCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlowRouter(router.Options{Limits: router.Limits{Concurrency: 2}})
		client := routertest.Dial(t, s)
		client.SendText(slowEvent)
		for n := range 10 {
			id := fmt.Sprint(n)
			client.SendText(callText(id, ""))
			client.SendText(abortText(id))
			canceled(t, client, id)
		}
		close(s.proceed)
		synctest.Wait()
		assert.Zero(t, s.handled.Load(), "no handler has started")
		assert.Zero(t, s.inFlight.Load())
		assert.EqualValues(t, 21, s.charged.Load(), "aborts are charged")
		assert.Equal(t, Echoed{5}, routertest.Call[Echoed](client, Echo{5}))
	})
}

func TestAbort_OfFinishedForeignAndUnknownCallsIsIgnored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlowRouter(router.Options{})
		router.RPC(s, func(ctx *router.Context, _ Block) (Blocked, error) { <-s.proceed; return Blocked{}, ctx.Err() })
		client, other := routertest.Dial(t, s), routertest.Dial(t, s)
		client.SendText(`{"type":"BLOCK","meta":{"correlationId":"mine"}}`)
		other.SendText(abortText("mine"))
		client.SendText(callText("finished", ""))
		client.Next()
		for _, text := range []string{abortText("finished"), abortText("unknown"), abortText(""), `{"type":"$ws:abort"}`} {
			client.SendText(text)
		}
		synctest.Wait()
		assert.Zero(t, client.Pending())
		assert.Zero(t, other.Pending())
		close(s.proceed)
		assert.Equal(t, "BLOCKED", client.Next().Type)
	})
}

// TestAbort_RejectionDoesNotAnswerTheCall rejects aborts in ingress. The answer must not have the ID
// of the call, because the client would take it for the answer of the call.
func TestAbort_RejectionDoesNotAnswerTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlowRouter(router.Options{})
		s.UseIngress(func(_ context.Context, in router.IngressContext) error {
			if in.Type == "$ws:abort" {
				return &router.LimitExceeded{Kind: router.LimitRate, RetryAfter: time.Second}
			}
			return nil
		})
		router.RPC(s, func(*router.Context, Block) (Blocked, error) { <-s.proceed; return Blocked{}, nil })
		client := routertest.Dial(t, s)
		client.SendText(`{"type":"BLOCK","meta":{"correlationId":"b"}}`)
		client.SendText(abortText("b"))
		frame := client.Next()
		assert.Equal(t, "ERROR", frame.Type)
		assert.Empty(t, frame.Meta.CorrelationID)
		assert.Contains(t, frame.Text, "RESOURCE_EXHAUSTED")
		close(s.proceed)
		assert.Equal(t, "b", client.Next().Meta.CorrelationID)
	})
}

// Block is a call that a test lets wait.
type Block struct{}

func (Block) MessageType() string { return "BLOCK" }

type Blocked struct{}

func (Blocked) MessageType() string { return "BLOCKED" }

func TestCall_DuplicateIDIsRejected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlowRouter(router.Options{Limits: router.Limits{Concurrency: 100}})
		router.RPC(s, func(*router.Context, Block) (Blocked, error) { <-s.proceed; return Blocked{}, nil })
		client := routertest.Dial(t, s)
		send := func(id string) {
			client.SendText(fmt.Sprintf(`{"type":"BLOCK","meta":{"correlationId":%q}}`, id))
		}
		for n := range 40 { // few calls are a list, many are a map
			send(fmt.Sprint(n))
			send("0")
			frame := client.Next()
			assert.Equal(t, "ERROR", frame.Type, "the ID belongs to the other call")
			assert.Empty(t, frame.Meta.CorrelationID)
			assert.Contains(t, frame.Text, "INVALID_ARGUMENT")
		}
		send("") // calls without an ID are not duplicates
		send("")
		close(s.proceed)
		seen := map[string]int{}
		for range 42 {
			frame := client.Next()
			assert.Equal(t, "BLOCKED", frame.Type)
			seen[frame.Meta.CorrelationID]++
		}
		assert.Len(t, seen, 41)
		assert.Equal(t, 2, seen[""])
		send("0")
		assert.Equal(t, "BLOCKED", client.Next().Type, "an ID may be used again after the answer")
		synctest.Wait()
		assert.EqualValues(t, 83, s.charged.Load(), "duplicates are charged")
		assert.Zero(t, client.Pending())
	})
}

func TestCall_RouteAndClientShortenTimeout(t *testing.T) {
	for _, tt := range []struct {
		name, meta string
		want       time.Duration
	}{
		{"default of the route", ``, 8 * time.Second},
		{"shorter, asked for by the client", `,"timeoutMs":1500`, 1500 * time.Millisecond},
		{"longer, bounded by the route", `,"timeoutMs":9007199254740991`, 8 * time.Second},
		{"as long as time.Duration can hold", `,"timeoutMs":9223372036854`, 8 * time.Second},
	} {
		runSynctest(t, tt.name, func(t *testing.T) {
			r := router.New(discardLogs(router.Options{Timeouts: router.Timeouts{Call: 5 * time.Second}}))
			var deadline, start time.Time
			router.RPC(r, func(ctx *router.Context, m Block) (Blocked, error) {
				deadline, _ = ctx.Deadline()
				<-ctx.Done()
				assert.ErrorIs(t, ctx.Err(), context.DeadlineExceeded)
				assert.Equal(t, errors.DeadlineExceeded, errors.CodeOf(context.Cause(ctx)))
				time.Sleep(time.Millisecond) // a reply at the same time could be first
				return Blocked(m), nil
			}).Timeout(8 * time.Second)
			client := routertest.Dial(t, r)
			for _, format := range []string{
				`{"type":"BLOCK","meta":{"correlationId":"c"%s}}`,
				`{"type":"BLOCK","payload":{"x":"` + strings.Repeat("x", 2000) + `"},"meta":{"correlationId":"c"%s,"x":"` + strings.Repeat("x", 2000) + `"}}`,
			} {
				start = time.Now()
				client.SendText(fmt.Sprintf(format, tt.meta))
				expired(t, client, "c")
				assert.Equal(t, tt.want, time.Since(start))
				time.Sleep(time.Second)
				assert.Equal(t, tt.want, deadline.Sub(start))
			}
		})
	}
}

func TestCall_InvalidTimeoutIsRejected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlowRouter(router.Options{})
		client := routertest.Dial(t, s)
		for _, value := range []string{"0", "-1", "1.5", "1e3", `"1"`, "null", "9007199254740992"} {
			client.SendText(`{"type":"ECHO","meta":{"timeoutMs":` + value + `,"correlationId":"c"},"payload":{"n":1}}`)
			frame := client.Next()
			assert.Equal(t, "c", frame.Meta.CorrelationID)
			assert.Contains(t, frame.Text, `"message":"meta.timeoutMs must be an integer of at least 1"`)
		}
		assert.EqualValues(t, 7, s.charged.Load())
	})
}

// TestCall_IsAnsweredAtDeadlineDuringIngressAndValidation lets a call wait before its handler.
func TestCall_IsAnsweredAtDeadlineDuringIngressAndValidation(t *testing.T) {
	for name, reject := range map[string]error{
		"and then admitted": nil, "and then rejected": errors.Errorf(errors.PermissionDenied, "no"),
		"and then limited": &router.LimitExceeded{Kind: router.LimitRate},
	} {
		for _, stage := range []string{"ingress", "validation"} {
			runSynctest(t, stage+" "+name, func(t *testing.T) {
				var limits atomic.Int64
				opts := router.Options{Timeouts: router.Timeouts{Call: callTimeout}, OnLimitExceeded: func(router.LimitExceeded) { limits.Add(1) }}
				wait := func() error { time.Sleep(2 * callTimeout); return reject }
				if stage == "validation" {
					opts.Validate = func(any) error { return wait() }
				}
				s := newSlowRouter(opts)
				if stage == "ingress" {
					s.UseIngress(func(context.Context, router.IngressContext) error { return wait() })
				}
				client := routertest.Dial(t, s)
				start := time.Now()
				client.SendText(callText("c", ""))
				expired(t, client, "c")
				assert.Equal(t, callTimeout, time.Since(start))
				time.Sleep(time.Minute)
				assert.Zero(t, client.Pending(), "no second answer")
				assert.Zero(t, s.handled.Load())
				assert.Zero(t, s.inFlight.Load())
				assert.Len(t, s.answers.all(), 1)
				if strings.Contains(name, "limited") && stage == "ingress" {
					assert.EqualValues(t, 1, limits.Load())
				}
			})
		}
	}
}

func TestCall_ContextEndsWithCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan error)
		r := router.New(discardLogs(router.Options{}))
		router.RPC(r, func(ctx *router.Context, _ Block) (Blocked, error) {
			go func() { <-ctx.Done(); ended <- context.Cause(ctx) }()
			if ctx.CorrelationID() == "waits" {
				<-ctx.Done()
			}
			return Blocked{}, context.Cause(ctx)
		})
		client := routertest.Dial(t, r)
		client.SendText(`{"type":"BLOCK","meta":{"correlationId":"returns"}}`)
		assert.Equal(t, context.Canceled, <-ended)
		client.SendText(`{"type":"BLOCK","meta":{"correlationId":"waits"}}`)
		conn := collect(r)[0]
		synctest.Wait()
		client.CloseWith(4001, "bye")
		for _, cause := range []error{<-ended, context.Cause(conn.Context())} {
			closed, ok := errors.AsType[*router.CloseError](cause)
			require.True(t, ok)
			assert.Equal(t, router.CloseError{Code: 4001, Reason: "bye"}, *closed)
		}
	})
}

func TestRouteTimeout_PanicsOnMistakes(t *testing.T) {
	r := router.New(nil)
	event := router.On(r, func(*router.Context, Say) error { return nil })
	assert.PanicsWithValue(t, `router: Timeout of "SAY", which is an event; only calls have a deadline`, func() { event.Timeout(time.Second) })
	call := router.RPC(r, echo)
	assert.PanicsWithValue(t, `router: Timeout of "ECHO" is 0s; it must be positive`, func() { call.Timeout(0) })
	assert.PanicsWithValue(t, `router: Timeout of "ECHO" is -1s; it must be positive`, func() { call.Timeout(-time.Second) })
}

// TestAbort_TenThousandOpenCallsOverSocket aborts calls in random order while others are answered.
func TestAbort_TenThousandOpenCallsOverSocket(t *testing.T) {
	calls := testscale.Tiers(1000, 2000, 10_000)
	r := router.New(discardLogs(router.Options{Limits: withoutRates(router.Limits{Concurrency: calls, QueueMessages: calls})}))
	var started, returned atomic.Int64
	router.RPC(r, func(ctx *router.Context, _ Block) (Blocked, error) {
		started.Add(1)
		defer returned.Add(1)
		<-ctx.Done()
		return Blocked{}, ctx.Err()
	})
	ws := dialServer(t, newTestServer(t, r))
	ids := rand.Perm(calls)
	go func() {
		for n := range calls {
			_ = ws.Write(t.Context(), websocket.MessageText, fmt.Appendf(nil, `{"type":"BLOCK","meta":{"correlationId":"%d"}}`, n))
		}
		for _, n := range ids {
			_ = ws.Write(t.Context(), websocket.MessageText, []byte(abortText(fmt.Sprint(n))))
		}
	}()
	answered := map[string]bool{}
	for range calls {
		text := read(t, ws)
		require.Contains(t, text, "CANCELLED")
		_, id, _ := strings.Cut(text, `"correlationId":"`)
		id, _, _ = strings.Cut(id, `"`)
		require.False(t, answered[id], "a second answer")
		answered[id] = true
	}
	assert.Positive(t, started.Load(), "calls that are aborted while they wait do not start")
	assert.Eventually(t, func() bool { return returned.Load() == started.Load() }, time.Minute, time.Millisecond)
}
