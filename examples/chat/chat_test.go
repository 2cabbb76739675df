package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// start returns a chat with the given flags.
func start(t *testing.T, flags ...string) http.Handler {
	t.Helper()
	cfg, err := parseFlags(flags, io.Discard)
	require.NoError(t, err)
	return newServer(cfg).router
}

func as(name string) routertest.Option { return routertest.Token(name) }

func TestARoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		chat := start(t)
		ann, bob := routertest.Dial(t, chat, as("ann")), routertest.Dial(t, chat, as("bob"))
		assert.Equal(t, RoomJoined{"go", []string{"ann"}, nil}, emptied(routertest.Call[RoomJoined](ann, JoinRoom{"go"})))
		ann.Send(Say{"go", "anybody here?"})
		said := routertest.Receive[Said](ann)
		assert.Equal(t, Said{"go", "ann", "anybody here?", time.Now().UTC()}, said)

		joined := routertest.Call[RoomJoined](bob, JoinRoom{"go"})
		assert.Equal(t, RoomJoined{"go", []string{"ann", "bob"}, []Said{said}}, joined)
		assert.Equal(t, UserJoined{"go", "bob"}, routertest.Receive[UserJoined](ann))
		bob.Send(Say{"go", "<img onerror=alert(1)>"})
		assert.Equal(t, "<img onerror=alert(1)>", routertest.Receive[Said](ann).Text)
		assert.Equal(t, "bob", routertest.Receive[Said](bob).User)

		assert.Equal(t, Users{"go", []string{"ann", "bob"}}, routertest.Call[Users](bob, Who{"go"}))
		assert.Equal(t, []Said{said}, routertest.Call[HistoryFound](bob, SearchHistory{"go", "ANYBODY"}).Matches)
		assert.Empty(t, routertest.Call[HistoryFound](bob, SearchHistory{"rust", "anybody"}).Matches)

		bob.Send(LeaveRoom{"go"})
		assert.Equal(t, UserLeft{"go", "bob"}, routertest.Receive[UserLeft](ann))
		bob.Send(Say{"go", "one more thing"})
		assert.Equal(t, errors.FailedPrecondition, routertest.ReceiveError(bob).Code)
		synctest.Wait()
		assert.Zero(t, ann.Pending())
		assert.Zero(t, bob.Pending())
	})
}

func emptied(m RoomJoined) RoomJoined {
	if len(m.History) == 0 {
		m.History = nil
	}
	return m
}

func TestWhatIsSaidRightBehindAJoinIsSaidInTheRoom(t *testing.T) {
	chat := start(t)
	ann := routertest.Dial(t, chat, as("ann"))
	ann.Send(JoinRoom{"go"})
	ann.Send(Say{"go", "hi"})
	routertest.Receive[RoomJoined](ann)
	assert.Equal(t, "hi", routertest.Receive[Said](ann).Text)
}

func TestAUserWithTwoConnectionsIsThereOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		chat := start(t)
		bob := routertest.Dial(t, chat, as("bob"))
		routertest.Call[RoomJoined](bob, JoinRoom{"go"})
		phone, desk := routertest.Dial(t, chat, as("ann")), routertest.Dial(t, chat, as("ann"))
		for _, conn := range []*routertest.Conn{phone, desk, desk} {
			assert.Equal(t, []string{"ann", "bob"}, routertest.Call[RoomJoined](conn, JoinRoom{"go"}).Users)
		}
		assert.Equal(t, UserJoined{"go", "ann"}, routertest.Receive[UserJoined](bob))
		phone.Close()
		synctest.Wait()
		assert.Zero(t, bob.Pending())
		desk.Abort()
		assert.Equal(t, UserLeft{"go", "ann"}, routertest.Receive[UserLeft](bob))
	})
}

func TestTenantsAreApart(t *testing.T) {
	chat := start(t)
	acme, initech := routertest.Dial(t, chat, as("acme:ann")), routertest.Dial(t, chat, as("initech:ann"))
	routertest.Call[RoomJoined](acme, JoinRoom{"go"})
	assert.Equal(t, []string{"ann"}, routertest.Call[RoomJoined](initech, JoinRoom{"go"}).Users)
	acme.Send(Say{"go", "psst"})
	routertest.Receive[Said](acme)
	assert.Empty(t, routertest.Call[HistoryFound](initech, SearchHistory{"go", "psst"}).Matches)
}

func TestGuestsAreToldApartByAddress(t *testing.T) {
	chat := start(t, "-capacity=1")
	one, two, three := routertest.RemoteAddr("192.0.2.1:1"), routertest.RemoteAddr("192.0.2.1:2"), routertest.RemoteAddr("192.0.2.2:1")
	users := routertest.Call[RoomJoined](routertest.Dial(t, chat, one), JoinRoom{"go"}).Users
	assert.Len(t, users, 1)
	assert.NotContains(t, users[0], "192.0.2.1")
	assert.Equal(t, errors.ResourceExhausted, routertest.CallError(routertest.Dial(t, chat, two), JoinRoom{"go"}).Code, "one budget")
	assert.Len(t, routertest.Call[RoomJoined](routertest.Dial(t, chat, three), JoinRoom{"go"}).Users, 2)
}

func TestTokens(t *testing.T) {
	chat := start(t)
	for token, status := range map[string]int{
		"ann": 0, "acme:ann": 0, "a.b_c-D9:" + strings.Repeat("x", 32): 0, "": 0,
		":": 401, "acme:": 401, ":ann": 401, "a:b:c": 401, "ann smith": 401, "änn": 401, strings.Repeat("x", 33): 401, "ann\n": 401,
	} {
		if status == 0 {
			routertest.Dial(t, chat, as(token))
			continue
		}
		assert.Equal(t, status, routertest.Refused(t, chat, as(token)).StatusCode, "%q", token)
	}
	routertest.Dial(t, chat, routertest.Header("Sec-WebSocket-Protocol", "bearer.ann"))
	assert.Equal(t, 401, routertest.Refused(t, chat, routertest.Header("Sec-WebSocket-Protocol", "bearer.a~b")).StatusCode)
}

func TestWhatIsNotAllowed(t *testing.T) {
	chat := start(t)
	ann := routertest.Dial(t, chat, as("ann"))
	routertest.Call[RoomJoined](ann, JoinRoom{"go"})
	for _, m := range []router.Message{
		Say{"go", ""},
		Say{"go", strings.Repeat("é", 501)},
		Say{"", "hi"},
		JoinRoom{""},
		JoinRoom{strings.Repeat("x", 65)},
		Who{""},
		LeaveRoom{""},
		SearchHistory{"go", ""},
		SearchHistory{"go", strings.Repeat("x", 101)},
	} {
		e := routertest.CallError(ann, m)
		assert.Equal(t, errors.InvalidArgument, e.Code, "%+v", m)
		assert.NotEmpty(t, e.Details["field"], "%+v", m)
	}
	assert.Equal(t, errors.FailedPrecondition, routertest.CallError(ann, Say{"rust", "hi"}).Code)
	ann.Send(Say{"go", strings.Repeat("é", 500)})
	routertest.Receive[Said](ann)
}

func TestLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		chat := start(t, "-capacity=7", "-refill=1", "-key=user")
		ann := routertest.Dial(t, chat, as("ann"))
		routertest.Call[RoomJoined](ann, JoinRoom{"go"}) // 6 left
		routertest.Call[HistoryFound](ann, SearchHistory{"go", "x"})
		e := routertest.CallError(ann, SearchHistory{"go", "x"}) // 1 left, 5 needed
		assert.Equal(t, errors.ResourceExhausted, e.Code)
		assert.Equal(t, 4*time.Second, e.RetryAfter)
		assert.Equal(t, map[string]any{"kind": "rate", "observed": 5., "limit": 7.}, e.Details)
		time.Sleep(e.RetryAfter)
		routertest.Call[HistoryFound](ann, SearchHistory{"go", "x"})
	})
}

func TestReactions(t *testing.T) {
	for reaction, check := range map[string]func(t *testing.T, ann *routertest.Conn){
		"send": func(t *testing.T, ann *routertest.Conn) {
			assert.Equal(t, time.Second, routertest.ReceiveError(ann).RetryAfter)
		},
		"close": func(t *testing.T, ann *routertest.Conn) {
			assert.Equal(t, router.CloseError{Code: 1013, Reason: "rate limit exceeded; retry after 1000 ms"}, ann.Closed())
		},
		"custom": func(t *testing.T, ann *routertest.Conn) {
			assert.Equal(t, SlowDown{"WHO", 1000}, routertest.Receive[SlowDown](ann))
		},
	} {
		t.Run(reaction, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ann := routertest.Dial(t, start(t, "-capacity=1", "-refill=1", "-on-exceeded="+reaction), as("ann"))
				ann.Send(Who{"go"})
				routertest.Receive[Users](ann)
				ann.Send(Who{"go"})
				check(t, ann)
			})
		})
	}
}

func TestHistoryIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		chat := start(t, "-capacity=1000")
		ann := routertest.Dial(t, chat, as("ann"))
		routertest.Call[RoomJoined](ann, JoinRoom{"go"})
		for n := range 150 {
			ann.Send(Say{"go", fmt.Sprint(n)})
		}
		ann.Close()
		synctest.Wait()
		history := routertest.Call[RoomJoined](routertest.Dial(t, chat, as("bob")), JoinRoom{"go"}).History
		require.Len(t, history, 100)
		assert.Equal(t, "50", history[0].Text)
		assert.Equal(t, "149", history[99].Text)
	})
}

func TestWrongFlags(t *testing.T) {
	for _, tt := range []struct{ flag, want string }{
		{"-capacity=0", "-capacity is 0; it must be at least 1"},
		{"-capacity=many", `invalid value "many" for flag -capacity`},
		{"-refill=-1", "-refill is -1"},
		{"-key=room", `-key is "room"; it must be one of conn, ip, type, user, user-or-ip-type, user-type`},
		{"-on-exceeded=shout", `-on-exceeded is "shout"; it must be one of close, custom, send`},
		{"-max-bytes=0", "-max-bytes is 0"},
		{"-try=often", `invalid value "often" for flag -try: limit: policy "often"`},
		{"-max-in-flight=0", "-max-in-flight is 0"},
		{"-addr=nowhere", "-addr: listen tcp"},
		{"-metrics-addr=nowhere", "-metrics-addr: listen tcp"},
		{"-redis=localhost", `-redis is "localhost"; it must be like redis://`},
		{"-nope", "flag provided but not defined: -nope"},
		{"extra", `unexpected argument "extra"`},
	} {
		var stdout, stderr bytes.Buffer
		assert.Equal(t, 2, run(t.Context(), []string{tt.flag}, &stdout, &stderr), tt.flag)
		assert.Contains(t, stderr.String(), tt.want)
		assert.Equal(t, 1, strings.Count(stderr.String(), "\n"), "one line: %s", stderr.String())
		assert.Empty(t, stdout.String())
	}
	var stdout, stderr bytes.Buffer
	assert.Zero(t, run(t.Context(), []string{"-h"}, &stdout, &stderr))
	assert.Contains(t, stdout.String(), "-on-exceeded")
}

// output is what a program prints, line by line.
type output struct{ lines chan string }

func (o *output) Write(p []byte) (int, error) {
	o.lines <- string(p)
	return len(p), nil
}

func TestTheProgramServesAndDrains(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	stdout := &output{make(chan string, 10)}
	var stderr bytes.Buffer
	exit := make(chan int)
	go func() { exit <- run(ctx, []string{"-addr=localhost:0"}, stdout, &stderr) }()
	url := strings.TrimSpace(strings.TrimPrefix(<-stdout.lines, "chat: open "))

	assert.Equal(t, http.StatusOK, get(t, url+"/healthz").StatusCode)
	page := get(t, url+"/")
	assert.Equal(t, http.StatusOK, page.StatusCode)
	assert.Contains(t, page.Header.Get("Content-Type"), "text/html")
	assert.Contains(t, page.Header.Get("Content-Security-Policy"), "default-src 'self'")
	assert.Equal(t, http.StatusNotFound, get(t, url+"/nothing").StatusCode)

	ws, _, err := websocket.Dial(t.Context(), url+"/ws?access_token=ann", nil)
	require.NoError(t, err)
	defer ws.CloseNow()
	interrupt()
	_, _, err = ws.Read(t.Context())
	assert.Equal(t, websocket.StatusServiceRestart, websocket.CloseStatus(err))
	assert.Equal(t, "chat: draining\n", <-stdout.lines)
	assert.Zero(t, <-exit)
	assert.Empty(t, stderr.String())
}

func TestMetricsAreWhereTheFlagSays(t *testing.T) {
	shown := func(flags ...string) int {
		cfg, err := parseFlags(flags, io.Discard)
		require.NoError(t, err)
		w := httptest.NewRecorder()
		newServer(cfg).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		return w.Code
	}
	assert.Equal(t, http.StatusNotFound, shown())
	assert.Equal(t, http.StatusNotFound, shown("-metrics-addr=localhost:9090"), "not on the public port")
	assert.Equal(t, http.StatusOK, shown("-metrics-addr=localhost:8080"), "as it was asked to")

	ctx, interrupt := context.WithCancel(t.Context())
	stdout := &output{make(chan string, 10)}
	exit := make(chan int)
	go func() {
		exit <- run(ctx, []string{"-addr=localhost:0", "-metrics-addr=127.0.0.1:0"}, stdout, io.Discard)
	}()
	aside := strings.TrimSpace(strings.TrimPrefix(<-stdout.lines, "chat: metrics on "))
	url := strings.TrimSpace(strings.TrimPrefix(<-stdout.lines, "chat: open "))
	ws, _, err := websocket.Dial(t.Context(), url+"/ws?access_token=ann", nil)
	require.NoError(t, err)
	defer ws.CloseNow()
	require.NoError(t, ws.Write(t.Context(), websocket.MessageText, []byte(`{"type":"WHO","meta":{"correlationId":"1"},"payload":{"room":"go"}}`)))
	_, _, err = ws.Read(t.Context())
	require.NoError(t, err)
	text, err := io.ReadAll(get(t, aside).Body)
	require.NoError(t, err)
	for _, line := range []string{
		"penstock_connections_open 1", `penstock_messages_total{code="OK",type="WHO"} 1`, `penstock_limiter_keys{limit="chat"} 1`,
		`penstock_limit_decisions_total{kind="rate",limit="chat",mode="enforced",outcome="admitted"} 1`, "go_goroutines",
	} {
		assert.Contains(t, string(text), line)
	}
	assert.Equal(t, http.StatusNotFound, get(t, url+"/metrics").StatusCode)
	interrupt()
	_, _, _ = ws.Read(t.Context())
	assert.Zero(t, <-exit)
}

func get(t *testing.T, url string) *http.Response {
	resp, err := http.Get(url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

func TestTheHealthCheckFailsWhileDraining(t *testing.T) {
	cfg, err := parseFlags(nil, io.Discard)
	require.NoError(t, err)
	chat := newServer(cfg)
	status := func() int {
		w := httptest.NewRecorder()
		chat.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/healthz", nil))
		return w.Code
	}
	assert.Equal(t, http.StatusOK, status())
	require.NoError(t, chat.drain(t.Context()))
	assert.Equal(t, http.StatusServiceUnavailable, status())
}

func TestManyPeopleTalkAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		chat := start(t, "-capacity=1000")
		var people []*routertest.Conn
		for n := range 10 {
			conn := routertest.Dial(t, chat, as(fmt.Sprint("user", n)))
			routertest.Call[RoomJoined](conn, JoinRoom{"go"})
			people = append(people, conn)
		}
		var wg sync.WaitGroup
		for _, conn := range people {
			wg.Go(func() {
				for n := range 20 {
					conn.Send(Say{"go", fmt.Sprint(n)})
				}
			})
		}
		wg.Wait()
		synctest.Wait()
		first := saidBy(people[0])
		assert.Len(t, first, 200)
		for _, conn := range people[1:] {
			assert.Equal(t, first, saidBy(conn), "everybody sees one order")
		}
	})
}

// saidBy returns what a connection has received of what was said.
func saidBy(conn *routertest.Conn) []string {
	var texts []string
	for conn.Pending() > 0 {
		if frame := conn.Next(); frame.Type == "SAID" {
			texts = append(texts, string(frame.Payload))
		}
	}
	return texts
}
