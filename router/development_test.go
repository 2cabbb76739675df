package router_test

import (
	"cmp"
	"context"
	"encoding/json"
	"iter"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// A logRecord is a line of the log.
type logRecord struct{ Level, Msg, Origin, Topic, Type, Request, Limit, Error, Remedy string }

// developing returns options with a log, and a function that returns its lines at level WARN or above.
func developing(opts router.Options) (*router.Options, func() []logRecord) {
	var log lockedBuffer
	opts.Development = true
	opts.Logger = slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
	return &opts, func() (records []logRecord) {
		for line := range strings.Lines(log.String()) {
			var record logRecord
			if err := json.Unmarshal([]byte(line), &record); err != nil {
				panic(err)
			}
			records = append(records, record)
		}
		return records
	}
}

func TestDevelopment_ExplainsRefusedHandshakesOnce(t *testing.T) {
	for name, tt := range map[string]struct {
		opts    router.Options
		request []routertest.Option
		want    logRecord
	}{
		"a page of another server": {router.Options{}, []routertest.Option{routertest.Header("Origin", "http://localhost:5173")}, logRecord{
			Msg: "handshake refused: the page is of another origin", Origin: "http://localhost:5173", Remedy: `Options.Origins must contain "http://localhost:5173"`,
		}},
		"a page from a file": {router.Options{}, []routertest.Option{routertest.Header("Origin", "null")}, logRecord{
			Msg: "handshake refused: the page is of another origin", Origin: "null", Remedy: "load it from a server, not from a file",
		}},
		"no credentials": {router.Options{Authenticate: func(*http.Request) (router.Identity, error) {
			return router.Identity{}, &errors.Error{Code: errors.Unauthenticated, Err: errors.New("no cookie")}
		}}, nil, logRecord{
			Msg: "handshake refused: Options.Authenticate returned an error", Error: "UNAUTHENTICATED: no cookie", Remedy: "router.Token finds a token",
		}},
		"a limit": {router.Options{Limits: router.Limits{ConnsPerIP: 1}}, nil, logRecord{
			Msg: "handshake refused: a limit is exceeded", Limit: "router.Limits.ConnsPerIP", Remedy: "Options.TrustedProxies",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			opts, records := developing(tt.opts)
			r := router.New(opts)
			if tt.want.Limit != "" {
				routertest.Dial(t, r)
			}
			for range 3 {
				routertest.Refused(t, r, tt.request...)
			}
			checkHint(t, tt.want, records())
		})
	}
}

// checkHint expects one line, whose remedy contains that of want.
func checkHint(t *testing.T, want logRecord, got []logRecord) {
	t.Helper()
	if !assert.Len(t, got, 1) {
		return
	}
	assert.Contains(t, got[0].Remedy, want.Remedy)
	want.Level, want.Remedy = cmp.Or(want.Level, "WARN"), got[0].Remedy
	assert.Equal(t, want, got[0])
}

func TestDevelopment_ExplainsResponseWriterThatCannotBeHijacked(t *testing.T) {
	opts, records := developing(router.Options{OnError: func(router.ErrorReport) {}})
	req := httptest.NewRequest(http.MethodGet, "/", nil)
	for key, value := range map[string]string{
		"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
	} {
		req.Header.Set(key, value)
	}
	router.New(opts).ServeHTTP(httptest.NewRecorder(), req)
	checkHint(t, logRecord{
		Msg: "handshake refused: the connection cannot be taken over", Request: "GET HTTP/1.1", Remedy: "middleware around the router must pass on http.Hijacker",
	}, records())
}

func TestDevelopment_ExplainsSubscriptionsThatCannotSucceed(t *testing.T) {
	opts, records := developing(router.Options{})
	r := router.New(opts)
	router.Topic(r, "room/{id}", nil)
	router.Topic(r, "news", &router.TopicOptions{Authorize: permit})
	conn := routertest.Dial(t, r)
	routertest.Subscribe(conn, "news") // asks for the presence, and has not greeted
	for _, topic := range []string{"room/a", "room/b", "rooms/a", "rooms/a"} {
		_ = routertest.SubscribeError(conn, topic)
	}
	got := records()
	require.Len(t, got, 2)
	assert.Contains(t, got[0].Remedy, "development_test.go:")
	checkHint(t, logRecord{
		Msg: "subscription refused: the pattern has no Authorize", Topic: "room/{id}", Remedy: "set TopicOptions.Authorize of the pattern registered at ",
	}, got[:1])
	checkHint(t, logRecord{
		Msg: "subscription refused: no pattern matches the topic", Topic: "rooms/a", Remedy: `router.Topic(r, "rooms/a", &router.TopicOptions{Authorize: …})`,
	}, got[1:])
}

// TestDevelopment_ReportsMessagesWithoutDeclaration sends notes in every way that there is.
func TestDevelopment_ReportsMessagesWithoutDeclaration(t *testing.T) {
	for name, send := range map[string]func(*router.Router, *router.Conn) error{
		"Publish":        func(r *router.Router, _ *router.Conn) error { return r.Publish("any", note{}) },
		"Publish, Local": func(r *router.Router, _ *router.Conn) error { return r.Publish("any", note{}, router.Local()) },
		"stored": func(r *router.Router, _ *router.Conn) error {
			err := r.Publish("kept/a", note{}, router.Stored(context.Background(), nil))
			return err
		},
		"Send":       func(_ *router.Router, c *router.Conn) error { return c.Send(note{}) },
		"SendWait":   func(_ *router.Router, c *router.Conn) error { return c.SendWait(context.Background(), note{}) },
		"SendToUser": func(r *router.Router, _ *router.Conn) error { _, err := r.SendToUser("", "ann", note{}); return err },
	} {
		for _, declared := range []bool{false, true} {
			runSynctest(t, name, func(t *testing.T) {
				opts, records := developing(router.Options{})
				r := router.New(opts)
				router.Topic(r, "kept/{id}", &router.TopicOptions{History: router.History{Messages: 1}})
				if declared {
					router.Topic(r, "declared", &router.TopicOptions{Messages: []router.Message{note{}}})
				}
				routertest.Dial(t, r)
				for range 2 {
					require.NoError(t, send(r, collect(r)[0]))
				}
				if declared {
					assert.Empty(t, records())
					return
				}
				checkHint(t, logRecord{Msg: "message sent that is not declared", Type: "NOTE", Remedy: "router.DeclareMessage[router_test.note](r)"}, records())
			})
		}
	}
}

// TestDevelopment_ReportsRepliesWithoutDeclaration has a stream, a middleware and progress.
func TestDevelopment_ReportsRepliesWithoutDeclaration(t *testing.T) {
	for name, tt := range map[string]struct {
		register func(r *router.Router, declared bool)
		want     logRecord
	}{
		"a stream": {func(r *router.Router, declared bool) {
			route := router.Stream(r, func(ctx *router.Context, _ note) iter.Seq2[string, error] {
				return func(func(string, error) bool) { ctx.SetReply(Blob{}) }
			})
			if declared {
				route.Doc(router.RouteDoc{Reply: Blob{}})
			}
		}, logRecord{Msg: "reply sent that is not declared", Type: "NOTE", Remedy: "set RouteDoc.Reply of the stream to router_test.Blob{}"}},
		"another type": {func(r *router.Router, declared bool) {
			router.RPC(r, handleNote).Use(func(next router.Handler) router.Handler {
				return func(ctx *router.Context) error {
					if declared {
						return next(ctx)
					}
					ctx.SetReply(Blob{})
					return nil
				}
			})
		}, logRecord{Msg: "reply sent that differs from the declared one", Type: "NOTE", Remedy: "the contract says router_test.note, the reply is a router_test.Blob"}},
		"progress": {func(r *router.Router, declared bool) {
			route := router.RPC(r, func(ctx *router.Context, m note) (note, error) { return m, ctx.Progress(1) })
			if declared {
				route.Doc(router.RouteDoc{Progress: 0})
			}
		}, logRecord{Msg: "progress sent that is not declared", Type: "NOTE", Remedy: "set RouteDoc.Progress of the route to a int"}},
	} {
		for _, declared := range []bool{false, true} {
			runSynctest(t, name, func(t *testing.T) {
				opts, records := developing(router.Options{})
				r := router.New(opts)
				tt.register(r, declared)
				conn := routertest.Dial(t, r)
				for range 2 {
					conn.SendText(`{"type":"NOTE","meta":{"correlationId":"1"},"payload":{"text":"","do":""}}`)
					synctest.Wait()
				}
				if declared {
					assert.Empty(t, records())
					return
				}
				checkHint(t, tt.want, records())
			})
		}
	}
}

// seats are the details of ROOM_FULL.
type seats struct {
	Seats int `json:"seats"`
}

// TestDevelopment_ReportsErrorsThatAreNotDeclared has calls, events and a middleware.
func TestDevelopment_ReportsErrorsThatAreNotDeclared(t *testing.T) {
	declares := router.RouteDoc{Errors: []errors.Code{"LOCKED"}, ErrorDetails: map[errors.Code]any{"ROOM_FULL": seats{}}}
	for name, tt := range map[string]struct { // more are in internal/envelope
		err    error
		doc    router.RouteDoc
		remedy string // "" if there is no line
	}{
		"declared":         {&errors.Error{Code: "ROOM_FULL", Details: seats{0}}, declares, ""},
		"declares nothing": {errors.Errorf("FOO", "no"), router.RouteDoc{}, ""},
		"other code":       {errors.Errorf("FOO", "no"), declares, "the code FOO is not declared; RouteDoc.Errors and RouteDoc.ErrorDetails"},
		"other details":    {&errors.Error{Code: "ROOM_FULL", Details: map[string]any{"seat": 1}}, declares, "the details of ROOM_FULL are not those of the declared router_test.seats: seat is not a known field"},
	} {
		for _, from := range []string{"call", "event", "middleware"} {
			runSynctest(t, name+"/"+from, func(t *testing.T) {
				opts, records := developing(router.Options{OnError: func(router.ErrorReport) {}})
				r := router.New(opts)
				var route *router.Route
				switch from {
				case "call":
					route = router.RPC(r, func(*router.Context, note) (note, error) { return note{}, tt.err })
				case "event":
					route = router.On(r, func(*router.Context, note) error { return tt.err })
				default:
					route = router.RPC(r, handleNote).Use(func(router.Handler) router.Handler {
						return func(*router.Context) error { return tt.err }
					})
				}
				route.Doc(tt.doc)
				conn := routertest.Dial(t, http.HandlerFunc(r.ServeHTTP))
				for range 2 {
					conn.SendText(`{"type":"NOTE","payload":{"text":"","do":""}}`)
					synctest.Wait()
				}
				if tt.remedy == "" {
					assert.Empty(t, records())
					return
				}
				checkHint(t, logRecord{Level: "ERROR", Msg: "error answered that differs from the declared ones", Type: "NOTE", Remedy: tt.remedy}, records())
			})
		}
	}
}

func TestDevelopment_ReportsCallsWithoutDeclaration(t *testing.T) {
	for _, declared := range []bool{false, true} {
		opts, records := developing(router.Options{})
		r := router.New(opts)
		if declared {
			router.DeclareCall[note, Blob](r)
		}
		routertest.Dial(t, r)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := router.Call[Blob](ctx, collect(r)[0], note{})
		require.ErrorIs(t, err, context.Canceled)
		if declared {
			assert.Empty(t, records())
			continue
		}
		checkHint(t, logRecord{Msg: "client called with a message that is not declared", Type: "NOTE", Remedy: "router.DeclareCall[router_test.note, router_test.Blob](r)"}, records())
	}
}

// lockedToThread reports whether the goroutine is locked to an OS thread.
func lockedToThread() bool {
	stack := make([]byte, 200)
	head, _, _ := strings.Cut(string(stack[:runtime.Stack(stack, false)]), "\n")
	return strings.Contains(head, "locked to thread")
}

// TestDevelopment_ThreadsThatHandlersLockRunNoOtherMessage has handlers on the goroutines of event
// loops, of calls, and of their own.
func TestDevelopment_ThreadsThatHandlersLockRunNoOtherMessage(t *testing.T) {
	for name, register := range map[string]func(r *router.Router, handle func()){
		"event": func(r *router.Router, handle func()) {
			router.On(r, func(ctx *router.Context, _ note) error { handle(); return ctx.Send(Blob{}) })
		},
		"call": func(r *router.Router, handle func()) {
			router.RPC(r, func(*router.Context, note) (Blob, error) { handle(); return Blob{}, nil })
		},
		"own goroutine": func(r *router.Router, handle func()) {
			router.On(r, func(ctx *router.Context, _ note) error { handle(); return ctx.Send(Blob{}) }).OwnGoroutine()
		},
	} {
		t.Run(name, func(t *testing.T) {
			var locked atomic.Int32
			opts, records := developing(router.Options{})
			r := router.New(opts)
			router.DeclareMessage[Blob](r)
			register(r, func() {
				if lockedToThread() {
					locked.Add(1)
				}
				runtime.LockOSThread()
			})
			server := newTestServer(t, r)
			conn, _, err := websocket.Dial(t.Context(), server.URL, nil)
			require.NoError(t, err)
			defer func() { _ = conn.CloseNow() }()
			for range 50 {
				require.NoError(t, conn.Write(t.Context(), websocket.MessageText, []byte(`{"type":"NOTE","meta":{"correlationId":"1"},"payload":{"text":"","do":""}}`)))
				_, answer, err := conn.Read(t.Context())
				require.NoError(t, err)
				require.Contains(t, string(answer), `"type":"BLOB"`)
			}
			assert.Zero(t, locked.Load())
			checkHint(t, logRecord{Msg: "handler left its goroutine locked to an OS thread", Type: "NOTE", Remedy: "call runtime.UnlockOSThread"}, records())
		})
	}
}

// TestDevelopment_IsOffByDefault does all that is reported otherwise.
func TestDevelopment_IsOffByDefault(t *testing.T) {
	opts, records := developing(router.Options{})
	opts.Development = false
	r := router.New(opts)
	conn := routertest.Dial(t, r)
	routertest.Refused(t, r, routertest.Header("Origin", "http://localhost:5173"))
	_ = routertest.SubscribeError(conn, "any")
	require.NoError(t, r.Publish("any", note{}))
	assert.Empty(t, records())
}

// TestLogger_SaysWhatFailed has errors that belong to no message.
func TestLogger_SaysWhatFailed(t *testing.T) {
	broken := errors.New("broken")
	for want, opts := range map[string]router.Options{
		"handshake failed":  {Authenticate: func(*http.Request) (router.Identity, error) { return router.Identity{}, broken }},
		"connection failed": {OnOpen: func(context.Context, *router.Conn) error { return broken }},
	} {
		runSynctest(t, want, func(t *testing.T) {
			var log lockedBuffer
			opts.Logger = slog.New(slog.NewTextHandler(&log, nil))
			r := router.New(&opts)
			if opts.OnOpen == nil {
				routertest.Refused(t, r)
			} else {
				routertest.Dial(t, r).Closed()
			}
			synctest.Wait()
			assert.Contains(t, log.String(), `msg="`+want+`" error=broken`)
			assert.NotContains(t, log.String(), "type=")
		})
	}
}
