package router_test

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"log/slog"
	"maps"
	"net/http"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// A harness is a router with one piece of application code that fails, a connection that makes
// it fail, and one that must not notice.
type harness struct {
	*testing.T
	opts     router.Options
	router   *router.Router
	conn     *routertest.Conn
	other    *routertest.Conn
	node     broker.Handler // if there is a broker
	fault    func()
	failures recorder[string]
	panics   recorder[string] // the reasons
}

const faultyUser = "faulty"

// Faulty is a call whose handler, middleware and ingress functions may fail.
type Faulty struct{ At string }

func (Faulty) MessageType() string { return "FAULTY" }

// faults are the ways in which application code can fail other than by an error.
func faults() map[string]func() {
	return map[string]func(){
		"panic":                          func() { panic("fault") },
		"panic of an error that panics":  func() { panic(&failingError{at: "Error"}) },
		"panic of a nil pointer":         func() { panic((*failingError)(nil)) },
		"panic of a value that logs bad": func() { panic(failingValue{}) },
		exit:                             runtime.Goexit,
	}
}

const exit = "runtime.Goexit"

// failingValue panics wherever it is to be shown.
type failingValue struct{}

func (failingValue) String() string       { panic("String") }
func (failingValue) LogValue() slog.Value { panic("LogValue") }

// start dials two connections to a router. What each user holds is limited to one connection, so
// that a count that is kept shows.
func (h *harness) start(setUp func(*harness)) {
	if h.opts.Authenticate == nil {
		h.opts.Authenticate = func(req *http.Request) (router.Identity, error) {
			return router.Identity{UserID: router.Token(req)}, nil
		}
	}
	if h.opts.OnError == nil {
		h.opts.OnError = func(f router.ErrorReport) { h.failures.add(f.Err.Error()) }
	}
	if h.opts.Logger == nil {
		h.opts.Logger = slog.New(slog.DiscardHandler)
	}
	h.opts.Limits.ConnsPerUser = 1
	h.router = router.New(&h.opts)
	h.router.Observe(func(e router.Event) {
		if e.Kind == router.EventPanicked {
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

// call sends a Faulty as a call, and returns its only answer.
func (h *harness) call(conn *routertest.Conn) *errors.Error {
	h.Helper()
	conn.SendText(`{"type":"FAULTY","meta":{"correlationId":"c"},"payload":{"At":""}}`)
	synctest.Wait()
	require.Equal(h, 1, conn.Pending(), "exactly one answer")
	return routertest.ReceiveError(conn)
}

// live proves that a connection answers.
func (h *harness) live(conn *routertest.Conn) {
	h.Helper()
	assert.Equal(h, Echoed{1}, routertest.Call[Echoed](conn, Echo{1}))
}

// check proves that nothing but the faulty message was harmed: the other connection works,
// and no lock, no count and no goroutine is kept.
func (h *harness) check(connOpen bool) {
	h.Helper()
	h.live(h.other)
	for c := range h.router.Conns() {
		if c.Identity().UserID == "other" {
			require.NoError(h, c.Subscribe("proof"))
			require.NoError(h, h.router.Publish("proof", Nothing{}))
			routertest.Receive[Nothing](h.other)
			c.Unsubscribe("proof")
		}
	}
	if connOpen {
		h.live(h.conn)
		h.conn.Close()
		synctest.Wait()
	}
	h.dial() // its user may have only one connection
	ctx, cancel := context.WithTimeout(h.Context(), time.Minute)
	defer cancel()
	require.NoError(h, h.router.Shutdown(ctx))
	assert.Empty(h, slices.Collect(h.router.Conns()))
}

// A boundary is a place where the router calls application code.
type boundary struct {
	prepare func(*harness)      // sets options
	setUp   func(*harness)      // registers
	provoke func(*harness)      // if nil, a Faulty is sent as a call
	want    errors.Code         // of its answer
	reason  string              // of EventPanicked; none if empty
	ends    bool                // the connection
	exits   bool                // it may call runtime.Goexit, too
	onExit  func(*harness) bool // provokes in place of provoke, and reports whether the connection lives
}

func TestFault_EveryBoundaryHasCase(t *testing.T) {
	cases := boundaries()
	want := declaredBoundaries(t)
	for field := range reflect.TypeFor[router.Options]().Fields() {
		switch field.Type.Kind() {
		case reflect.Func, reflect.Interface, reflect.Pointer:
			want = append(want, "Options."+field.Name)
		case reflect.Struct:
			for inner := range field.Type.Fields() {
				require.NotContains(t, []reflect.Kind{reflect.Func, reflect.Interface}, inner.Type.Kind(), "%s.%s", field.Name, inner.Name)
			}
		}
	}
	assert.ElementsMatch(t, want, slices.Collect(maps.Keys(cases)), "each boundary needs a case in boundaries, and each case a boundary")
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
				if name.IsExported() { // others cannot be implemented elsewhere
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
			if fault == exit && !b.exits && b.onExit == nil || b.provoke == nil && b.want == "" {
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
	case b.provoke != nil:
		b.provoke(h)
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
	h.check(lives)
}

func TestFault_BrokerConnectFailurePanicsAtStartUp(t *testing.T) {
	assert.PanicsWithValue(t, "fault", func() {
		router.New(&router.Options{Broker: &faultyBroker{harness: &harness{fault: func() { panic("fault") }}, at: "Join"}})
	})
	assert.PanicsWithValue(t, "router: Broker.Connect has returned nil; it must return a Session", func() {
		router.New(&router.Options{Broker: &faultyBroker{harness: &harness{}, at: "nil"}})
	})
}

// TestFault_LoggerMayCallRouter covers panics that come under a topic's lock.
func TestFault_LoggerMayCallRouter(t *testing.T) {
	for _, at := range []string{"Observe", "Subscribe", "Publish"} {
		runSynctest(t, at, func(t *testing.T) {
			h := &harness{T: t, fault: func() { panic("fault") }}
			h.opts.Logger = slog.New(&hookedHandler{handle: func(rec slog.Record) {
				if rec.Message == "hook panicked" && len(h.failures.all()) == 0 {
					h.failures.add(rec.Message)
					_ = h.router.Publish("room", Nothing{})
				}
			}})
			broker := &faultyBroker{harness: h, at: at}
			h.opts.Broker = broker
			h.opts.SlowConsumer = router.DropOldest
			h.opts.Limits.QueueMessages = 4
			h.start(func(h *harness) {
				h.router.Observe(func(e router.Event) {
					if at == "Observe" && e.Kind == router.EventDropped {
						h.fault()
					}
				})
			})
			h.conn = h.dial()
			synctest.Wait()
			for c := range h.router.Conns() {
				require.NoError(t, c.Join("room", ""))
			}
			h.conn.Pause()
			for range 20 {
				require.NoError(t, h.router.Publish("room", Nothing{}))
			}
			synctest.Wait()
			broker.set("")
			assert.NotEmpty(t, h.failures.all())
			h.conn.Resume()
			synctest.Wait()
			for _, c := range []*routertest.Conn{h.conn, h.other} {
				for c.Pending() > 0 {
					c.Next()
				}
			}
			h.check(true)
		})
	}
}

// TestFault_ObserverPanicLogsAreBounded proves that an observer that panics all the time does
// not fill the memory while the Logger is slow.
func TestFault_ObserverPanicLogsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logged := 0
		slow := make(chan struct{})
		h := &harness{T: t}
		h.opts.Logger = slog.New(&hookedHandler{handle: func(rec slog.Record) {
			if rec.Message == "hook panicked" {
				<-slow
				logged++
			}
		}})
		h.start(func(h *harness) { h.router.Observe(func(router.Event) { panic("fault") }) })
		for range 1000 {
			h.live(h.other)
		}
		synctest.Wait()
		close(slow)
		synctest.Wait()
		assert.Equal(t, 64, logged)
	})
}
