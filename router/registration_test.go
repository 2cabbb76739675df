package router_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"runtime"
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

type PointerMessage struct{}

func (*PointerMessage) MessageType() string { return "POINTER" }

type Reserved struct{}

func (Reserved) MessageType() string { return "$ws:mine" }

type Nameless struct{}

func (Nameless) MessageType() string { return "" }

// Wrapper holds what may not be able to travel.
type Wrapper[T any] struct{ V T }

func (Wrapper[T]) MessageType() string { return "WRAPPER" }

func TestRegistration_AcceptsEncodableTypes(t *testing.T) {
	type tree struct {
		Children []tree
		Parent   *tree
		At       time.Time
		IP       netip.Addr
		Err      error `json:"-"`
		Any      any
		Bytes    [4]byte
		Names    map[netip.Addr]struct{ N uint8 }
		Numbers  map[int]map[string]any
		hidden   chan int
	}
	router.On(router.New(nil), func(_ *router.Context, m Wrapper[tree]) error { close(m.V.hidden); return nil })
	router.On(router.New(nil), func(*router.Context, Wrapper[json.RawMessage]) error { return nil })
}

func TestRegistration_MistakesPanicAtStartUp(t *testing.T) {
	on := func(r *router.Router) { router.On(r, func(*router.Context, Say) error { return nil }) }
	for _, tt := range []struct {
		name string
		do   func()
		want []string
	}{
		{"registered twice", func() { r := router.New(nil); on(r); on(r) }, []string{`"SAY" registered at `, "registration_test.go:", " and at "}},
		{"a pointer as message", func() {
			router.On(router.New(nil), func(*router.Context, *PointerMessage) error { return nil })
		}, []string{"registration_test.go:", "*router_test.PointerMessage is not a value"}},
		{"a reserved name", func() {
			router.On(router.New(nil), func(*router.Context, Reserved) error { return nil })
		}, []string{`"$ws:mine", is reserved`}},
		{"no name", func() {
			router.On(router.New(nil), func(*router.Context, Nameless) error { return nil })
		}, []string{"must have 1 to 128 bytes"}},
		{"a reply with a reserved name", func() {
			router.RPC(router.New(nil), func(*router.Context, Echo) (Reserved, error) { return Reserved{}, nil })
		}, []string{"registration_test.go:", "is reserved"}},
		{"a negative limit", func() { router.New(&router.Options{Limits: router.Limits{Concurrency: -1}}) }, []string{"Limits.Concurrency is -1"}},
		{"a negative time", func() { router.New(&router.Options{Timeouts: router.Timeouts{Ping: -time.Second}}) }, []string{"Timeouts.Ping is -1s"}},
		{"a hard cap below the limit", func() {
			router.New(&router.Options{Limits: router.Limits{MaxMessageBytes: 10, MaxReadBytes: 5}})
		}, []string{"Limits.MaxReadBytes is 5, below Limits.MaxMessageBytes, 10"}},
		{"buffers of nothing", func() { router.New(&router.Options{BufferBytes: 100}) }, []string{"BufferBytes is 100", "512 to 65536"}},
		{"a subprotocol with a space", func() { router.New(&router.Options{Subprotocols: []string{"chat.v1", "my proto"}}) }, []string{`Subprotocols has "my proto"`}},
		{"no reaction", func() { router.New(&router.Options{LimitAction: 9}) }, []string{"OnExceeded is 9"}},
		{"an origin without scheme", func() { router.New(&router.Options{Origins: []string{"example.com"}}) }, []string{`"example.com"`}},
		{"an origin that is not ASCII", func() { router.New(&router.Options{Origins: []string{"https://bücher.example"}}) }, []string{"bücher", "Punycode"}},
		{"an origin with a path", func() { router.New(&router.Options{Origins: []string{"https://example.com/a"}}) }, []string{"example.com/a"}},
		{"an origin with a * in the middle", func() { router.New(&router.Options{Origins: []string{"https://a.*.com"}}) }, []string{"a.*.com"}},
		{"MaxBytes of nothing", func() {
			router.On(router.New(nil), func(*router.Context, Say) error { return nil }).MaxMessageBytes(0)
		}, []string{`MaxBytes of "SAY" is 0`}},
		{"MaxBytes above the hard cap", func() {
			router.On(router.New(nil), func(*router.Context, Say) error { return nil }).MaxMessageBytes(1 << 30)
		}, []string{`MaxBytes of "SAY" is 1073741824`, "Limits.MaxReadBytes, 1048576"}},
		{"no reaction of a route", func() {
			router.RPC(router.New(nil), echo).LimitAction(42)
		}, []string{"OnExceeded is 42"}},
		{"no handler", func() { router.On[Say](router.New(nil), nil) }, []string{"registration_test.go:", "the handler of router_test.Say is nil"}},
		{"no handler of calls", func() { router.RPC[Say, Echo](router.New(nil), nil) }, []string{"registration_test.go:", "the handler of router_test.Say is nil"}},
		{"no middleware", func() { router.New(nil).Use(nil) }, []string{"argument 1 of Use is nil"}},
		{"no ingress function", func() { router.RPC(router.New(nil), echo).UseIngress(nil) }, []string{"argument 1 of UseIngress is nil"}},
		{"a middleware that returns nothing", func() {
			r := router.New(nil)
			r.Use(func(router.Handler) router.Handler { return nil })
			router.RPC(r, echo)
			assert.Panics(t, func() { r.ServeHTTP(nil, nil) })
			r.ServeHTTP(nil, nil) // it must not be half laid out
		}, []string{`a middleware of "ECHO", registered at `, "has returned nil"}},
		{"a field that nobody can encode", func() {
			router.RPC(router.New(nil), func(*router.Context, Echo) (Wrapper[struct{ C []chan int }], error) { panic("not called") })
		}, []string{"registration_test.go:", "cannot travel: field V: field C: ", "chan int"}},
		{"a duration", func() {
			router.On(router.New(nil), func(*router.Context, Wrapper[*time.Duration]) error { return nil })
		}, []string{"cannot travel: field V: ", "time.Duration"}},
		{"keys that are no strings", func() {
			router.On(router.New(nil), func(*router.Context, Wrapper[map[bool]int]) error { return nil })
		}, []string{"cannot travel: field V: "}},
		{"two fields of one name", func() {
			type twins struct {
				A int
				B int `json:"A"`
			}
			router.On(router.New(nil), func(*router.Context, Wrapper[map[string]twins]) error { return nil })
		}, []string{"cannot travel: field V: ", `"A"`}},
		{"a change while serving", func() {
			r := router.New(nil)
			routertest.Dial(t, r)
			r.Use()
		}, []string{"Use called after the router began to serve"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			defer func() {
				text, _ := recover().(string)
				assert.True(t, strings.HasPrefix(text, "router: "), "panicked with %q", text)
				for _, want := range tt.want {
					assert.Contains(t, text, want)
				}
			}()
			tt.do()
		})
	}
}

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
		p, ok := errors.AsType[*router.PanicError](failure.Err)
		require.True(t, ok)
		assert.Equal(t, "secret", p.Value)
		assert.Contains(t, string(p.Stack), "registration_test.go")
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

// TestGoexit_IsContained calls what t.FailNow calls.
func TestGoexit_IsContained(t *testing.T) {
	respondWith := func(err error) func(*router.Router) {
		return func(r *router.Router) { router.On(r, func(*router.Context, Panic) error { return err }) }
	}
	for _, tt := range []struct {
		name  string
		opts  router.Options
		setUp func(*router.Router)
		want  errors.Code // of the answer to a Panic; none if the connection is refused
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
			respondWith(errors.Errorf(errors.NotFound, "nobody")), errors.NotFound,
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
		assert.Equal(t, http.StatusInternalServerError, w.Code, "its place is free again")
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
		router.On(r, func(ctx *router.Context, m Say) error { return ctx.Join(m.Room, "") })
		conn := routertest.Dial(t, r)
		for _, room := range []string{"a", "b", "c"} {
			conn.Send(Say{room, "x"})
		}
		synctest.Wait()
		assert.Len(t, events.all(), 3)
	})
}

// PanickingJSON cannot be encoded.
type PanickingJSON struct{ N int }

func (PanickingJSON) MessageType() string          { return "PANICKING_JSON" }
func (PanickingJSON) MarshalJSON() ([]byte, error) { panic("secret") }

func noError() *errors.Error         { return nil }
func noLimit() *router.LimitExceeded { return nil }

// TestError_NilPointersAndPanicsAreInternal end their message, not the process.
func TestError_NilPointersAndPanicsAreInternal(t *testing.T) {
	for name, setUp := range map[string]func(*router.Router){
		"a reply that panics": func(r *router.Router) {
			router.RPC(r, func(*router.Context, Echo) (PanickingJSON, error) { return PanickingJSON{}, nil })
		},
		"a nil pointer": func(r *router.Router) {
			router.RPC(r, func(_ *router.Context, m Echo) (Echoed, error) { return Echoed(m), noError() })
		},
		"a nil pointer of an ingress function": func(r *router.Router) {
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
	runSynctest(t, "details that panic are left out", func(t *testing.T) {
		r := router.New(discardLogs(router.Options{}))
		router.RPC(r, func(*router.Context, Echo) (Echoed, error) {
			return Echoed{}, &errors.Error{Code: errors.Aborted, Details: map[string]any{"a": PanickingJSON{}}}
		})
		assert.Equal(t, &errors.Error{Code: errors.Aborted}, routertest.CallError(routertest.Dial(t, r), Echo{}))
	})
	runSynctest(t, "a nil pointer of OnOpen", func(t *testing.T) {
		r := router.New(discardLogs(router.Options{OnOpen: func(context.Context, *router.Conn) error { return noError() }}))
		assert.Equal(t, router.StatusInternalError, routertest.Dial(t, r).Closed().Code)
	})
}
