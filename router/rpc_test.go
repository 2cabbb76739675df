package router_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

func TestSend_RejectsReservedNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := router.New(discardLogs(router.Options{}))
		router.On(r, func(ctx *router.Context, _ Say) error {
			assert.ErrorContains(t, ctx.Send(Reserved{}), `"$ws:mine" is empty or reserved for the protocol`)
			assert.Error(t, ctx.Publish("a", Nameless{}))
			return nil
		})
		conn := routertest.Dial(t, r)
		conn.Send(Say{"a", "b"})
		synctest.Wait()
		assert.Zero(t, conn.Pending())
	})
}

func TestMiddleware_MayReplaceHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := router.New(discardLogs(router.Options{}))
		router.RPC(r, echo).Use(func(next router.Handler) router.Handler {
			return func(ctx *router.Context) error {
				switch ctx.Message().(Echo).N {
				case 0:
					return nil // without calling next
				case 1:
					return errors.Errorf(errors.PermissionDenied, "access is denied")
				default:
					return next(ctx)
				}
			}
		})
		conn := routertest.Dial(t, r)
		assert.Equal(t, errors.Internal, routertest.CallError(conn, Echo{0}).Code, "a call without a reply is answered")
		assert.Equal(t, errors.PermissionDenied, routertest.CallError(conn, Echo{1}).Code)
		assert.Equal(t, Echoed{2}, routertest.Call[Echoed](conn, Echo{2}))
	})
}

type nameKey struct{}

func TestMiddleware_ReadsReplyAndSetsValues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := router.New(discardLogs(router.Options{}))
		cache := map[router.Message]router.Message{}
		cached := func(next router.Handler) router.Handler {
			return func(ctx *router.Context) error {
				if reply, ok := cache[ctx.Message()]; ok {
					ctx.SetReply(reply)
					return nil
				}
				ctx.SetValue(nameKey{}, "first")
				ctx.SetValue(nameKey{}, "second")
				err := next(ctx)
				cache[ctx.Message()] = ctx.Reply()
				return err
			}
		}
		calls := 0
		router.RPC(r, func(ctx *router.Context, m Echo) (Echoed, error) {
			calls++
			derived, cancel := context.WithCancel(ctx)
			defer cancel()
			assert.Equal(t, "second", derived.Value(nameKey{}))
			assert.Nil(t, ctx.Value("another"))
			return Echoed(m), nil
		}).Use(cached)
		conn := routertest.Dial(t, r)
		for range 3 {
			assert.Equal(t, Echoed{7}, routertest.Call[Echoed](conn, Echo{7}))
		}
		assert.Equal(t, 1, calls)
	})
}

func TestCall_RunsConcurrentlyWithLaterMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var trace recorder[string]
		r := router.New(nil)
		router.RPC(r, func(_ *router.Context, m Echo) (Echoed, error) {
			trace.add("echo starts")
			time.Sleep(time.Second)
			trace.add("echo ends")
			return Echoed(m), nil
		})
		router.On(r, func(_ *router.Context, m Say) error {
			trace.add(m.Text + " starts")
			time.Sleep(time.Millisecond)
			trace.add(m.Text + " ends")
			return nil
		})
		conn := routertest.Dial(t, r)
		conn.Send(Say{"go", "1"})
		conn.Send(Echo{})
		conn.Send(Say{"go", "2"})
		conn.Send(Say{"go", "3"})
		time.Sleep(2 * time.Second)
		got := trace.all()
		assert.Equal(t, []string{"1 starts", "1 ends"}, got[:2], "a call starts after earlier messages")
		assert.ElementsMatch(t, []string{"echo starts", "2 starts"}, got[2:4])
		assert.Equal(t, []string{"2 ends", "3 starts", "3 ends", "echo ends"}, got[4:])
	})
}

func TestRoute_SerialAndConcurrentChangeOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var trace recorder[string]
		slow := func(name string) {
			trace.add(name + " starts")
			time.Sleep(time.Second)
			trace.add(name + " ends")
		}
		r := router.New(nil)
		router.RPC(r, func(_ *router.Context, m Echo) (Echoed, error) { slow("echo"); return Echoed(m), nil }).Serial()
		router.On(r, func(_ *router.Context, m Say) error { slow(m.Text); return nil }).Concurrent()
		conn := routertest.Dial(t, r)
		conn.Send(Echo{})
		conn.Send(Say{"go", "1"})
		conn.Send(Say{"go", "2"})
		time.Sleep(10 * time.Second)
		got := trace.all()
		assert.Equal(t, []string{"echo starts", "echo ends"}, got[:2])
		assert.ElementsMatch(t, []string{"1 starts", "2 starts"}, got[2:4])
	})
}

func TestContext_DescribesMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := router.New(nil)
		var seen router.IngressContext
		r.UseIngress(func(_ context.Context, in router.IngressContext) error {
			seen = router.IngressContext{
				Type: in.Type, ConnID: in.ConnID, IP: in.IP, Identity: in.Identity, Work: in.Work, Size: in.Size, ReceivedAt: in.ReceivedAt,
			}
			return nil
		})
		router.RPC(r, func(ctx *router.Context, m Echo) (Echoed, error) {
			assert.Equal(t, "ECHO", ctx.Type())
			assert.EqualExportedValues(t, seen, ctx.Ingress())
			assert.EqualValues(t, 62, ctx.Ingress().Size)
			assert.Equal(t, "c", ctx.CorrelationID())
			assert.Equal(t, m, ctx.Message())
			assert.Equal(t, time.Now(), ctx.ReceivedAt())
			assert.Equal(t, ctx.Conn().Identity(), ctx.Identity())
			deadline, ok := ctx.Deadline()
			assert.True(t, ok)
			assert.Equal(t, 30*time.Second, time.Until(deadline))
			derived, cancel := context.WithCancel(ctx)
			cancel()
			return Echoed(m), context.Cause(derived)
		})
		conn := routertest.Dial(t, r)
		conn.SendText(`{"type":"ECHO","meta":{"correlationId":"c"},"payload":{"n":5}}`)
		assert.Equal(t, errors.Canceled, routertest.ReceiveError(conn).Code)
	})
}
