package router_test

import (
	"context"
	"fmt"
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
	"github.com/penstock-go/penstock/router/observe"
	"github.com/penstock-go/penstock/router/routertest"
)

// blockingEcho is a call whose handler blocks until its context ends.
const blockingEcho = `{"type":"ECHO","meta":{"correlationId":"first"},"payload":{"n":-1}}`

// refusingRouter returns a router on which a message can be refused at every stage.
func refusingRouter(opts router.Options) *router.Router {
	opts.Authenticate = func(req *http.Request) (router.Identity, error) {
		return router.Identity{TenantID: "acme", UserID: router.Token(req)}, nil
	}
	opts.Limits = router.Limits{MaxMessageBytes: maxMessageBytes, Concurrency: 1}
	r := router.New(discardLogs(opts))
	router.RPC(r, func(ctx *router.Context, m Echo) (Echoed, error) {
		switch m.N {
		case -1:
			<-ctx.Done()
			return Echoed{}, ctx.Err()
		case -2:
			panic("broken")
		case -3:
			return Echoed{}, &errors.Error{Code: errors.NotFound, Message: "no such room", Err: http.ErrNoCookie}
		case -4:
			return Echoed{}, context.Canceled
		case -5:
			time.Sleep(31 * time.Second) // past the deadline
		}
		return Echoed(m), nil
	})
	router.On(r, func(*router.Context, Say) error { return nil }).UseIngress(func(context.Context, router.IngressContext) error {
		return &router.LimitExceeded{Kind: router.LimitRate, Observed: 1, Limit: 5, Policy: "say", RetryAfter: 2 * time.Second}
	})
	router.On(r, func(*router.Context, Nothing) error { return nil }).UseIngress(func(context.Context, router.IngressContext) error {
		return errors.Errorf(errors.PermissionDenied, "guests are read-only")
	})
	return r
}

func TestOnRefused_ReportsMessageOfEveryStage(t *testing.T) {
	call := func(payload string) string {
		return `{"type":"ECHO","meta":{"correlationId":"c"},"payload":` + payload + `}`
	}
	type want struct {
		typ        string
		code       errors.Code
		reason     string
		err        string
		retryAfter time.Duration
	}
	for _, tt := range []struct {
		name  string
		sent  []string
		wait  time.Duration
		drain bool
		want  want
	}{
		{name: "size", sent: []string{sized(maxMessageBytes + 1)}, want: want{"ECHO", errors.ResourceExhausted, "size", "payload limit exceeded: 1001 of 1000", errors.Never}},
		{name: "parse", sent: []string{`{"type":`}, want: want{"", errors.InvalidArgument, "parse", "", 0}},
		{name: "ingress, limit", sent: []string{`{"type":"SAY"}`}, want: want{"SAY", errors.ResourceExhausted, "ingress", "rate limit exceeded: 1 of 5", 2 * time.Second}},
		{name: "ingress", sent: []string{`{"type":"NOTHING"}`}, want: want{"NOTHING", errors.PermissionDenied, "ingress", "", 0}},
		{name: "route", sent: []string{`{"type":"UNKNOWN"}`}, want: want{"", errors.Unimplemented, "route", "", 0}},
		{name: "concurrency", sent: []string{blockingEcho, call(`{"n":1}`)}, want: want{"ECHO", errors.ResourceExhausted, "concurrency", "in_flight limit exceeded: 2 of 1", 0}},
		{name: "duplicate ID", sent: []string{blockingEcho, blockingEcho}, want: want{"ECHO", errors.InvalidArgument, "concurrency", "", 0}},
		{name: "acknowledgment without ID", sent: []string{`{"type":"ECHO","meta":{"ack":true},"payload":{"n":1}}`}, want: want{"ECHO", errors.InvalidArgument, "parse", "", 0}},
		{name: "credit without a number", sent: []string{`{"type":"$ws:credit","meta":{"correlationId":"c"}}`}, want: want{"$ws:credit", errors.InvalidArgument, "parse", "", 0}},
		{name: "decode", sent: []string{call(`{"n":"one"}`)}, want: want{"ECHO", errors.InvalidArgument, "decode", "", 0}},
		{name: "handler", sent: []string{call(`{"n":-3}`)}, want: want{"ECHO", errors.NotFound, "handler", "NOT_FOUND: no such room: http: named cookie not present", 0}},
		{name: "handler, panic", sent: []string{call(`{"n":-2}`)}, want: want{"ECHO", errors.Internal, "handler", "panic: broken", 0}},
		{name: "deadline", sent: []string{call(`{"n":-5}`)}, wait: 40 * time.Second, want: want{"ECHO", errors.DeadlineExceeded, "deadline", "", 0}},
		{name: "draining", sent: []string{blockingEcho, call(`{"n":1}`)}, drain: true, want: want{"ECHO", errors.Unavailable, "draining", "", 0}},
	} {
		runSynctest(t, tt.name, func(t *testing.T) {
			var refusals recorder[router.Refusal]
			var limits recorder[router.LimitExceeded]
			r := refusingRouter(router.Options{OnRefused: refusals.add, OnLimitExceeded: limits.add})
			events := observeRefusals(r)
			conn := routertest.Dial(t, r, routertest.Token("ann"), routertest.RemoteAddr("192.0.2.1:1"))
			synctest.Wait()
			server := onlyConn(t, r)
			for i, text := range tt.sent {
				if i > 0 && tt.drain {
					go func() { _ = r.Shutdown(t.Context()) }()
					synctest.Wait()
				}
				conn.SendText(text)
				synctest.Wait()
			}
			time.Sleep(tt.wait)
			synctest.Wait()
			require.Len(t, refusals.all(), 1)
			got := refusals.all()[0]
			text := ""
			if got.Err != nil {
				text = got.Err.Error()
			}
			assert.Equal(t, tt.want, want{got.Type, got.Code, got.Reason, text, got.RetryAfter})
			assert.Same(t, server, got.Conn)
			assert.Equal(t, router.Identity{TenantID: "acme", UserID: "ann"}, got.Identity)
			assert.Equal(t, netip.MustParseAddr("192.0.2.1"), got.IP)
			assert.Zero(t, got.Unreported)
			event := observe.Event{Kind: observe.Refused, Type: got.Type, Code: got.Code, Reason: got.Reason, Count: 1}
			if limit, ok := errors.AsType[*router.LimitExceeded](got.Err); ok {
				assert.Same(t, server, limit.Conn)
				assert.Equal(t, tt.want.typ, limit.Type)
				assert.Equal(t, []router.LimitExceeded{*limit}, limits.all())
				event.Limit = string(limit.Kind)
			} else {
				assert.Empty(t, limits.all())
			}
			assert.Equal(t, []observe.Event{event}, events.all())
		})
	}
}

// observeRefusals returns the events of refusals.
func observeRefusals(r *router.Router) *recorder[observe.Event] {
	events := new(recorder[observe.Event])
	r.Observe(func(e observe.Event) {
		if e.Kind == observe.Refused {
			events.add(e)
		}
	})
	return events
}

func TestOnRefused_ReportsWhateverTheLimitAction(t *testing.T) {
	for _, action := range []router.LimitAction{router.ActionSend, router.ActionClose, router.ActionCustom} {
		runSynctest(t, fmt.Sprint(action), func(t *testing.T) {
			var refusals recorder[router.Refusal]
			r := refusingRouter(router.Options{OnRefused: refusals.add, LimitAction: action})
			conn := routertest.Dial(t, r, routertest.Token("ann"))
			conn.Send(Say{Room: "go", Text: "hi"})
			synctest.Wait()
			require.Len(t, refusals.all(), 1)
			limit, ok := errors.AsType[*router.LimitExceeded](refusals.all()[0].Err)
			require.True(t, ok)
			assert.Equal(t, "say", limit.Policy)
		})
	}
}

func TestOnRefused_SkipsAnsweredAndCanceledMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := refusingRouter(router.Options{OnRefused: func(refusal router.Refusal) { t.Errorf("reported: %+v", refusal) }})
		events := observeRefusals(r)
		conn := routertest.Dial(t, r, routertest.Token("ann"))
		routertest.Call[Echoed](conn, Echo{1})
		synctest.Wait()
		assert.Equal(t, errors.Canceled, routertest.CallError(conn, Echo{-4}).Code)
		synctest.Wait()
		conn.SendText(blockingEcho)
		synctest.Wait()
		conn.Abort() // the handler returns when the connection is closed
		synctest.Wait()
		assert.Empty(t, events.all())
	})
}

func TestOnRefused_ReportsRequestsAndConnections(t *testing.T) {
	ann := router.Identity{UserID: "ann"}
	for _, tt := range []struct {
		name   string
		opts   router.Options
		dial   []routertest.Option
		before func(*testing.T, *router.Router)
		want   router.Refusal
		err    string
	}{
		{name: "origin", dial: []routertest.Option{routertest.Header("Origin", "https://other.example")}, want: router.Refusal{Code: errors.PermissionDenied, Reason: "origin"}},
		{name: "shutdown", before: func(t *testing.T, r *router.Router) { require.NoError(t, r.Shutdown(t.Context())) }, want: router.Refusal{Code: errors.Unavailable, Reason: "draining"}},
		{
			name: "connections of a user", opts: router.Options{Limits: router.Limits{ConnsPerUser: 1}},
			before: func(t *testing.T, r *router.Router) { routertest.Dial(t, r, routertest.Token("ann")) },
			dial:   []routertest.Option{routertest.Token("ann")},
			want:   router.Refusal{Identity: ann, Code: errors.ResourceExhausted, Reason: "limit", RetryAfter: 5 * time.Second}, err: "connections limit exceeded: 2 of 1",
		},
		{
			name: "expected", dial: []routertest.Option{routertest.Token("expired")},
			want: router.Refusal{Identity: router.Identity{UserID: "claimed"}, Code: errors.Unauthenticated, Reason: "authentication"}, err: "UNAUTHENTICATED: log in first: http: named cookie not present",
		},
		{name: "unexpected", dial: []routertest.Option{routertest.Token("down")}, want: router.Refusal{Code: errors.Internal, Reason: "authentication"}, err: "http: Server closed"},
		{name: "panic of ConnContext", dial: []routertest.Option{routertest.Token("broken")}, want: router.Refusal{Identity: router.Identity{UserID: "broken"}, Code: errors.Internal, Reason: "conn_context"}, err: "panic: no tracer"},
		{name: "OnOpen", dial: []routertest.Option{routertest.Token("banned")}, want: router.Refusal{Identity: router.Identity{UserID: "banned"}, Code: errors.PermissionDenied, Reason: "on_open"}},
		{name: "OnOpen, close error", dial: []routertest.Option{routertest.Token("late")}, want: router.Refusal{Identity: router.Identity{UserID: "late"}, Code: errors.PermissionDenied, Reason: "on_open"}, err: `closed with 4001 "full"`},
	} {
		for _, visible := range []bool{false, true} {
			runSynctest(t, fmt.Sprintf("%s, visible %v", tt.name, visible), func(t *testing.T) {
				var refusals recorder[router.Refusal]
				opts := tt.opts
				opts.RefuseAfterUpgrade, opts.OnRefused = visible, refusals.add
				opts.Authenticate = func(req *http.Request) (router.Identity, error) {
					switch token := router.Token(req); token {
					case "expired":
						return router.Identity{UserID: "claimed"}, &errors.Error{Code: errors.Unauthenticated, Message: "log in first", Err: http.ErrNoCookie}
					case "down":
						return router.Identity{}, http.ErrServerClosed
					default:
						return router.Identity{UserID: token}, nil
					}
				}
				opts.ConnContext = func(req *http.Request) context.Context {
					if router.Token(req) == "broken" {
						panic("no tracer")
					}
					return req.Context()
				}
				opts.OnOpen = func(_ context.Context, c *router.Conn) error {
					switch c.Identity().UserID {
					case "banned":
						return errors.Errorf(errors.PermissionDenied, "banned")
					case "late":
						return &router.CloseError{Code: 4001, Reason: "full"}
					}
					return nil
				}
				r := router.New(discardLogs(opts))
				if tt.before != nil {
					tt.before(t, r)
				}
				dial := append([]routertest.Option{routertest.RemoteAddr("[2001:db8::1]:1")}, tt.dial...)
				if visible && tt.want.Reason != "draining" || tt.want.Reason == "on_open" {
					routertest.Dial(t, r, dial...).Closed()
				} else {
					routertest.Refused(t, r, dial...)
				}
				synctest.Wait()
				require.Len(t, refusals.all(), 1)
				got := refusals.all()[0]
				assert.Equal(t, tt.want.Reason == "on_open", got.Conn != nil)
				text := ""
				if got.Err != nil {
					text = got.Err.Error()
				}
				assert.Equal(t, tt.err, text)
				got.Conn, got.Err = nil, nil
				tt.want.IP = netip.MustParseAddr("2001:db8::1")
				assert.Equal(t, tt.want, got)
			})
		}
	}
}

func TestOnRefused_ReportsMalformedHandshakes(t *testing.T) {
	for _, req := range []*http.Request{
		httptest.NewRequest(http.MethodGet, "/", nil),
		httptest.NewRequest(http.MethodGet, "/", strings.NewReader("{}")),
	} {
		var refusals []router.Refusal
		r := router.New(discardLogs(router.Options{OnRefused: func(refusal router.Refusal) { refusals = append(refusals, refusal) }}))
		r.ServeHTTP(httptest.NewRecorder(), req)
		assert.Equal(t, []router.Refusal{{IP: netip.MustParseAddr("192.0.2.1"), Code: errors.InvalidArgument, Reason: "handshake"}}, refusals)
	}
}

// TestOnRefused_SamplesPerClientAndSecond counts reports in virtual time. Every refusal must be
// either reported or counted by a later report.
func TestOnRefused_SamplesPerClientAndSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var refusals recorder[router.Refusal]
		r := refusingRouter(router.Options{OnRefused: refusals.add})
		dial := func(user, addr string) *routertest.Conn {
			return routertest.Dial(t, r, routertest.Token(user), routertest.RemoteAddr(addr))
		}
		refuse := func(c *routertest.Conn, n int) {
			for range n {
				c.SendText(`{"type":"UNKNOWN"}`)
				synctest.Wait()
			}
		}
		reported := func() (counts []int64) {
			for _, refusal := range refusals.all() {
				counts = append(counts, refusal.Unreported)
			}
			return counts
		}
		ann, annToo := dial("ann", "192.0.2.1:1"), dial("ann", "192.0.2.2:1")
		bob := dial("bob", "192.0.2.1:2")
		guest, neighbor := dial("", "[2001:db8::1]:1"), dial("", "[2001:db8::2]:1")
		stranger := dial("", "[2001:db8:0:1::1]:1")
		refuse(ann, 3)
		refuse(annToo, 2) // the same user
		assert.Equal(t, []int64{0}, reported())
		refuse(bob, 1) // another user of the same address
		assert.Equal(t, []int64{0, 4}, reported())
		refuse(guest, 2)
		refuse(neighbor, 1) // the same network
		refuse(stranger, 1)
		assert.Equal(t, []int64{0, 4, 0, 2}, reported())
		time.Sleep(time.Second - 1)
		refuse(ann, 1)
		assert.Equal(t, []int64{0, 4, 0, 2}, reported(), "not yet a second later")
		time.Sleep(time.Nanosecond)
		refuse(ann, 1)
		assert.Equal(t, []int64{0, 4, 0, 2, 1}, reported())
		time.Sleep(500 * time.Millisecond)
		refuse(bob, 2)
		time.Sleep(500 * time.Millisecond)
		refuse(bob, 5)
		refuse(ann, 1)
		assert.Equal(t, []int64{0, 4, 0, 2, 1, 0, 6}, reported())
	})
}

func TestOnRefused_ConnectionsWithoutAddressAreSampledAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var refusals recorder[router.Refusal]
		r := refusingRouter(router.Options{OnRefused: refusals.add})
		for range 3 {
			conn := routertest.Dial(t, r, routertest.RemoteAddr("pipe"))
			for range 4 {
				conn.SendText(`{"type":"UNKNOWN"}`)
				synctest.Wait()
			}
		}
		require.Len(t, refusals.all(), 3)
		assert.EqualValues(t, 3, refusals.all()[2].Unreported)
		assert.False(t, refusals.all()[2].IP.IsValid())
	})
}

// TestOnRefused_HookMayBlockPanicAndExit checks that the answer arrives whatever the hook does, and
// that the connection continues.
func TestOnRefused_HookMayBlockPanicAndExit(t *testing.T) {
	var unblock chan struct{}
	for name, hook := range map[string]func(router.Refusal){
		"block": func(router.Refusal) { <-unblock },
		"panic": func(router.Refusal) { panic("broken") },
		"exit":  func(router.Refusal) { runtime.Goexit() },
		"call": func(refusal router.Refusal) {
			_ = refusal.Conn.Subscribe("refused")
			refusal.Conn.Set("refused", true)
		},
	} {
		for stage, text := range map[string]string{
			"parse": `{`, "route": `{"type":"UNKNOWN"}`, "decode": `{"type":"ECHO","payload":1}`, "handler": `{"type":"ECHO","payload":{"n":-3}}`,
			"size": sized(maxMessageBytes + 1), "ingress": `{"type":"SAY"}`,
		} {
			runSynctest(t, name+" at "+stage, func(t *testing.T) {
				unblock = make(chan struct{})
				r := refusingRouter(router.Options{OnRefused: hook})
				conn := routertest.Dial(t, r, routertest.Token("ann"))
				conn.SendText(text)
				assert.NotEmpty(t, routertest.ReceiveError(conn).Code, "before the hook returns")
				close(unblock)
				synctest.Wait()
				assert.Equal(t, Echoed{1}, routertest.Call[Echoed](conn, Echo{1}))
			})
		}
	}
}
