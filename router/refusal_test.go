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

// refusingRouter returns a router on which a message can be refused at every stage.
func refusingRouter(opts router.Options) *router.Router {
	opts.Authenticate = func(req *http.Request) (router.Identity, error) {
		return router.Identity{TenantID: "acme", UserID: router.Token(req)}, nil
	}
	opts.Limits = router.Limits{MaxMessageBytes: maxMessageBytes, Concurrency: 1}
	r := router.New(discardLogs(opts))
	router.RPC(r, func(_ *router.Context, m Echo) (Echoed, error) {
		if m.N == -3 {
			return Echoed{}, &errors.Error{Code: errors.NotFound, Message: "no such room", Err: http.ErrNoCookie}
		}
		return Echoed(m), nil
	})
	router.On(r, func(*router.Context, Say) error { return nil }).UseIngress(func(context.Context, router.IngressContext) error {
		return &router.LimitExceeded{Kind: router.LimitRate, Observed: 1, Limit: 5, Policy: "say", RetryAfter: 2 * time.Second}
	})
	return r
}

// TestOnRefused_ReportsMessages has a refusal by a limit and one by a handler. The transcripts have those of all stages.
func TestOnRefused_ReportsMessages(t *testing.T) {
	limit := &router.LimitExceeded{Kind: router.LimitRate, Observed: 1, Limit: 5, Policy: "say", RetryAfter: 2 * time.Second}
	for text, want := range map[string]router.Refusal{
		`{"type":"SAY"}`: {Type: "SAY", Code: errors.ResourceExhausted, Reason: "ingress", Err: limit, RetryAfter: limit.RetryAfter},
		`{"type":"ECHO","payload":{"n":-3}}`: {
			Type: "ECHO", Code: errors.NotFound, Reason: "handler", Err: &errors.Error{Code: errors.NotFound, Message: "no such room", Err: http.ErrNoCookie},
		},
	} {
		runSynctest(t, want.Type, func(t *testing.T) {
			var refusals recorder[router.Refusal]
			r := refusingRouter(router.Options{OnRefused: refusals.add})
			conn := routertest.Dial(t, r, routertest.Token("ann"), routertest.RemoteAddr("192.0.2.1:1"))
			synctest.Wait()
			conn.SendText(text)
			synctest.Wait()
			want.Conn, want.Identity, want.IP = onlyConn(t, r), router.Identity{TenantID: "acme", UserID: "ann"}, netip.MustParseAddr("192.0.2.1")
			limit.Conn, limit.Type, limit.Messages = want.Conn, "SAY", 1
			assert.Equal(t, []router.Refusal{want}, refusals.all())
		})
	}
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
			want:   router.Refusal{Identity: ann, Code: errors.ResourceExhausted, Reason: "limit", RetryAfter: 5 * time.Second}, err: "connections limit exceeded: 2 of 1, set by router.Limits.ConnsPerUser",
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
				var reasons recorder[string]
				r.Observe(func(e observe.Event) {
					if e.Kind == observe.Refused {
						reasons.add(e.Reason + " " + string(e.Code))
					}
				})
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
				assert.Equal(t, []string{tt.want.Reason + " " + string(tt.want.Code)}, reasons.all())
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
