package wskit_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
)

// A Note is a text from the server to the clients.
type Note struct {
	Text string `json:"text"`
}

func (Note) MessageType() string { return "NOTE" }

// Do is an event whose handler does what it says.
type Do struct {
	What string `json:"what"`
	N    int    `json:"n"`
}

func (Do) MessageType() string { return "DO" }

// Ask is a call whose handler does what it says.
type Ask struct {
	Do string `json:"do"`
	N  int    `json:"n"`
}

func (Ask) MessageType() string { return "ASK" }

func (a Ask) Validate() error {
	if a.Do == "invalid" {
		return errors.InvalidField("do", "must not be invalid")
	}
	return nil
}

type Answer struct {
	N int `json:"n"`
}

func (Answer) MessageType() string { return "ANSWER" }

// The messages below have no content that matters.
type (
	Empty     struct{}
	EmptyDone struct{}
	Costly    struct{}
	Large     struct{}
	Closing   struct{}
)

func (Empty) MessageType() string     { return "EMPTY" }
func (EmptyDone) MessageType() string { return "EMPTY_DONE" }
func (Costly) MessageType() string    { return "COSTLY" }
func (Large) MessageType() string     { return "LARGE" }
func (Closing) MessageType() string   { return "CLOSING" }

// A server has a route for everything that a client of ws-kit can meet.
type server struct {
	t      *testing.T
	router *router.Router
	url    string // of the WebSocket endpoint

	release chan struct{} // each value lets one call that waits return
}

// A feature adds to a server what the clients of one program need.
type feature struct {
	configure func(*router.Options) // nil if the options stay as they are
	register  func(*router.Router)  // nil if there are no further routes
}

func startServer(t *testing.T, features []feature) *server {
	s := &server{t: t, release: make(chan struct{}, 1000)}
	opts := router.Options{
		Authenticate: func(req *http.Request) (router.Identity, error) {
			return router.Identity{UserID: router.Token(req)}, nil
		},
		OnOpen: func(_ context.Context, c *router.Conn) error {
			return errors.Join(c.Send(Note{"welcome"}), c.Subscribe("lobby"))
		},
		Subprotocols: []string{"app.v1"},
		Limits:       router.Limits{MaxMessageBytes: 1000, Concurrency: 300},
		Timeouts:     router.Timeouts{Call: 2 * time.Second, Ping: 100 * time.Millisecond},
		Logger:       slog.New(slog.DiscardHandler),
	}
	for _, f := range features {
		if f.configure != nil {
			f.configure(&opts)
		}
	}
	s.router = router.New(&opts)
	s.register()
	for _, f := range features {
		if f.register != nil {
			f.register(s.router)
		}
	}
	listener := httptest.NewServer(s.router)
	s.url = "ws" + strings.TrimPrefix(listener.URL, "http")
	t.Cleanup(func() {
		_ = s.router.Shutdown(context.Background())
		listener.Close()
	})
	return s
}

func (s *server) register() {
	s.router.UseIngress(limit)
	router.On(s.router, s.do)
	router.RPC(s.router, s.ask).Use(replaceReply)
	router.RPC(s.router, func(*router.Context, Empty) (EmptyDone, error) { return EmptyDone{}, nil })
	router.RPC(s.router, func(*router.Context, Costly) (Answer, error) { return Answer{}, nil })
	router.On(s.router, func(*router.Context, Large) error { return nil }).MaxMessageBytes(1500)
	router.On(s.router, func(*router.Context, Closing) error { return nil }).LimitAction(router.ActionClose)
}

func limit(_ context.Context, in router.IngressContext) error {
	switch {
	case in.Identity.UserID == "limited":
		return &router.LimitExceeded{Kind: router.LimitRate, Observed: 1, Limit: 20, RetryAfter: 1250 * time.Millisecond, Reason: "cooldown"}
	case in.Type == "COSTLY":
		return &router.LimitExceeded{Kind: router.LimitRate, Observed: 50, Limit: 20, RetryAfter: errors.Never}
	case in.Type == "CLOSING":
		return &router.LimitExceeded{Kind: router.LimitRate, Observed: 1, Limit: 20, RetryAfter: time.Second}
	}
	return nil
}

func (s *server) do(ctx *router.Context, m Do) error {
	switch m.What {
	case "send":
		return errors.Join(ctx.Send(Note{"1"}), ctx.SendWait(Note{"2"}), ctx.Conn().Send(Note{`é < "`}))
	case "fail":
		return failure()
	case "join":
		return ctx.Subscribe("lobby", router.Present("info"))
	case "leave":
		ctx.Unsubscribe("lobby")
	case "publish":
		return ctx.Publish("lobby", Note{"to all"})
	case "publish to others":
		return ctx.Publish("lobby", Note{"to others"}, router.Except(ctx.Conn()))
	case "send to ann":
		_, err := s.router.SendToUser("", "ann", Note{"to ann"})
		return err
	case "release":
		for range m.N {
			s.release <- struct{}{}
		}
	case "shut down":
		go func() { assert.NoError(s.t, s.router.Shutdown(context.Background())) }()
		time.AfterFunc(100*time.Millisecond, func() { s.release <- struct{}{} })
	}
	return nil
}

func (s *server) ask(ctx *router.Context, m Ask) (Answer, error) {
	switch m.Do {
	case "progress":
		for _, update := range []any{map[string]int{"percent": 50}, "half", 1.5, nil, []int{}} {
			if err := ctx.Progress(update); err != nil {
				return Answer{}, err
			}
		}
	case "wait":
		select {
		case <-ctx.Done():
			return Answer{}, ctx.Err()
		case <-s.release:
		}
	case "fail":
		return Answer{}, failure()
	case "panic":
		panic("secret")
	case "code":
		codes := []errors.Code{
			errors.Unauthenticated, errors.PermissionDenied, errors.FailedPrecondition, errors.NotFound,
			errors.AlreadyExists, errors.Canceled, errors.Aborted, errors.Unavailable, "ROOM_FULL",
		}
		return Answer{}, errors.Errorf(codes[m.N], "the code is %s", codes[m.N])
	}
	return Answer{m.N}, nil
}

func replaceReply(next router.Handler) router.Handler {
	return func(ctx *router.Context) error {
		err := next(ctx)
		if ctx.Message().(Ask).Do == "replace" {
			ctx.SetReply(Note{"another reply"})
		}
		return err
	}
}

func failure() error {
	return &errors.Error{
		Code: errors.Unavailable, Message: "the room is restarting", Details: map[string]any{"room": "go"},
		RetryAfter: 90 * time.Millisecond, Err: errors.New("secret"),
	}
}
