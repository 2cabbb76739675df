package router_test

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/observe"
	"github.com/penstock-go/penstock/router/routertest"
)

// An exitingError calls runtime.Goexit when the router describes it.
type exitingError struct{}

func (exitingError) Error() string { runtime.Goexit(); return "" }

func TestGoexit_InTextOfPanicIsContained(t *testing.T) {
	fail := func() { panic(exitingError{}) }
	setUps := map[string]func(*router.Router){
		"in an event's handler": func(r *router.Router) {
			router.On(r, func(*router.Context, Panic) error { fail(); return nil })
		},
		"in a call's handler": func(r *router.Router) {
			router.RPC(r, func(*router.Context, Panic) (Echoed, error) { fail(); return Echoed{}, nil })
		},
		"in an ingress function": func(r *router.Router) {
			router.On(r, func(*router.Context, Panic) error { return nil }).UseIngress(func(context.Context, router.IngressContext) error { fail(); return nil })
		},
	}
	for name, setUp := range setUps {
		runSynctest(t, name, func(t *testing.T) {
			r := router.New(discardLogs(router.Options{}))
			setUp(r)
			router.RPC(r, echo)
			conn := routertest.Dial(t, r)
			conn.Send(Panic{})
			assert.Equal(t, errors.Internal, routertest.ReceiveError(conn).Code)
			assert.Equal(t, Echoed{1}, routertest.Call[Echoed](conn, Echo{1}))
			assert.NoError(t, r.Shutdown(t.Context()))
		})
	}
	runSynctest(t, "in OnOpen", func(t *testing.T) {
		r := router.New(discardLogs(router.Options{OnOpen: func(context.Context, *router.Conn) error { fail(); return nil }}))
		assert.Equal(t, router.StatusInternalError, routertest.Dial(t, r).Closed().Code)
	})
}

func TestGoexit_InObserverOfHandlersIsContained(t *testing.T) {
	for name, kind := range map[string]observe.Kind{"EventHandled": observe.Handled, "EventFinished": observe.Finished} {
		runSynctest(t, name, func(t *testing.T) {
			r := router.New(discardLogs(router.Options{}))
			r.Observe(func(e observe.Event) {
				if e.Kind == kind && e.Type == (Panic{}).MessageType() {
					runtime.Goexit()
				}
			})
			router.RPC(r, func(*router.Context, Panic) (Echoed, error) { return Echoed{}, nil })
			router.RPC(r, echo)
			conn := routertest.Dial(t, r)
			conn.Send(Panic{})
			assert.Equal(t, Echoed{1}, routertest.Call[Echoed](conn, Echo{1}))
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			assert.NoError(t, r.Shutdown(ctx))
		})
	}
}

func TestGoexit_InOnPresenceLosesNoEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var events recorder[router.PresenceEvent]
		r := router.New(&router.Options{OnPresence: func(e router.PresenceEvent) {
			events.add(e)
			runtime.Goexit()
		}})
		router.On(r, func(ctx *router.Context, m Say) error { return ctx.Subscribe(m.Room, router.Present("")) })
		conn := routertest.Dial(t, r)
		for _, room := range []string{"a", "b", "c"} {
			conn.Send(Say{room, "x"})
		}
		synctest.Wait()
		assert.Len(t, events.all(), 3)
	})
}

// PanickingJSON panics when it is encoded.
type PanickingJSON struct{ N int }

func (PanickingJSON) MessageType() string          { return "PANICKING_JSON" }
func (PanickingJSON) MarshalJSON() ([]byte, error) { panic("secret") }

func noError() *errors.Error         { return nil }
func noLimit() *router.LimitExceeded { return nil }
