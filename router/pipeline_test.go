package router_test

import (
	"context"
	"net/http"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

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
