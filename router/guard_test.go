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

// A rig is a router with one piece of application code that fails, a connection that makes
// it fail, and one that must not notice.
type rig struct {
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
		"panic of an error that panics":  func() { panic(&rottenError{at: "Error"}) },
		"panic of a nil pointer":         func() { panic((*rottenError)(nil)) },
		"panic of a value that logs bad": func() { panic(rottenValue{}) },
		exit:                             runtime.Goexit,
	}
}

const exit = "runtime.Goexit"

// rottenValue panics wherever it is to be shown.
type rottenValue struct{}

func (rottenValue) String() string       { panic("String") }
func (rottenValue) LogValue() slog.Value { panic("LogValue") }

// start dials two connections to a router. What each user holds is limited to one connection, so
// that a count that is kept shows.
func (g *rig) start(setUp func(*rig)) {
	if g.opts.Authenticate == nil {
		g.opts.Authenticate = func(req *http.Request) (router.Identity, error) {
			return router.Identity{UserID: router.Token(req)}, nil
		}
	}
	if g.opts.OnError == nil {
		g.opts.OnError = func(f router.ErrorReport) { g.failures.add(f.Err.Error()) }
	}
	if g.opts.Logger == nil {
		g.opts.Logger = slog.New(slog.DiscardHandler)
	}
	g.opts.Limits.ConnsPerUser = 1
	g.router = router.New(&g.opts)
	g.router.Observe(func(e router.Event) {
		if e.Kind == router.EventPanicked {
			g.panics.add(e.Reason)
		}
	})
	if setUp != nil {
		setUp(g)
	}
	router.RPC(g.router, echo)
	g.other = routertest.Dial(g, g.router, routertest.Token("other"))
	synctest.Wait()
}

func (g *rig) dial() *routertest.Conn {
	return routertest.Dial(g, g.router, routertest.Token(faultyUser))
}

// call sends a Faulty as a call, and returns its only answer.
func (g *rig) call(conn *routertest.Conn) *errors.Error {
	g.Helper()
	conn.SendText(`{"type":"FAULTY","meta":{"correlationId":"c"},"payload":{"At":""}}`)
	synctest.Wait()
	require.Equal(g, 1, conn.Pending(), "exactly one answer")
	return routertest.ReceiveError(conn)
}

// live proves that a connection answers.
func (g *rig) live(conn *routertest.Conn) {
	g.Helper()
	assert.Equal(g, Echoed{1}, routertest.Call[Echoed](conn, Echo{1}))
}

// check proves that nothing but the faulty message was harmed: the other connection works,
// and no lock, no count and no goroutine is kept.
func (g *rig) check(connLives bool) {
	g.Helper()
	g.live(g.other)
	for c := range g.router.Conns() {
		if c.Identity().UserID == "other" {
			require.NoError(g, c.Subscribe("proof"))
			require.NoError(g, g.router.Publish("proof", Nothing{}))
			routertest.Receive[Nothing](g.other)
			c.Unsubscribe("proof")
		}
	}
	if connLives {
		g.live(g.conn)
		g.conn.Close()
		synctest.Wait()
	}
	g.dial() // its user may have only one connection
	ctx, cancel := context.WithTimeout(g.Context(), time.Minute)
	defer cancel()
	require.NoError(g, g.router.Shutdown(ctx))
	assert.Empty(g, slices.Collect(g.router.Conns()))
}

// A boundary is a place where the router calls application code.
type boundary struct {
	prepare func(*rig)      // sets options
	setUp   func(*rig)      // registers
	provoke func(*rig)      // if nil, a Faulty is sent as a call
	want    errors.Code     // of its answer
	reason  string          // of EventPanicked; none if empty
	ends    bool            // the connection
	exits   bool            // it may call runtime.Goexit, too
	onExit  func(*rig) bool // provokes in place of provoke, and reports whether the connection lives
}

func TestGuard_EveryBoundaryHasCase(t *testing.T) {
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
				names = append(names, functionsTaken(decl)...)
			case *ast.GenDecl:
				for _, spec := range decl.Specs {
					if spec, ok := spec.(*ast.TypeSpec); ok && spec.Name.IsExported() {
						names = append(names, codeOf(spec)...)
					}
				}
			}
		}
	}
	return names
}

func functionsTaken(decl *ast.FuncDecl) (names []string) {
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

func codeOf(spec *ast.TypeSpec) (names []string) {
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

func TestGuard_BoundariesContainFaults(t *testing.T) {
	for name, b := range boundaries() {
		for fault, f := range faults() {
			if fault == exit && !b.exits && b.onExit == nil || b.provoke == nil && b.want == "" {
				continue
			}
			bubble(t, name+"/"+fault, func(t *testing.T) { b.test(&rig{T: t, fault: f}, fault == exit) })
		}
	}
}

func (b boundary) test(g *rig, exits bool) {
	if b.prepare != nil {
		b.prepare(g)
	}
	g.start(b.setUp)
	lives := !b.ends
	switch {
	case exits && b.onExit != nil:
		lives = b.onExit(g)
	case b.provoke != nil:
		b.provoke(g)
	default:
		g.conn = g.dial()
		assert.Equal(g, b.want, g.call(g.conn).Code)
	}
	synctest.Wait()
	if !exits && b.reason != "" {
		assert.Contains(g, g.panics.all(), b.reason)
	}
	if !exits && b.reason == "" {
		assert.Empty(g, g.panics.all())
	}
	if lives && g.conn == nil {
		g.conn = g.dial()
	}
	g.check(lives)
}

func TestGuard_BrokerThatCannotJoinFailsAtStartUp(t *testing.T) {
	assert.PanicsWithValue(t, "fault", func() {
		router.New(&router.Options{Broker: &faultyBroker{rig: &rig{fault: func() { panic("fault") }}, at: "Join"}})
	})
	assert.PanicsWithValue(t, "router: Broker.Connect has returned nil; it must return a Session", func() {
		router.New(&router.Options{Broker: &faultyBroker{rig: &rig{}, at: "nil"}})
	})
}

// TestGuard_LoggerMayCallRouter covers panics that come under a topic's lock.
func TestGuard_LoggerMayCallRouter(t *testing.T) {
	for _, at := range []string{"Observe", "Subscribe", "Publish"} {
		bubble(t, at, func(t *testing.T) {
			g := &rig{T: t, fault: func() { panic("fault") }}
			g.opts.Logger = slog.New(&hookedHandler{handle: func(rec slog.Record) {
				if rec.Message == "hook panicked" && len(g.failures.all()) == 0 {
					g.failures.add(rec.Message)
					_ = g.router.Publish("room", Nothing{})
				}
			}})
			broker := &faultyBroker{rig: g, at: at}
			g.opts.Broker = broker
			g.opts.SlowConsumer = router.DropOldest
			g.opts.Limits.QueueMessages = 4
			g.start(func(g *rig) {
				g.router.Observe(func(e router.Event) {
					if at == "Observe" && e.Kind == router.EventDropped {
						g.fault()
					}
				})
			})
			g.conn = g.dial()
			synctest.Wait()
			for c := range g.router.Conns() {
				require.NoError(t, c.Join("room", ""))
			}
			g.conn.Hold()
			for range 20 {
				require.NoError(t, g.router.Publish("room", Nothing{}))
			}
			synctest.Wait()
			broker.set("")
			assert.NotEmpty(t, g.failures.all())
			g.conn.Resume()
			synctest.Wait()
			for _, c := range []*routertest.Conn{g.conn, g.other} {
				for c.Pending() > 0 {
					c.Next()
				}
			}
			g.check(true)
		})
	}
}

// TestGuard_LogsOfObserverAreBounded proves that an observer that panics all the time does
// not fill the memory while the Logger is slow.
func TestGuard_LogsOfObserverAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logged := 0
		slow := make(chan struct{})
		g := &rig{T: t}
		g.opts.Logger = slog.New(&hookedHandler{handle: func(rec slog.Record) {
			if rec.Message == "hook panicked" {
				<-slow
				logged++
			}
		}})
		g.start(func(g *rig) { g.router.Observe(func(router.Event) { panic("fault") }) })
		for range 1000 {
			g.live(g.other)
		}
		synctest.Wait()
		close(slow)
		synctest.Wait()
		assert.Equal(t, 64, logged)
	})
}
