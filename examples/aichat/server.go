package main

import (
	"context"
	"embed"
	"io/fs"
	"net/http"
	"regexp"
	"time"

	"github.com/penstock-go/penstock/adapters/aisdk"
	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/adapters/redis"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/middleware/ratelimit"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/run"
)

//go:embed page
var files embed.FS

// A server serves the page, its WebSocket endpoint, and one for clients of the AI SDK. Answers are
// runs, which both endpoints start, attach to and stop.
type server struct {
	http.Handler

	router  *router.Router
	chats   *chats
	answers *run.Runs[aisdk.Chunk]
	aisdk   *aisdk.Handler
	meter   *limit.Meter
	model   model
	scripts bool

	contextTokens int64 // that a model receives of a conversation
}

func newServer(cfg config) *server {
	opts := &router.Options{
		Authenticate:       func(r *http.Request) (router.Identity, error) { return identityOf(router.Token(r)) },
		RefuseAfterUpgrade: true, // the page shows the reason
	}
	if cfg.redis != nil {
		opts.Broker = redis.NewBroker(cfg.redis)
	}
	r := router.New(opts)
	r.UseIngress(ratelimit.New(memory.NewLimiter(limit.PerSecond(20).Burst(100)), &ratelimit.Options{Key: ratelimit.KeyPerUser}))
	s := &server{router: r, chats: newChats(r), meter: newMeter(cfg), model: cfg.model, scripts: cfg.scripts, contextTokens: cfg.perMinute / 2}
	s.answers = run.New(r, answerPattern, &run.Options[aisdk.Chunk]{
		Authorize: authorize,
		Merge:     aisdk.MergeDeltas,
		Budget:    s.meter,
		Tokens:    tokensOf,
		Limits:    run.Limits{Duration: 10 * time.Minute},
	})
	s.aisdk = aisdk.New(r, s.answers, &aisdk.Options{
		Authenticate: func(r *http.Request) (router.Identity, error) { return identityOf(r.URL.Query().Get("user")) },
		Authorize:    func(context.Context, aisdk.Access) error { return nil }, // the topic contains the user
		Topic:        func(id router.Identity, name string) string { return chat{id.UserID, name}.answers() },
		Start:        s.startOfSend,
		Answer:       s.answerSend,
	})
	router.RPC(r, s.ask)
	router.RPC(r, s.openChat)
	router.RPC(r, s.getBudget)
	s.Handler = s.routes()
	return s
}

func (s *server) routes() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /ws", s.router)
	mux.Handle("GET /chat", s.aisdk)
	mux.HandleFunc("GET /healthz", s.router.ServeHealth)
	mux.Handle("GET /", pageHandler())
	return mux
}

var namePattern = regexp.MustCompile(`^[A-Za-z0-9_.\-]{1,32}$`)

// identityOf trusts the name of a user: a real application verifies a cookie or a signed token
// here.
func identityOf(name string) (router.Identity, error) {
	if !namePattern.MatchString(name) {
		return router.Identity{}, errors.Errorf(errors.Unauthenticated, "use a name with 1 to 32 characters of A-Z a-z 0-9 _ . -")
	}
	return router.Identity{UserID: name}, nil
}

// authorize permits users to attach to the answers in their own chats, and to stop them.
func authorize(ctx *router.Context, _ run.Action, topic run.Topic) error {
	if topic.Value("user") != ctx.Identity().UserID {
		return errors.Errorf(errors.PermissionDenied, "the chat is of another user")
	}
	return nil
}

// ask starts an answer for the page.
func (s *server) ask(ctx *router.Context, m Ask) (Asked, error) {
	c, question := chat{ctx.Identity().UserID, m.Chat}, Message{ID: m.ID, Role: RoleUser, Text: m.Text}
	budget, err := s.budgetOf(ctx, c, question)
	if err != nil {
		return Asked{}, err
	}
	opts := &run.StartOptions{RequestID: "ask/" + m.ID, Budget: budget}
	info, err := s.answers.Start(ctx, c.answers(), opts, func(ctx context.Context, out *run.Output[aisdk.Chunk]) error {
		chunks := s.aisdk.NewOutput(out)
		if err := s.answer(ctx, c, question, nil, chunks); err != nil {
			return err
		}
		return chunks.Finish(aisdk.FinishStop)
	})
	return Asked{info.ID}, err
}

// openChat answers with a conversation and the run whose answer is not in it yet. The page has
// subscribed to the chat before, so it misses nothing.
func (s *server) openChat(ctx *router.Context, m OpenChat) (opened ChatOpened, err error) {
	c := chat{ctx.Identity().UserID, m.Chat}
	info, err := s.answers.Find(ctx, c.answers(), "")
	if err != nil && errors.CodeOf(err) != errors.NotFound {
		return opened, err
	}
	if opened.Messages, err = s.chats.load(ctx, c); err != nil {
		return opened, err
	}
	if n := len(opened.Messages); n == 0 || opened.Messages[n-1].ID != info.ID {
		opened.Run = info.ID
	}
	return opened, nil
}

// questionOf returns the user's last message, which is the only one of the page's conversation that
// the server believes.
func questionOf(req *aisdk.Request) Message {
	return Message{ID: req.Message.ID, Role: RoleUser, Text: req.Message.Text()}
}

// startOfSend returns what the run for a message of the AI SDK begins with.
func (s *server) startOfSend(ctx context.Context, req *aisdk.Request) (*run.StartOptions, error) {
	sc, err := scriptOf(req.Body)
	switch {
	case err != nil:
		return nil, err
	case sc != nil && !s.scripts:
		return nil, errors.InvalidField("body.script", "is only permitted with -model "+fakeModelName)
	case sc != nil:
		return nil, nil //nolint:nilnil // no options
	}
	question := questionOf(req)
	if err := checkLength("messages", question.Text, maxQuestion); err != nil {
		return nil, err
	}
	budget, err := s.budgetOf(ctx, chat{req.Identity.UserID, req.Chat}, question)
	return &run.StartOptions{Budget: budget}, err
}

// answerSend answers a message of the AI SDK.
func (s *server) answerSend(ctx context.Context, req *aisdk.Request, out *aisdk.Output) error {
	sc, err := scriptOf(req.Body)
	if err != nil {
		return err
	}
	return s.answer(ctx, chat{req.Identity.UserID, req.Chat}, questionOf(req), sc, out)
}

func pageHandler() http.Handler {
	root, err := fs.Sub(files, "page")
	if err != nil {
		panic(err) // impossible: the directory is embedded
	}
	fileServer := http.FileServerFS(root)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", "default-src 'self'; connect-src 'self' ws: wss:; frame-ancestors 'none'")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-cache")
		fileServer.ServeHTTP(w, r)
	})
}
