package router_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

func TestObserve_ReceivesEventsOfCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen recorder[router.Event]
		r := router.New(nil)
		r.Observe(func(e router.Event) {
			e.Bytes = min(e.Bytes, 1)
			seen.add(e)
		})
		second := 0
		r.Observe(func(router.Event) { second++ })
		router.RPC(r, func(_ *router.Context, m Echo) (Echo, error) {
			time.Sleep(time.Second)
			return m, nil
		})
		conn := routertest.Dial(t, r)
		routertest.Call[Echo](conn, Echo{1})
		synctest.Wait()
		echo := func(kind router.EventKind) router.Event { return router.Event{Kind: kind, Type: "ECHO"} }
		handled := echo(router.EventHandled)
		handled.Duration = time.Second
		assert.Equal(t, []router.Event{
			{Kind: router.EventOpened, Transport: router.TransportWebSocket},
			{Kind: router.EventRead, Bytes: 1},
			echo(router.EventStarted), handled, echo(router.EventCompleted), echo(router.EventFinished),
			{Kind: router.EventWritten, Count: 1, Bytes: 1},
		}, seen.all())
		assert.Equal(t, 7, second)
		assert.Equal(t, router.Stats{Conns: 1}, r.Stats())
	})
}

func TestObserve_PanicIsContained(t *testing.T) {
	r := router.New(discardLogs(router.Options{}))
	r.Observe(func(router.Event) { panic("observer") })
	router.RPC(r, echo)
	conn := routertest.Dial(t, r)
	assert.Equal(t, Echoed{1}, routertest.Call[Echoed](conn, Echo{1}))
	assert.Panics(t, func() { r.Observe(func(router.Event) {}) }, "Observe must be called before the router serves")
	assert.Panics(t, func() { router.New(nil).Observe(nil) })
}
