package router_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/codec/cbor"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// failingAuthenticate returns err for every token except "ok".
func failingAuthenticate(err error) func(*http.Request) (router.Identity, error) {
	return func(req *http.Request) (router.Identity, error) {
		if router.Token(req) == "ok" {
			return router.Identity{UserID: "ann"}, nil
		}
		return router.Identity{}, err
	}
}

// dialRefused connects over TCP and returns the close frame with which the server refuses the
// connection.
func dialRefused(t *testing.T, server *httptest.Server, opts *websocket.DialOptions) (*http.Response, websocket.CloseError) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	ws, resp, err := websocket.Dial(ctx, server.URL, opts)
	require.NoError(t, err, "the handshake is completed")
	defer func() { _ = ws.CloseNow() }()
	_, _, err = ws.Read(ctx)
	closed, ok := errors.AsType[websocket.CloseError](err)
	require.True(t, ok, "%v", err)
	return resp, closed
}

func TestRefuseAfterUpgrade_ClosesWithCodeAndReason(t *testing.T) {
	for _, tt := range []struct {
		name   string
		err    error
		code   router.StatusCode
		reason string
	}{
		{"unauthenticated", errors.Errorf(errors.Unauthenticated, "log in first"), router.StatusUnauthenticated, `{"code":"UNAUTHENTICATED","message":"log in first"}`},
		{"forbidden", errors.Errorf(errors.PermissionDenied, "banned"), router.StatusPermissionDenied, `{"code":"PERMISSION_DENIED","message":"banned"}`},
		{"limited", &router.LimitExceeded{Kind: router.LimitRate, Observed: 1, Limit: 5, RetryAfter: 1500 * time.Millisecond}, router.StatusResourceExhausted, `{"code":"RESOURCE_EXHAUSTED","retryAfterMs":1500,"message":"rate limit exceeded"}`},
		{"never admitted", &router.LimitExceeded{Kind: router.LimitRate, Observed: 9, Limit: 5, RetryAfter: errors.Never}, router.StatusResourceExhausted, `{"code":"RESOURCE_EXHAUSTED","retryAfterMs":null,"message":"the message costs more than the limit can ever allow"}`},
		{"unavailable", &errors.Error{Code: errors.Unavailable, Message: "no database", Err: errors.New("secret")}, router.StatusUnavailable, `{"code":"UNAVAILABLE","message":"no database"}`},
		{"invalid", errors.Errorf(errors.InvalidArgument, "no room"), 4400, `{"code":"INVALID_ARGUMENT","message":"no room"}`},
		{"unimplemented", errors.Errorf(errors.Unimplemented, "no such version"), 4501, `{"code":"UNIMPLEMENTED","message":"no such version"}`},
		{"without a code", errors.New("secret"), 4500, `{"code":"INTERNAL","message":"internal error"}`},
		{"long message", errors.Errorf(errors.Unauthenticated, "%s", strings.Repeat("é", 200)), router.StatusUnauthenticated, `{"code":"UNAUTHENTICATED","message":"` + strings.Repeat("é", 42) + `"}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := router.New(discardLogs(router.Options{
				RefuseAfterUpgrade: true,
				Authenticate:       failingAuthenticate(tt.err),
				OnOpen: func(_ context.Context, c *router.Conn) error {
					assert.Equal(t, "ann", c.Identity().UserID, "OnOpen was called for a refused connection")
					return nil
				},
				OnClose: func(c *router.Conn, _ router.CloseError) { assert.Equal(t, "ann", c.Identity().UserID) },
				Limits:  router.Limits{Conns: 1, ConnsPerIP: 1},
			}))
			server := httptest.NewServer(r)
			defer server.Close()
			for range 3 {
				resp, closed := dialRefused(t, server, &websocket.DialOptions{Subprotocols: []string{"bearer.wrong"}})
				assert.Equal(t, "bearer.wrong", resp.Header.Get("Sec-WebSocket-Protocol"), "browsers close a connection without it")
				assert.Equal(t, websocket.CloseError{Code: websocket.StatusCode(tt.code), Reason: tt.reason}, closed)
			}
			assert.Empty(t, collect(r))
			ws, _, err := websocket.Dial(t.Context(), server.URL+"?access_token=ok", nil)
			require.NoError(t, err, "refused connections hold no slot")
			require.NoError(t, ws.Close(websocket.StatusNormalClosure, ""))
		})
	}
}

func TestRefuseAfterUpgrade_SelectsTheSubprotocolOfACodec(t *testing.T) {
	server := newTestServer(t, router.New(discardLogs(router.Options{
		RefuseAfterUpgrade: true,
		Authenticate:       failingAuthenticate(errors.Errorf(errors.Unauthenticated, "log in first")),
		Codecs:             []router.Codec{cbor.New(nil)},
	})))
	resp, closed := dialRefused(t, server, &websocket.DialOptions{Subprotocols: []string{"bearer.wrong", cbor.Subprotocol}})
	assert.Equal(t, cbor.Subprotocol, resp.Header.Get("Sec-WebSocket-Protocol"), "as for an accepted connection")
	assert.EqualValues(t, router.StatusUnauthenticated, closed.Code)
	resp, _ = dialRefused(t, server, &websocket.DialOptions{Subprotocols: []string{cbor.Subprotocol}})
	assert.Equal(t, cbor.Subprotocol, resp.Header.Get("Sec-WebSocket-Protocol"), "browsers close a connection without it")
}

// TestRefuseAfterUpgrade_OtherRequestsGetStatus refuses what cannot be upgraded.
func TestRefuseAfterUpgrade_OtherRequestsGetStatus(t *testing.T) {
	r := router.New(discardLogs(router.Options{RefuseAfterUpgrade: true, Authenticate: failingAuthenticate(errors.Errorf(errors.Unauthenticated, "log in first"))}))
	server := httptest.NewServer(r)
	defer server.Close()
	resp, err := server.Client().Get(server.URL)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	assert.Equal(t, http.StatusUpgradeRequired, resp.StatusCode, "no handshake")
	resp = routertest.Refused(t, r, routertest.Header("Sec-WebSocket-Version", "8"))
	assert.Equal(t, http.StatusBadRequest, resp.StatusCode, "malformed handshake")
	req := httptest.NewRequest(http.MethodGet, "/", strings.NewReader("{}"))
	w := httptest.NewRecorder()
	r.ServeHTTP(w, req)
	assert.Equal(t, http.StatusBadRequest, w.Code, "body")

	w = httptest.NewRecorder() // cannot be hijacked
	r.ServeHTTP(w, handshakeRequest())
	assert.Equal(t, http.StatusUnauthorized, w.Code)
	assert.JSONEq(t, `{"code":"UNAUTHENTICATED","message":"log in first","retryable":false}`, w.Body.String())
}

// TestRefuseAfterUpgrade_FloodIsBounded opens more refused connections over TCP than may exist at
// the same time, by clients that never answer the close frame.
func TestRefuseAfterUpgrade_FloodIsBounded(t *testing.T) {
	const bound, extra = 1024, 76
	r := router.New(discardLogs(router.Options{
		RefuseAfterUpgrade: true,
		Authenticate:       failingAuthenticate(errors.Errorf(errors.Unauthenticated, "log in first")),
		Timeouts:           router.Timeouts{Pong: time.Minute},
	}))
	server := httptest.NewServer(r)
	defer server.Close()
	before := runtime.NumGoroutine()
	statuses := map[string]int{}
	conns := make([]net.Conn, bound+extra)
	var mu sync.Mutex
	var dials sync.WaitGroup
	defer func() {
		for _, conn := range conns {
			_ = conn.Close()
		}
	}()
	began := time.Now()
	for worker := range 8 {
		dials.Go(func() {
			for i := worker; i < len(conns); i += 8 {
				status := handshakeStatus(t, server, &conns[i])
				mu.Lock()
				statuses[status]++
				mu.Unlock()
			}
		})
	}
	dials.Wait()
	assert.LessOrEqual(t, rejectedGoroutines(), bound)
	if time.Since(began) > 4*time.Second {
		t.Skip("the first connections may have been closed before the last handshake: the machine is too slow")
	}
	assert.Equal(t, map[string]int{"HTTP/1.1 101": bound, "HTTP/1.1 401": extra}, statuses)
	idle := extra // goroutines of net/http for connections that were answered with a status
	assert.LessOrEqual(t, runtime.NumGoroutine()-before, bound+idle+20, "one goroutine per refused connection")
	// The goroutine of the last handshake may not have started yet.
	assert.Eventually(t, func() bool { return rejectedGoroutines() == bound }, time.Minute, 10*time.Millisecond)
	for _, conn := range conns {
		_ = conn.Close()
	}
	require.Eventually(t, func() bool { return runtime.NumGoroutine()-before <= 10 }, time.Minute, 10*time.Millisecond)
	_, closed := dialRefused(t, server, nil)
	assert.EqualValues(t, router.StatusUnauthenticated, closed.Code, "later requests are upgraded again")
}

// rejectedGoroutines returns the number of goroutines that read refused connections.
func rejectedGoroutines() int {
	buf := make([]byte, 8<<20)
	buf = buf[:runtime.Stack(buf, true)]
	return strings.Count(string(buf), "wsconn.(*Refusals).awaitClosed(")
}

// handshakeStatus sends a handshake and returns the beginning of the answer.
func handshakeStatus(t *testing.T, server *httptest.Server, conn *net.Conn) string {
	var err error
	*conn, err = net.Dial("tcp", server.Listener.Addr().String())
	if !assert.NoError(t, err) {
		return "no connection"
	}
	_, err = io.WriteString(*conn, handshakeText)
	assert.NoError(t, err)
	status := make([]byte, len("HTTP/1.1 101"))
	_, err = io.ReadFull(*conn, status)
	assert.NoError(t, err)
	return string(status)
}

// handshakeRequest returns a valid opening handshake.
func handshakeRequest() *http.Request {
	req := httptest.NewRequest(http.MethodGet, "/", nil)
	for name, value := range map[string]string{
		"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
	} {
		req.Header.Set(name, value)
	}
	return req
}

// A hijackable ResponseWriter hands out the server's end of a pipe.
type hijackable struct {
	*httptest.ResponseRecorder

	conn net.Conn
}

func (h *hijackable) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return h.conn, bufio.NewReadWriter(bufio.NewReader(h.conn), bufio.NewWriter(h.conn)), nil
}

// TestRefuseAfterUpgrade_EndsAtCloseTimeout checks in virtual time that a refused connection lasts
// until Timeouts.Close and no longer, if the client does not answer the close frame.
func TestRefuseAfterUpgrade_EndsAtCloseTimeout(t *testing.T) {
	require.Eventually(t, func() bool { return rejectedGoroutines() == 0 }, time.Minute, time.Millisecond, "of earlier tests")
	message := []byte("\x81\xfe\x03\xe8\x00\x00\x00\x00" + strings.Repeat("x", 1000))
	for name, client := range map[string]func(net.Conn){
		"reads nothing": func(net.Conn) {},
		"only reads":    func(conn net.Conn) { _ = discard(conn) },
		"sends without end": func(conn net.Conn) {
			go func() { _ = discard(conn) }()
			for err := error(nil); err == nil; _, err = conn.Write(message) {
				time.Sleep(time.Millisecond)
			}
		},
	} {
		runSynctest(t, name, func(t *testing.T) {
			r := router.New(discardLogs(router.Options{
				RefuseAfterUpgrade: true,
				Authenticate:       failingAuthenticate(errors.Errorf(errors.Unauthenticated, "log in first")),
				Timeouts:           router.Timeouts{Pong: 3 * time.Second},
			}))
			conn, server := net.Pipe()
			go r.ServeHTTP(&hijackable{httptest.NewRecorder(), server}, handshakeRequest())
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			require.NoError(t, err)
			assert.Equal(t, http.StatusSwitchingProtocols, resp.StatusCode)
			go client(conn)
			synctest.Wait()
			require.NoError(t, r.Shutdown(t.Context()), "Shutdown does not wait for it")
			time.Sleep(3*time.Second - 1)
			assert.Equal(t, 1, rejectedGoroutines())
			time.Sleep(time.Nanosecond)
			synctest.Wait()
			assert.Zero(t, rejectedGoroutines())
			_ = conn.Close()
			time.Sleep(time.Second) // until the client has ended
		})
	}
}

func TestRefuseAfterUpgrade_AppliesToErrorsOfOnOpen(t *testing.T) {
	limit := &router.LimitExceeded{Kind: router.LimitConnections, Observed: 6, Limit: 5, RetryAfter: 2 * time.Second}
	for _, tt := range []struct {
		name    string
		visible bool
		err     error
		want    router.CloseError
		limits  int
	}{
		{"coded", true, errors.Errorf(errors.PermissionDenied, "banned"), router.CloseError{Code: 4403, Reason: `{"code":"PERMISSION_DENIED","message":"banned"}`}, 0},
		{"limit", true, limit, router.CloseError{Code: 4429, Reason: `{"code":"RESOURCE_EXHAUSTED","retryAfterMs":2000,"message":"too many connections"}`}, 1},
		{"application's code", true, errors.Errorf("BANNED", "until Monday"), router.CloseError{Code: 4500, Reason: `{"code":"BANNED","message":"until Monday"}`}, 0},
		{"without a code", true, errors.New("secret"), router.CloseError{Code: 1011, Reason: `{"code":"INTERNAL","message":"internal error"}`}, 0},
		{"close error", true, &router.CloseError{Code: 4001, Reason: "full"}, router.CloseError{Code: 4001, Reason: "full"}, 0},
		{"coded, not visible", false, errors.Errorf(errors.PermissionDenied, "banned"), router.CloseError{Code: 1011, Reason: `{"code":"PERMISSION_DENIED","message":"banned"}`}, 0},
		{"limit, not visible", false, limit, router.CloseError{Code: 1011, Reason: `{"code":"INTERNAL","message":"internal error"}`}, 0},
	} {
		runSynctest(t, tt.name, func(t *testing.T) {
			var limits recorder[router.LimitExceeded]
			r := router.New(discardLogs(router.Options{
				RefuseAfterUpgrade: tt.visible,
				OnOpen:             func(context.Context, *router.Conn) error { return tt.err },
				OnClose:            func(*router.Conn, router.CloseError) { t.Error("OnClose was called") },
				OnLimitExceeded:    limits.add,
			}))
			assert.Equal(t, tt.want, routertest.Dial(t, r).Closed())
			synctest.Wait()
			assert.Len(t, limits.all(), tt.limits)
			assert.Empty(t, collect(r))
		})
	}
}

// TestRefusedHandshake_ClosesConnection sends a second handshake right behind a refused one, which a
// proxy that tunnels after the first would pass on. The server must not read it.
func TestRefusedHandshake_ClosesConnection(t *testing.T) {
	upgrade := strings.TrimSuffix(handshakeText, "\r\n")
	for name, tt := range map[string]struct {
		opts    router.Options
		request string
		status  int
	}{
		"no handshake":     {router.Options{}, "GET / HTTP/1.1\r\nHost: example.com\r\n", http.StatusUpgradeRequired},
		"another version":  {router.Options{}, strings.Replace(upgrade, "13", "12", 1), http.StatusBadRequest},
		"two versions":     {router.Options{}, upgrade + "Sec-WebSocket-Version: 8\r\n", http.StatusBadRequest},
		"body":             {router.Options{}, upgrade + "Content-Length: 1\r\n", http.StatusBadRequest},
		"chunked body":     {router.Options{}, upgrade + "Transfer-Encoding: chunked\r\n", http.StatusBadRequest},
		"another origin":   {router.Options{}, upgrade + "Origin: https://evil.example\r\n", http.StatusForbidden},
		"no connections":   {router.Options{Limits: router.Limits{Conns: 1}}, upgrade, http.StatusTooManyRequests},
		"unauthenticated":  {refusing(errors.Unauthenticated), upgrade, http.StatusUnauthorized},
		"not permitted":    {refusing(errors.PermissionDenied), upgrade, http.StatusForbidden},
		"failing server":   {refusing(errors.Internal), upgrade, http.StatusInternalServerError},
		"not available":    {refusing(errors.Unavailable), upgrade, http.StatusServiceUnavailable},
		"too many for now": {refusing(errors.ResourceExhausted), upgrade, http.StatusTooManyRequests},
	} {
		t.Run(name, func(t *testing.T) {
			r := router.New(discardLogs(tt.opts))
			server := httptest.NewServer(r)
			defer server.Close()
			if tt.opts.Limits.Conns > 0 {
				dialServer(t, server)
				require.Eventually(t, func() bool { return len(collect(r)) == 1 }, time.Minute, time.Millisecond)
			}
			conn, err := net.Dial("tcp", server.Listener.Addr().String())
			require.NoError(t, err)
			defer func() { _ = conn.Close() }()
			require.NoError(t, conn.SetDeadline(time.Now().Add(20*time.Second)))
			_, err = fmt.Fprint(conn, tt.request+"\r\n"+upgrade+"\r\n")
			require.NoError(t, err)
			answers := bufio.NewReader(conn)
			response, err := http.ReadResponse(answers, nil)
			require.NoError(t, err)
			_, err = io.Copy(io.Discard, response.Body)
			require.NoError(t, err)
			assert.Equal(t, tt.status, response.StatusCode)
			assert.True(t, response.Close, "Connection: close")
			rest, _ := io.ReadAll(answers) // a reset also ends the connection
			assert.Empty(t, string(rest), "the second request is not answered")
		})
	}
}

// refusing returns options with which every request is refused.
func refusing(code errors.Code) router.Options {
	return router.Options{Authenticate: func(*http.Request) (router.Identity, error) {
		return router.Identity{}, &errors.Error{Code: code, Message: "no"}
	}}
}
