package router_test

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/observe"
	"github.com/penstock-go/penstock/router/routertest"
)

// A harness is a router with application code that fails at one point, a connection that triggers
// the failure, and another connection that must not be affected.
type harness struct {
	*testing.T
	opts     router.Options
	router   *router.Router
	conn     *routertest.Conn
	other    *routertest.Conn
	node     broker.Callbacks // if there is a broker
	fault    func()
	failures recorder[string]
	panics   recorder[string] // the reasons
}

const faultyUser = "faulty"

// Faulty is a call whose handler, middleware and ingress functions may fail.
type Faulty struct{ At string }

func (Faulty) MessageType() string { return "FAULTY" }

// faults returns the ways in which application code can fail without returning an error.
func faults() map[string]func() {
	return map[string]func(){
		"panic":                              func() { panic("fault") },
		"panic of an error that panics":      func() { panic(&failingError{at: "Error"}) },
		"panic of a nil pointer":             func() { panic((*failingError)(nil)) },
		"panic of a value that fails to log": func() { panic(failingValue{}) },
		exit:                                 runtime.Goexit,
	}
}

const exit = "runtime.Goexit"

// failingValue panics when it is formatted or logged.
type failingValue struct{}

func (failingValue) String() string       { panic("String") }
func (failingValue) LogValue() slog.Value { panic("LogValue") }

// start builds the router and dials the other connection. Each user may have only one connection, so
// that a connection count that is not released becomes visible.
func (h *harness) start(setUp func(*harness)) {
	if h.opts.Authenticate == nil {
		h.opts.Authenticate = byUser
	}
	if h.opts.OnError == nil {
		h.opts.OnError = func(f router.ErrorReport) { h.failures.add(f.Err.Error()) }
	}
	if h.opts.Logger == nil {
		h.opts.Logger = slog.New(slog.DiscardHandler)
	}
	h.opts.Limits.ConnsPerUser = 1
	h.router = router.New(&h.opts)
	h.router.Observe(func(e observe.Event) {
		if e.Kind == observe.Panicked {
			h.panics.add(e.Reason)
		}
	})
	if setUp != nil {
		setUp(h)
	}
	router.RPC(h.router, echo)
	h.other = routertest.Dial(h, h.router, routertest.Token("other"))
	synctest.Wait()
}

func (h *harness) dial() *routertest.Conn {
	return routertest.Dial(h, h.router, routertest.Token(faultyUser))
}

// requestFails sends a request with the header X-Fault, on a goroutine that may exit.
func (h *harness) requestFails() {
	h.Helper()
	w, ended := httptest.NewRecorder(), make(chan struct{})
	go func() {
		defer close(ended)
		req := httptest.NewRequest(http.MethodGet, "/?access_token="+faultyUser, nil)
		req.Header.Set("X-Fault", "1")
		h.router.ServeHTTP(w, req)
	}()
	<-ended
	assert.Equal(h, http.StatusInternalServerError, w.Code)
}

// call sends a Faulty as a call and returns its answer, of which there must be exactly one.
func (h *harness) call(conn *routertest.Conn) *errors.Error {
	h.Helper()
	conn.SendText(`{"type":"FAULTY","meta":{"correlationId":"c"},"payload":{"At":""}}`)
	synctest.Wait()
	require.Equal(h, 1, conn.Pending(), "exactly one answer")
	return routertest.ReceiveError(conn)
}

// checkEcho checks that a connection answers calls.
func (h *harness) checkEcho(conn *routertest.Conn) {
	h.Helper()
	assert.Equal(h, Echoed{1}, routertest.Call[Echoed](conn, Echo{1}))
}

// checkIsolation checks that the failure affected only its own message: the other connection works,
// and no lock, connection count or goroutine is left over. It shuts the router down.
func (h *harness) checkIsolation(connOpen bool) {
	h.Helper()
	h.checkEcho(h.other)
	for c := range h.router.Conns() {
		if c.Identity().UserID == "other" {
			require.NoError(h, c.Subscribe("isolation"))
			require.NoError(h, h.router.Publish("isolation", Nothing{}))
			routertest.Receive[Nothing](h.other)
			c.Unsubscribe("isolation")
		}
	}
	if connOpen {
		h.checkEcho(h.conn)
		h.conn.Close()
		synctest.Wait()
	}
	h.dial() // fails if the closed connection still counts for its user
	ctx, cancel := context.WithTimeout(h.Context(), time.Minute)
	defer cancel()
	require.NoError(h, h.router.Shutdown(ctx))
	assert.Empty(h, slices.Collect(h.router.Conns()))
}

// A boundary is a point where the router calls application code.
type boundary struct {
	prepare func(*harness)      // sets options
	setUp   func(*harness)      // registers handlers
	trigger func(*harness)      // if nil, a Faulty is sent as a call
	want    errors.Code         // of the answer to that call
	reason  string              // of Panicked; empty if there must be none
	ends    bool                // the connection must end
	exits   bool                // runtime.Goexit is contained, too
	onExit  func(*harness) bool // replaces trigger for runtime.Goexit; reports whether the connection stays open
}

func TestFault_EveryBoundaryHasCase(t *testing.T) {
	cases := boundaries()
	want := declaredBoundaries(t)
	named := map[string]reflect.Type{"Resume": reflect.TypeFor[router.ResumeOptions](), "UserHistory": reflect.TypeFor[router.History]()}
	for field := range reflect.TypeFor[router.Options]().Fields() {
		typ := field.Type
		if is := named[field.Name]; is != nil {
			require.True(t, is.Implements(typ))
			typ = is
		}
		switch typ.Kind() {
		case reflect.Func, reflect.Interface, reflect.Pointer:
			want = append(want, "Options."+field.Name)
		case reflect.Struct:
			for inner := range typ.Fields() {
				switch inner.Type.Kind() {
				case reflect.Func, reflect.Interface:
					want = append(want, "Options."+field.Name+"."+inner.Name)
				}
			}
		}
	}
	for field := range reflect.TypeFor[router.TopicOptions]().Fields() {
		if field.Type.Kind() == reflect.Func {
			want = append(want, "TopicOptions."+field.Name)
		}
	}
	assert.ElementsMatch(t, want, slices.Collect(maps.Keys(cases)), "boundaries must have exactly one case for each boundary")
}

// declaredBoundaries returns the methods of the exported interfaces, the exported function
// types, and the parameters that are functions.
func declaredBoundaries(t *testing.T) (names []string) {
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	for _, file := range append(files, "../broker/broker.go") {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		require.NoError(t, err)
		for _, decl := range parsed.Decls {
			switch decl := decl.(type) {
			case *ast.FuncDecl:
				names = append(names, functionParams(decl)...)
			case *ast.GenDecl:
				for _, spec := range decl.Specs {
					if spec, ok := spec.(*ast.TypeSpec); ok && spec.Name.IsExported() {
						names = append(names, callbacksOf(spec)...)
					}
				}
			}
		}
	}
	return names
}

func functionParams(decl *ast.FuncDecl) (names []string) {
	if !decl.Name.IsExported() {
		return nil
	}
	for _, param := range decl.Type.Params.List {
		if _, ok := param.Type.(*ast.FuncType); ok {
			names = append(names, decl.Name.Name+"."+param.Names[0].Name)
		}
	}
	return names
}

func callbacksOf(spec *ast.TypeSpec) (names []string) {
	switch typ := spec.Type.(type) {
	case *ast.FuncType:
		names = append(names, spec.Name.Name)
	case *ast.InterfaceType:
		for _, method := range typ.Methods.List {
			for _, name := range method.Names {
				if name.IsExported() { // unexported methods cannot be implemented by applications
					names = append(names, spec.Name.Name+"."+name.Name)
				}
			}
		}
	}
	return names
}

func TestFault_BoundariesContainFaults(t *testing.T) {
	for name, b := range boundaries() {
		for fault, f := range faults() {
			if fault == exit && !b.exits && b.onExit == nil || b.trigger == nil && b.want == "" {
				continue
			}
			runSynctest(t, name+"/"+fault, func(t *testing.T) { b.test(&harness{T: t, fault: f}, fault == exit) })
		}
	}
}

func (b boundary) test(h *harness, exits bool) {
	if b.prepare != nil {
		b.prepare(h)
	}
	h.start(b.setUp)
	lives := !b.ends
	switch {
	case exits && b.onExit != nil:
		lives = b.onExit(h)
	case b.trigger != nil:
		b.trigger(h)
	default:
		h.conn = h.dial()
		assert.Equal(h, b.want, h.call(h.conn).Code)
	}
	synctest.Wait()
	if !exits && b.reason != "" {
		assert.Contains(h, h.panics.all(), b.reason)
	}
	if !exits && b.reason == "" {
		assert.Empty(h, h.panics.all())
	}
	if lives && h.conn == nil {
		h.conn = h.dial()
	}
	h.checkIsolation(lives)
}

func TestFault_BrokerConnectFailurePanicsAtStartUp(t *testing.T) {
	for _, at := range []string{"Connect", "Name"} {
		assert.PanicsWithValue(t, "fault", func() {
			router.New(&router.Options{Broker: &faultyBroker{harness: &harness{fault: func() { panic("fault") }}, at: at}})
		}, at)
	}
	assert.PanicsWithValue(t, "router: Broker.Connect has returned nil; it must return a Node", func() {
		router.New(&router.Options{Broker: &faultyBroker{harness: &harness{}, at: "nil"}})
	})
}

// TestFault_LoggerMayCallRouter lets an observer panic while the router holds the lock of a topic; the
// logger must be called without it.
func TestFault_LoggerMayCallRouter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &harness{T: t, fault: func() { panic("fault") }}
		h.opts.Logger = slog.New(&hookedHandler{handle: func(rec slog.Record) {
			if rec.Message == "hook panicked" && len(h.failures.all()) == 0 {
				h.failures.add(rec.Message)
				_ = h.router.Publish("room", Nothing{})
			}
		}})
		h.opts.SlowConsumer = router.DropOldest
		h.opts.Limits.QueueMessages = 4
		h.start(func(h *harness) {
			h.router.Observe(func(e observe.Event) {
				if e.Kind == observe.Dropped {
					h.fault()
				}
			})
		})
		h.conn = h.dial()
		synctest.Wait()
		for c := range h.router.Conns() {
			require.NoError(t, c.Subscribe("room", router.Present("")))
		}
		h.conn.Pause()
		for range 20 {
			require.NoError(t, h.router.Publish("room", Nothing{}))
		}
		synctest.Wait()
		assert.NotEmpty(t, h.failures.all())
		h.conn.Resume()
		synctest.Wait()
		for _, c := range []*routertest.Conn{h.conn, h.other} {
			for c.Pending() > 0 {
				c.Next()
			}
		}
		h.checkIsolation(true)
	})
}

// TestFault_LoggerPanicIsNotRecovered logs a refused request. The request holds no slot after that.
func TestFault_LoggerPanicIsNotRecovered(t *testing.T) {
	r := router.New(&router.Options{
		Logger: slog.New(&hookedHandler{handle: func(slog.Record) { panic("fault") }}),
		Authenticate: func(*http.Request) (router.Identity, error) {
			return router.Identity{}, errors.Errorf(errors.Unauthenticated, "no")
		},
	})
	assert.PanicsWithValue(t, "fault", func() { r.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil)) })
	assert.NoError(t, r.Shutdown(t.Context()))
}

// TestFault_BrokerPanicIsNotRecovered calls the broker outside of a handler. No lock is held after that.
func TestFault_BrokerPanicIsNotRecovered(t *testing.T) {
	for method, f := range map[string]func(*router.Router){
		"Publish": func(r *router.Router) { _ = r.Publish("room", Nothing{}) },
		"Nodes":   func(r *router.Router) { _, _ = r.UserConns(t.Context(), "", faultyUser) },
		"Close":   func(r *router.Router) { _ = r.Shutdown(t.Context()) },
	} {
		b := &faultyBroker{harness: &harness{T: t, fault: func() { panic("fault") }}, at: method}
		r := router.New(&router.Options{Broker: b})
		assert.PanicsWithValue(t, "fault", func() { f(r) }, method)
		b.set("")
		assert.NotPanics(t, func() { f(r) }, method)
	}
}

// TestFault_ObserverPanicLogsAreBounded checks that an observer that panics for every event does not
// use unbounded memory while the Logger blocks, and that all panics are counted.
func TestFault_ObserverPanicLogsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lines, logged := 0, int64(0)
		var panics atomic.Int64
		unblock := make(chan struct{})
		h := &harness{T: t}
		h.opts.Logger = slog.New(&hookedHandler{handle: func(rec slog.Record) {
			if rec.Message == "hook panicked" {
				<-unblock
				lines++
				logged += 1 + suppressedIn(rec)
			}
		}})
		h.start(func(h *harness) {
			h.router.Observe(func(observe.Event) {
				panics.Add(1)
				panic("fault")
			})
		})
		for range 1000 {
			h.checkEcho(h.other)
		}
		synctest.Wait()
		close(unblock)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		assert.Equal(t, panics.Load(), logged)
		assert.Equal(t, 2, lines)
	})
}
