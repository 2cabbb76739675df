package router_test

import (
	"context"
	"io"
	"net/http"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

func TestIngress_ReceivesContextBeforePayloadIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen recorder[router.IngressContext]
		r := router.New(&router.Options{Authenticate: func(req *http.Request) (router.Identity, error) {
			return router.Identity{TenantID: "t", UserID: router.Token(req), Data: 7}, nil
		}})
		r.UseIngress(func(_ context.Context, in router.IngressContext) error {
			seen.add(in)
			return nil
		})
		router.RPC(r, echo)
		conn := routertest.Dial(t, r, routertest.Token("ann"), routertest.RemoteAddr("[::ffff:192.0.2.7]:1"))
		conn.SendText(`{"type":"ECHO","payload":{"n":5}}`)
		conn.Next()
		conn.SendText(`{"type":"NOPE"}`)
		conn.Next()
		conn.SendText(`garbage`)
		conn.Next()
		conn.SendText(`{"type":"__heartbeat"}`)
		conn.Next()
		conn.SendText(`{"meta":7,"type":"__heartbeat"}`)
		conn.Next()

		var types []string
		for _, in := range seen.all() {
			types = append(types, in.Type)
			assert.Equal(t, router.Identity{TenantID: "t", UserID: "ann", Data: 7}, in.Identity)
			assert.Equal(t, netip.MustParseAddr("192.0.2.7"), in.IP)
			assert.NotEmpty(t, in.ConnID)
			assert.WithinDuration(t, time.Now(), in.ReceivedAt, time.Second)
		}
		assert.Equal(t, []string{"ECHO", "", "", "__heartbeat", ""}, types, "every message is charged once; an unregistered type is empty")
		assert.EqualValues(t, len(`{"type":"ECHO","payload":{"n":5}}`), seen.all()[0].Size)
	})
}

func TestIngress_EveryMessageIsChargedOnce(t *testing.T) {
	for name, text := range map[string]string{
		"a valid message":      `{"type":"ECHO","payload":{"n":5}}`,
		"an invalid payload":   `{"type":"ECHO","payload":[]}`,
		"a truncated message":  `{"type":"ECHO","payload":{"n":`,
		"garbage":              `garbage`,
		"an unknown type":      `{"type":"NOPE"}`,
		"a heartbeat":          `{"type":"__heartbeat"}`,
		"an oversized message": sized(maxMessageBytes + 1),
	} {
		runSynctest(t, name, func(t *testing.T) {
			charged := 0
			r := router.New(&router.Options{Limits: router.Limits{MaxMessageBytes: maxMessageBytes}})
			r.UseIngress(func(context.Context, router.IngressContext) error {
				charged++
				return nil
			})
			router.RPC(r, echo)
			conn := routertest.Dial(t, r)
			conn.SendText(text)
			conn.Next()
			synctest.Wait()
			assert.Equal(t, 1, charged)
			assert.Zero(t, conn.Pending(), "exactly one answer")
		})
	}
}

func TestPipeline_StagesRunInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var trace recorder[string]
		step := func(name string) router.Middleware {
			return func(next router.Handler) router.Handler {
				return func(ctx *router.Context) error {
					trace.add("enter " + name)
					defer trace.add("exit " + name)
					return next(ctx)
				}
			}
		}
		ingress := func(name string) router.IngressFunc {
			return func(context.Context, router.IngressContext) error {
				trace.add(name)
				return nil
			}
		}
		r := router.New(&router.Options{Validate: func(any) error { trace.add("validate"); return nil }})
		g := r.Group()
		inner := g.Group()
		router.On(inner, func(*router.Context, Say) error { trace.add("handler"); return nil }).
			UseIngress(ingress("route")).
			Use(step("route"))
		g.Use(step("group"))
		g.UseIngress(ingress("group"))
		inner.UseIngress(ingress("inner group"))
		r.Use(step("router 1"), step("router 2"))
		r.UseIngress(ingress("router"))

		routertest.Dial(t, r).Send(Say{Room: "go", Text: "hi"})
		synctest.Wait()
		assert.Equal(t, []string{
			"router", "group", "inner group", "route", "validate",
			"enter router 1", "enter router 2", "enter group", "enter route",
			"handler",
			"exit route", "exit group", "exit router 2", "exit router 1",
		}, trace.all())
	})
}

func TestPipeline_RejectionSkipsLaterStages(t *testing.T) {
	limited := func(context.Context, router.IngressContext) error {
		return &router.LimitExceeded{Kind: router.LimitRate, Observed: 1, Limit: 5, RetryAfter: 1500*time.Millisecond + 1}
	}
	denied := func(context.Context, router.IngressContext) error {
		return errors.Errorf(errors.PermissionDenied, "access is denied")
	}
	broken := func(context.Context, router.IngressContext) error { return io.ErrUnexpectedEOF }
	panics := func(context.Context, router.IngressContext) error { panic("secret") }
	for _, tt := range []struct {
		name    string
		text    string
		ingress router.IngressFunc
		want    errors.Error
	}{
		{"ingress before the payload", `{"type":"ECHO","payload":{{{`, denied, errors.Error{Code: errors.PermissionDenied, Message: "access is denied"}},
		{"a limit before an unknown type", `{"type":"NOPE"}`, limited, errors.Error{
			Code: errors.ResourceExhausted, Message: "rate limit exceeded", RetryAfter: 1501 * time.Millisecond,
			Details: map[string]any{"kind": "rate", "observed": 1., "limit": 5.},
		}},
		{"a limit before a malformed message", `garbage`, limited, errors.Error{
			Code: errors.ResourceExhausted, Message: "rate limit exceeded", RetryAfter: 1501 * time.Millisecond,
			Details: map[string]any{"kind": "rate", "observed": 1., "limit": 5.},
		}},
		{"size before a limit", sized(maxMessageBytes + 1), limited, errors.Error{
			Code: errors.ResourceExhausted, Message: "message is too big", RetryAfter: errors.Never,
			Details: map[string]any{"kind": "payload", "observed": maxMessageBytes + 1., "limit": float64(maxMessageBytes)},
		}},
		{"an ingress error without a code is internal", `{"type":"ECHO"}`, broken, errors.Error{Code: errors.Internal, Message: "internal error"}},
		{"a panic of ingress is internal", `{"type":"ECHO"}`, panics, errors.Error{Code: errors.Internal, Message: "internal error"}},
	} {
		runSynctest(t, tt.name, func(t *testing.T) {
			r := router.New(discardLogs(router.Options{Limits: router.Limits{MaxMessageBytes: maxMessageBytes}}))
			r.UseIngress(tt.ingress)
			router.RPC(r, func(*router.Context, Echo) (Echoed, error) {
				t.Error("the handler was called")
				return Echoed{}, nil
			})
			conn := routertest.Dial(t, r)
			conn.SendText(tt.text)
			assert.Equal(t, &tt.want, routertest.ReceiveError(conn))
		})
	}
}

func TestLimits_UnaffordableCostIsFailedPrecondition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := router.New(nil)
		router.RPC(r, echo).UseIngress(func(context.Context, router.IngressContext) error {
			return &router.LimitExceeded{Kind: router.LimitRate, Observed: 9, Limit: 5, RetryAfter: errors.Never}
		})
		conn := routertest.Dial(t, r)
		conn.SendText(`{"type":"ECHO","meta":{"correlationId":"c"},"payload":{"n":1}}`)
		frame := conn.Next()
		assert.Equal(t, "RPC_ERROR", frame.Type)
		assert.JSONEq(t, `{"code":"FAILED_PRECONDITION","message":"the message costs more than the limit can ever allow",
			"details":{"kind":"rate","observed":9,"limit":5},"retryable":false,"retryAfterMs":null}`, string(frame.Payload))
	})
}

func TestLimits_AreReportedOnce(t *testing.T) {
	overRate := func(context.Context, router.IngressContext) error {
		return &router.LimitExceeded{Kind: router.LimitRate, Observed: 1, Limit: 5, RetryAfter: time.Second}
	}
	for _, tt := range []struct {
		name     string
		action   router.LimitAction
		text     string
		kind     router.LimitKind
		closed   router.CloseError // zero if the connection stays open
		answered bool
	}{
		{"rate, send", router.ActionSend, `{"type":"ECHO"}`, router.LimitRate, router.CloseError{}, true},
		{"rate, close", router.ActionClose, `{"type":"ECHO"}`, router.LimitRate, router.CloseError{Code: router.StatusTryAgainLater, Reason: `{"code":"RESOURCE_EXHAUSTED","retryAfterMs":1000,"message":"rate limit exceeded"}`}, false},
		{"rate, custom", router.ActionCustom, `{"type":"ECHO"}`, router.LimitRate, router.CloseError{}, false},
		{"payload, send", router.ActionSend, sized(maxMessageBytes + 1), router.LimitPayload, router.CloseError{}, true},
		{"payload, close", router.ActionClose, sized(maxMessageBytes + 1), router.LimitPayload, router.CloseError{Code: router.StatusTooBig, Reason: `{"code":"RESOURCE_EXHAUSTED","retryAfterMs":null,"message":"message is too big"}`}, false},
		{"payload, custom", router.ActionCustom, sized(maxMessageBytes + 1), router.LimitPayload, router.CloseError{}, false},
	} {
		runSynctest(t, tt.name, func(t *testing.T) {
			var reported recorder[router.LimitExceeded]
			r := router.New(discardLogs(router.Options{
				LimitAction:     tt.action,
				OnLimitExceeded: func(l router.LimitExceeded) { reported.add(l); panic("a hook's panic is contained") },
				OnError:         func(f router.ErrorReport) { t.Errorf("OnError was called for a limit: %v", f.Err) },
				Limits:          router.Limits{MaxMessageBytes: maxMessageBytes},
			}))
			router.RPC(r, echo).UseIngress(overRate)
			conn := routertest.Dial(t, r)
			conn.SendText(tt.text)
			synctest.Wait()
			require.Len(t, reported.all(), 1)
			l := reported.all()[0]
			assert.Equal(t, tt.kind, l.Kind)
			assert.Equal(t, "ECHO", l.Type)
			assert.NotEmpty(t, l.Conn.ID())
			if tt.answered {
				assert.Equal(t, errors.ResourceExhausted, routertest.ReceiveError(conn).Code)
			}
			assert.Zero(t, conn.Pending())
			if tt.closed != (router.CloseError{}) {
				assert.Equal(t, tt.closed, conn.Closed())
			}
		})
	}
}

func TestLimits_RouteActionOverridesDefault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := router.New(&router.Options{
			LimitAction: router.ActionClose,
			Limits:      router.Limits{MaxMessageBytes: maxMessageBytes},
		})
		router.RPC(r, echo).LimitAction(router.ActionSend)
		router.On(r, func(*router.Context, Say) error { return nil }).MaxMessageBytes(50)
		conn := routertest.Dial(t, r)
		conn.SendText(sized(maxMessageBytes + 1))
		assert.Equal(t, errors.ResourceExhausted, routertest.ReceiveError(conn).Code, "the action of the route")
		conn.Send(Say{Room: "go", Text: "this is longer than the route allows"})
		assert.EqualValues(t, 1009, conn.Closed().Code)
	})
}

func TestRoute_MaxMessageBytesOverridesLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := router.New(&router.Options{Limits: router.Limits{MaxMessageBytes: maxMessageBytes}})
		router.RPC(r, echo).MaxMessageBytes(50_000)
		conn := routertest.Dial(t, r)
		conn.SendText(sized(50_000))
		assert.Equal(t, "ECHOED", conn.Next().Type)
		conn.SendText(sized(50_001))
		assert.EqualValues(t, 50_000, errors.DetailsOf[errors.LimitDetails](routertest.ReceiveError(conn)).Limit)
	})
}

func TestLimits_ConcurrentCallsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reported recorder[router.LimitExceeded]
		proceed := make(chan struct{})
		r := router.New(&router.Options{
			Limits:          router.Limits{Concurrency: 2},
			OnLimitExceeded: reported.add,
		})
		router.RPC(r, func(_ *router.Context, m Echo) (Echoed, error) {
			<-proceed
			return Echoed(m), nil
		})
		conn := routertest.Dial(t, r)
		for range 4 {
			conn.Send(Echo{})
		}
		for range 2 {
			e := routertest.ReceiveError(conn)
			assert.Equal(t, errors.ResourceExhausted, e.Code)
			assert.Equal(t, map[string]any{"kind": "in_flight", "observed": 3., "limit": 2.}, e.Details)
		}
		close(proceed)
		synctest.Wait()
		assert.Equal(t, 2, conn.Pending(), "the two admitted calls are answered")
		assert.Len(t, reported.all(), 2)
		conn.Send(Echo{})
		synctest.Wait()
		assert.Equal(t, 3, conn.Pending(), "an answered call frees capacity")
	})
}

func TestBackpressure_SlowHandlerPausesReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var entered atomic.Int64
		proceed := make(chan struct{})
		r := router.New(nil)
		r.UseIngress(func(context.Context, router.IngressContext) error {
			entered.Add(1)
			return nil
		})
		router.On(r, func(*router.Context, Say) error {
			<-proceed
			return nil
		})
		conn := routertest.Dial(t, r)
		go func() {
			for range 1000 {
				conn.Send(Say{Room: "a", Text: "b"})
			}
		}()
		synctest.Wait()
		assert.EqualValues(t, 66, entered.Load(), "one is handled, 64 are queued, and one waits for the queue")
		close(proceed)
		synctest.Wait()
		assert.EqualValues(t, 1000, entered.Load())
	})
}
