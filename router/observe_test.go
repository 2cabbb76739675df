package router_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/observe"
	"github.com/penstock-go/penstock/router/routertest"
)

func TestObserve_ReceivesEventsOfCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen recorder[observe.Event]
		r := router.New(nil)
		r.Observe(func(e observe.Event) {
			e.Bytes = min(e.Bytes, 1)
			seen.add(e)
		})
		second := 0
		r.Observe(func(observe.Event) { second++ })
		router.RPC(r, func(_ *router.Context, m Echo) (Echo, error) {
			time.Sleep(time.Second)
			return m, nil
		})
		conn := routertest.Dial(t, r)
		routertest.Call[Echo](conn, Echo{1})
		synctest.Wait()
		echo := func(kind observe.Kind) observe.Event { return observe.Event{Kind: kind, Type: "ECHO"} }
		handled := echo(observe.Handled)
		handled.Duration = time.Second
		assert.Equal(t, []observe.Event{
			{Kind: observe.Opened, Transport: "websocket"},
			{Kind: observe.Read, Bytes: 1},
			echo(observe.Started), handled, echo(observe.Completed), echo(observe.Finished),
			{Kind: observe.Written, Count: 1, Bytes: 1},
		}, seen.all())
		assert.Equal(t, 7, second)
		assert.Equal(t, router.Stats{Conns: 1}, r.Stats())
	})
}

func TestObserve_PanicIsContained(t *testing.T) {
	r := router.New(discardLogs(router.Options{}))
	r.Observe(func(observe.Event) { panic("observer") })
	router.RPC(r, echo)
	conn := routertest.Dial(t, r)
	assert.Equal(t, Echoed{1}, routertest.Call[Echoed](conn, Echo{1}))
	assert.Panics(t, func() { r.Observe(func(observe.Event) {}) }, "Observe must be called before the router serves")
	assert.Panics(t, func() { router.New(nil).Observe(nil) })
}
