package router_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"runtime"
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

func TestPanic_EndsOnlyItsMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var failures recorder[router.ErrorReport]
		r := router.New(&router.Options{OnError: failures.add})
		router.On(r, func(*router.Context, Panic) error { panic("secret") })
		router.RPC(r, echo)
		conn, other := routertest.Dial(t, r), routertest.Dial(t, r)
		conn.Send(Panic{})
		assert.Equal(t, &errors.Error{Code: errors.Internal, Message: "internal error"}, routertest.ReceiveError(conn))
		for _, c := range []*routertest.Conn{conn, other} {
			assert.Equal(t, Echoed{1}, routertest.Call[Echoed](c, Echo{1}))
		}
		require.Len(t, failures.all(), 1)
		failure := failures.all()[0]
		assert.Equal(t, "PANIC", failure.Type)
		p, ok := errors.AsType[*errors.PanicError](failure.Err)
		require.True(t, ok)
		assert.Equal(t, "secret", p.Value)
		assert.Contains(t, string(p.Stack), "panic_test.go")
	})
}

func TestPanic_AfterDeadlineIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var failures recorder[router.ErrorReport]
		r := router.New(&router.Options{OnError: failures.add, Timeouts: router.Timeouts{Call: time.Second}})
		router.RPC(r, func(ctx *router.Context, _ Echo) (Echoed, error) {
			<-ctx.Done()
			time.Sleep(time.Second)
			panic("late")
		})
		assert.Equal(t, errors.DeadlineExceeded, routertest.CallError(routertest.Dial(t, r), Echo{}).Code)
		time.Sleep(2 * time.Second)
		require.Len(t, failures.all(), 1)
		assert.ErrorContains(t, failures.all()[0].Err, "panic: late")
	})
}

// TestGoexit_IsContained calls runtime.Goexit in application code, as t.FailNow does.
func TestGoexit_IsContained(t *testing.T) {
	respondWith := func(err error) func(*router.Router) {
		return func(r *router.Router) { router.On(r, func(*router.Context, Panic) error { return err }) }
	}
	for _, tt := range []struct {
		name  string
		opts  router.Options
		setUp func(*router.Router)
		want  errors.Code // of the answer to a Panic; empty if the connection is rejected
	}{
		{"in a handler", router.Options{}, func(r *router.Router) {
			router.On(r, func(*router.Context, Panic) error { runtime.Goexit(); return nil })
		}, errors.Internal},
		{"in a handler of calls", router.Options{}, func(r *router.Router) {
			router.RPC(r, func(*router.Context, Panic) (Echoed, error) { runtime.Goexit(); return Echoed{}, nil })
		}, errors.Internal},
		{"in an ingress function", router.Options{}, func(r *router.Router) {
			r.UseIngress(func(_ context.Context, in router.IngressContext) error {
				if in.Type == "PANIC" {
					runtime.Goexit()
				}
				return nil
			})
			respondWith(nil)(r)
		}, errors.Internal},
		{"in Validate", router.Options{Validate: func(m any) error {
			if m == (Panic{}) {
				runtime.Goexit()
			}
			return nil
		}}, respondWith(nil), errors.Internal},
		{
			"in OnLimitExceeded",
			router.Options{OnLimitExceeded: func(router.LimitExceeded) { runtime.Goexit() }},
			respondWith(&router.LimitExceeded{Kind: router.LimitRate, Observed: 2, Limit: 1}), errors.ResourceExhausted,
		},
		{"in OnOpen", router.Options{OnOpen: func(context.Context, *router.Conn) error { runtime.Goexit(); return nil }}, respondWith(nil), ""},
		{
			"in OnClose",
			router.Options{OnClose: func(*router.Conn, router.CloseError) { runtime.Goexit() }},
			respondWith(errors.Errorf(errors.NotFound, "not found")), errors.NotFound,
		},
	} {
		runSynctest(t, tt.name, func(t *testing.T) {
			r := router.New(discardLogs(tt.opts))
			tt.setUp(r)
			router.RPC(r, echo)
			conn := routertest.Dial(t, r)
			if tt.want == "" {
				assert.Equal(t, router.StatusInternalError, conn.Closed().Code)
			} else {
				for range 3 {
					conn.Send(Panic{})
					assert.Equal(t, tt.want, routertest.ReceiveError(conn).Code)
					assert.Equal(t, Echoed{1}, routertest.Call[Echoed](conn, Echo{1}), "later messages are handled")
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			assert.NoError(t, r.Shutdown(ctx))
		})
	}
}

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

func TestGoexit_InAuthenticateReleasesConnectionCount(t *testing.T) {
	r := router.New(discardLogs(router.Options{
		Authenticate: func(*http.Request) (router.Identity, error) { runtime.Goexit(); return router.Identity{}, nil },
		Limits:       router.Limits{Conns: 1},
	}))
	for range 3 {
		w := httptest.NewRecorder()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			r.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		}()
		<-ended
		assert.Equal(t, http.StatusInternalServerError, w.Code, "the failed handshake no longer counts as a connection")
	}
	assert.NoError(t, r.Shutdown(t.Context()))
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

// TestError_NilPointersAndPanicsAreInternal returns errors and replies whose methods panic.
func TestError_NilPointersAndPanicsAreInternal(t *testing.T) {
	for name, setUp := range map[string]func(*router.Router){
		"a reply that panics": func(r *router.Router) {
			router.RPC(r, func(*router.Context, Echo) (PanickingJSON, error) { return PanickingJSON{}, nil })
		},
		"a nil pointer from a handler": func(r *router.Router) {
			router.RPC(r, func(_ *router.Context, m Echo) (Echoed, error) { return Echoed(m), noError() })
		},
		"a nil pointer from an ingress function": func(r *router.Router) {
			r.UseIngress(func(context.Context, router.IngressContext) error { return noLimit() })
			router.RPC(r, echo)
		},
	} {
		runSynctest(t, name, func(t *testing.T) {
			var failures recorder[router.ErrorReport]
			r := router.New(&router.Options{OnError: failures.add})
			setUp(r)
			assert.Equal(t, errors.Internal, routertest.CallError(routertest.Dial(t, r), Echo{}).Code)
			synctest.Wait()
			assert.Len(t, failures.all(), 1)
		})
	}
	runSynctest(t, "details that panic are omitted", func(t *testing.T) {
		r := router.New(discardLogs(router.Options{}))
		router.RPC(r, func(*router.Context, Echo) (Echoed, error) {
			return Echoed{}, &errors.Error{Code: errors.Aborted, Details: map[string]any{"a": PanickingJSON{}}}
		})
		assert.Equal(t, &errors.Error{Code: errors.Aborted}, routertest.CallError(routertest.Dial(t, r), Echo{}))
	})
	runSynctest(t, "a nil pointer from OnOpen", func(t *testing.T) {
		r := router.New(discardLogs(router.Options{OnOpen: func(context.Context, *router.Conn) error { return noError() }}))
		assert.Equal(t, router.StatusInternalError, routertest.Dial(t, r).Closed().Code)
	})
}
