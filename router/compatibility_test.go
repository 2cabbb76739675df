package router_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
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

var updateTranscript = flag.Bool("transcript.update", false, "rewrite testdata/plain_client.txt; every changed line is a change of the protocol")

// TestRouter_PlainClientReceivesTheRecordedBytes compares every byte that clients receive with a
// recording. The clients use no extension of the protocol, so no extension may change a line of it.
// The reasons of close frames are not compared: they are for developers, and one is random.
func TestRouter_PlainClientReceivesTheRecordedBytes(t *testing.T) {
	path := filepath.Join("testdata", "plain_client.txt")
	var got string
	synctest.Test(t, func(t *testing.T) { got = recordPlainClient(t) })
	if *updateTranscript {
		require.NoError(t, os.WriteFile(path, []byte(got), 0o600))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, string(want), got)
}

// A plainNote is both the event and the message of the server in the transcript.
type plainNote struct {
	Text string `json:"text"`
}

func (plainNote) MessageType() string { return "NOTE" }

func (n plainNote) Validate() error {
	if n.Text == "invalid" {
		return errors.InvalidField("text", "must not be invalid")
	}
	return nil
}

// A plainAsk is a call whose handler does what Do says.
type plainAsk struct {
	Do string `json:"do"`
	N  int    `json:"n,omitempty"`
}

func (plainAsk) MessageType() string { return "ASK" }

type plainAnswer struct {
	N int `json:"n"`
}

func (plainAnswer) MessageType() string { return "ANSWER" }

type plainEmpty struct{}

func (plainEmpty) MessageType() string { return "EMPTY" }

// The types below have other limits or actions than NOTE and ASK.
type (
	plainSerial  struct{}
	plainCostly  struct{}
	plainLarge   struct{}
	plainClosing struct{}
	plainCustom  struct{}
)

func (plainSerial) MessageType() string  { return "SERIAL" }
func (plainCostly) MessageType() string  { return "COSTLY" }
func (plainLarge) MessageType() string   { return "LARGE" }
func (plainClosing) MessageType() string { return "CLOSING" }
func (plainCustom) MessageType() string  { return "CUSTOM" }

// newPlainRouter returns a router with one route for everything that a plain client can meet.
func newPlainRouter() *router.Router {
	r := router.New(discardLogs(router.Options{
		Authenticate: byUser,
		OnOpen: func(_ context.Context, c *router.Conn) error {
			return errors.Join(c.Send(plainNote{"welcome"}), c.Subscribe("lobby"))
		},
		OnLimitExceeded: func(l router.LimitExceeded) {
			if l.Type == "CUSTOM" {
				_ = l.Conn.Send(plainNote{"custom answer"})
			}
		},
		Validate: func(message any) error {
			if m, ok := message.(plainNote); ok && m.Text == "forbidden" {
				return errors.New("the application forbids it")
			}
			return nil
		},
		Limits:   router.Limits{MaxMessageBytes: 300, Concurrency: 2},
		Timeouts: router.Timeouts{Call: 10 * time.Second},
	}))
	r.UseIngress(limitPlainClient)
	router.On(r, handlePlainNote)
	router.RPC(r, handlePlainAsk).Use(replacePlainAnswer)
	router.RPC(r, func(*router.Context, plainEmpty) (plainEmpty, error) { return plainEmpty{}, nil })
	router.RPC(r, func(*router.Context, plainSerial) (plainAnswer, error) {
		time.Sleep(15 * time.Second)
		return plainAnswer{1}, nil
	}).Serial()
	router.RPC(r, func(*router.Context, plainCostly) (plainAnswer, error) { return plainAnswer{}, nil })
	router.On(r, func(*router.Context, plainLarge) error { return nil }).MaxMessageBytes(400)
	router.On(r, func(*router.Context, plainClosing) error { return nil }).LimitAction(router.ActionClose)
	router.On(r, func(*router.Context, plainCustom) error { return nil }).LimitAction(router.ActionCustom)
	return r
}

func limitPlainClient(_ context.Context, in router.IngressContext) error {
	switch {
	case in.Identity.UserID == "limited":
		return &router.LimitExceeded{Kind: router.LimitRate, Observed: 1, Limit: 20, RetryAfter: 1250 * time.Millisecond, Reason: "cooldown"}
	case in.Type == "COSTLY":
		return &router.LimitExceeded{Kind: router.LimitRate, Observed: 50, Limit: 20, RetryAfter: errors.Never}
	case in.Type == "CLOSING" || in.Type == "CUSTOM":
		return &router.LimitExceeded{Kind: router.LimitRate, Observed: 1, Limit: 20, RetryAfter: time.Second}
	}
	return nil
}

func handlePlainNote(ctx *router.Context, m plainNote) error {
	switch m.Text {
	case "send":
		return errors.Join(ctx.Send(plainNote{"1"}), ctx.SendWait(plainNote{"2"}), ctx.Conn().Send(plainNote{`<é> "3"`}))
	case "publish":
		return ctx.Publish("lobby", plainNote{"to all"})
	case "publish to others":
		return ctx.Publish("lobby", plainNote{"to others"}, router.Except(ctx.Conn()))
	case "join":
		return ctx.Subscribe("room", router.Present("info"))
	case "leave":
		ctx.Unsubscribe("lobby")
		return nil
	case "fail":
		return plainError()
	case "plain error":
		return errors.New("secret")
	case "panic":
		panic("secret")
	}
	return nil
}

func handlePlainAsk(ctx *router.Context, m plainAsk) (plainAnswer, error) {
	switch m.Do {
	case "progress":
		updates := []any{map[string]int{"percent": 50}, "half", 1.5, nil, []int{}, plainNote{"a note"}}
		for _, update := range updates {
			if err := ctx.Progress(update); err != nil {
				return plainAnswer{}, err
			}
		}
	case "send":
		if err := ctx.Send(plainNote{"before the answer"}); err != nil {
			return plainAnswer{}, err
		}
	case "wait":
		time.Sleep(time.Duration(m.N) * time.Second)
	case "fail":
		return plainAnswer{}, plainError()
	case "plain error":
		return plainAnswer{}, errors.New("secret")
	case "panic":
		panic("secret")
	case "code":
		codes := []errors.Code{errors.Unauthenticated, errors.PermissionDenied, errors.FailedPrecondition, errors.AlreadyExists, errors.Canceled, errors.Aborted, errors.Unavailable, "ROOM_FULL"}
		return plainAnswer{}, errors.Errorf(codes[m.N], "the code is %s", codes[m.N])
	}
	return plainAnswer{m.N}, nil
}

func replacePlainAnswer(next router.Handler) router.Handler {
	return func(ctx *router.Context) error {
		err := next(ctx)
		if ctx.Message().(plainAsk).Do == "replace" {
			ctx.SetReply(plainNote{"another reply"})
		}
		return err
	}
}

func plainError() error {
	return &errors.Error{
		Code: errors.Unavailable, Message: "the room is restarting", Details: map[string]any{"room": "go"},
		RetryAfter: 90 * time.Millisecond, Err: errors.New("secret"),
	}
}

// recordPlainClient returns what two clients send and receive. Lines begin with > for a message from
// a client, < for one from the server, x for a close frame, and # for a comment.
func recordPlainClient(t *testing.T) string {
	r := newPlainRouter()
	s := &plainScript{t: t, router: r, conns: map[string]*routertest.Conn{}}
	s.dial("ann")
	s.dial("bob")
	s.events()
	s.calls()
	s.rejections()
	s.publications()
	s.closes()
	return strings.TrimPrefix(s.text.String(), "\n")
}

type plainScript struct {
	t      *testing.T
	router *router.Router
	names  []string // of the open connections, in the order of dial
	conns  map[string]*routertest.Conn
	text   strings.Builder
}

func (s *plainScript) events() {
	s.comment("events")
	s.send("ann", `{"type":"NOTE","payload":{"text":"hi"}}`)
	s.send("ann", `{"type":"NOTE","meta":{"timestamp":1730000000000},"payload":{"text":"send"}}`)
	s.send("ann", `{"type":"NOTE","meta":{"correlationId":"e1"},"payload":{"text":"send"}}`)
	for _, text := range []string{"fail", "plain error", "panic", "invalid", "forbidden"} {
		s.send("ann", `{"type":"NOTE","payload":{"text":"`+text+`"}}`)
		s.send("ann", `{"type":"NOTE","meta":{"correlationId":"e2"},"payload":{"text":"`+text+`"}}`)
	}
	s.comment("heartbeat")
	s.send("ann", `{"type":"__heartbeat"}`)
	s.send("ann", `{"type":"__heartbeat","meta":{"correlationId":"h1"}}`)
}

func (s *plainScript) calls() {
	s.comment("calls")
	s.send("ann", `{"type":"ASK","meta":{"timestamp":1730000000000,"correlationId":"c 1 \"é\" <"},"payload":{"do":"","n":5}}`)
	s.send("ann", `{"type":"ASK","payload":{"do":"","n":6}}`)
	s.send("ann", `{"type":"ASK","meta":{"correlationId":""},"payload":{"do":"","n":7}}`)
	s.send("ann", `{"type":"ASK","meta":{"correlationId":"c2","attempt":2,"idempotencyKey":"k"},"extra":1,"payload":{"do":"","n":8,"more":true}}`)
	s.send("ann", `{"type":"EMPTY","meta":{"correlationId":"c3"}}`)
	s.send("ann", `{"type":"EMPTY","meta":{"correlationId":"c4"},"payload":{}}`)
	for _, do := range []string{"progress", "send", "replace", "fail", "plain error", "panic"} {
		s.send("ann", `{"type":"ASK","meta":{"correlationId":"c5"},"payload":{"do":"`+do+`"}}`)
	}
	for n := range 8 {
		s.send("ann", fmt.Sprintf(`{"type":"ASK","meta":{"correlationId":"c6"},"payload":{"do":"code","n":%d}}`, n))
	}
	s.comment("deadlines")
	s.send("ann", `{"type":"ASK","meta":{"correlationId":"d1"},"payload":{"do":"wait","n":5}}`)
	s.sleep(5 * time.Second)
	s.send("ann", `{"type":"ASK","meta":{"correlationId":"d2"},"payload":{"do":"wait","n":60}}`)
	s.sleep(time.Hour)
	s.send("ann", `{"type":"SERIAL","meta":{"correlationId":"d3"},"payload":{}}`)
	s.sleep(time.Second)
	s.send("ann", `{"type":"ASK","meta":{"correlationId":"d4"},"payload":{"do":""}}`)
	s.sleep(time.Hour)
	s.comment("calls in flight")
	for n := range 3 {
		s.send("ann", fmt.Sprintf(`{"type":"ASK","meta":{"correlationId":"f%d"},"payload":{"do":"wait","n":%[1]d}}`, n+1))
	}
	s.sleep(3 * time.Second)
}

func (s *plainScript) rejections() {
	s.comment("malformed messages")
	for _, text := range []string{
		`hello`, `[]`, `{}`, `{"type":""}`, `{"type":1}`, `{"type":"NOTE"`,
		`{"type":"NOTE","meta":null}`, `{"type":"NOTE","meta":{"correlationId":1}}`,
		`{"type":"NOTE","type":"NOTE"}`, `{"type":"NOTE","payload":{"text":"a"}} {}`,
		`{"type":"ASK","meta":{"correlationId":"m1"},"payload":{"do":""},"payload":{"do":""}}`,
		`{"type":"` + strings.Repeat("T", 129) + `"}`,
		`{"type":"NOTE","meta":{"correlationId":"` + strings.Repeat("c", 129) + `"}}`,
		`{"type":"ASK","meta":{"correlationId":"m2"},"payload":` + strings.Repeat("[", 65) + strings.Repeat("]", 65) + `}`,
	} {
		s.send("ann", text)
	}
	s.comment("types without a handler")
	for _, name := range []string{"UNKNOWN", "ANSWER", "ERROR", "RPC_ERROR", "$ws:unknown", "$ws:rpc-progress", "__unknown", "$mine"} {
		s.send("ann", `{"type":"`+name+`"}`)
		s.send("ann", `{"type":"`+name+`","meta":{"correlationId":"u1"},"payload":{}}`)
	}
	s.comment("payloads that cannot be decoded")
	for _, member := range []string{``, `,"payload":null`, `,"payload":{"do":1}`, `,"payload":"text"`, `,"payload":{"do":"","n":1.5}`} {
		s.send("ann", `{"type":"ASK","meta":{"correlationId":"p1"}`+member+`}`)
	}
	s.comment("size")
	s.send("ann", `{"type":"ASK","meta":{"correlationId":"s1"},"payload":{"do":"`+strings.Repeat("x", 300)+`"}}`)
	s.send("ann", `{"payload":{"do":"`+strings.Repeat("x", 300)+`"},"type":"ASK","meta":{"correlationId":"s2"}}`)
	s.send("ann", `{"type":"LARGE","payload":{"text":"`+strings.Repeat("x", 300)+`"}}`)
	s.send("ann", `{"type":"LARGE","payload":{"text":"`+strings.Repeat("x", 400)+`"}}`)
	s.comment("limits")
	s.send("ann", `{"type":"COSTLY","meta":{"correlationId":"l1"},"payload":{}}`)
	s.send("ann", `{"type":"COSTLY","payload":{}}`)
	s.send("ann", `{"type":"CUSTOM","meta":{"correlationId":"l2"},"payload":{}}`)
	s.dial("limited")
	s.send("limited", `{"type":"NOTE","payload":{"text":"send"}}`)
	s.send("limited", `{"type":"ASK","meta":{"correlationId":"l3"},"payload":{"do":""}}`)
	s.send("limited", `{"type":"UNKNOWN","meta":{"correlationId":"l4"}}`)
	s.send("limited", `{"type":"__heartbeat"}`)
	s.send("limited", `hello`)
}

func (s *plainScript) publications() {
	s.comment("publications")
	s.send("ann", `{"type":"NOTE","payload":{"text":"publish"}}`)
	s.send("ann", `{"type":"NOTE","payload":{"text":"publish to others"}}`)
	s.send("ann", `{"type":"NOTE","payload":{"text":"join"}}`)
	s.send("bob", `{"type":"NOTE","payload":{"text":"join"}}`)
	s.comment("the server publishes to lobby and room, and sends to ann")
	require.NoError(s.t, s.router.Publish("lobby", plainNote{"from the server"}))
	require.NoError(s.t, s.router.Publish("room", plainNote{"to the room"}))
	_, err := s.router.SendToUser("", "ann", plainNote{"to ann"})
	require.NoError(s.t, err)
	s.receive()
	s.send("bob", `{"type":"NOTE","payload":{"text":"leave"}}`)
	s.send("ann", `{"type":"NOTE","payload":{"text":"publish"}}`)
	s.comment("an hour passes")
	s.sleep(time.Hour)
}

func (s *plainScript) closes() {
	s.comment("a limit that closes")
	s.send("limited", `{"type":"CLOSING","meta":{"correlationId":"x1"},"payload":{}}`)
	s.closed("limited")
	s.comment("the server disconnects bob")
	_, err := s.router.DisconnectUser("", "bob", 4003, "bye")
	require.NoError(s.t, err)
	s.closed("bob")
	s.comment("the server shuts down")
	s.send("ann", `{"type":"ASK","meta":{"correlationId":"x2"},"payload":{"do":"wait","n":3}}`)
	ended := make(chan error)
	go func() { ended <- s.router.Shutdown(context.Background()) }()
	s.receive()
	s.send("ann", `{"type":"ASK","meta":{"correlationId":"x3"},"payload":{"do":""}}`)
	s.send("ann", `{"type":"NOTE","payload":{"text":"send"}}`)
	s.sleep(3 * time.Second)
	s.closed("ann")
	require.NoError(s.t, <-ended)
}

func (s *plainScript) comment(text string) { fmt.Fprintf(&s.text, "\n# %s\n", text) }

// dial connects a user.
func (s *plainScript) dial(name string) {
	s.comment(name + " connects")
	s.conns[name] = routertest.Dial(s.t, s.router, routertest.Token(name))
	s.names = append(s.names, name)
	s.receive()
}

func (s *plainScript) send(name, text string) {
	fmt.Fprintf(&s.text, "> %s %s\n", name, text)
	s.conns[name].SendText(text)
	s.receive()
}

func (s *plainScript) sleep(d time.Duration) {
	time.Sleep(d)
	s.receive()
}

// receive records what has arrived when the router has nothing left to do.
func (s *plainScript) receive() {
	synctest.Wait()
	for _, name := range s.names {
		for s.conns[name].Pending() > 0 {
			fmt.Fprintf(&s.text, "< %s %s\n", name, s.conns[name].Next().Text)
		}
	}
}

// closed records the code with which the server has closed a connection.
func (s *plainScript) closed(name string) {
	end := s.conns[name].Closed()
	s.receive()
	fmt.Fprintf(&s.text, "x %s %d\n", name, end.Code)
}
