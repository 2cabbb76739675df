package simtest

import (
	"context"
	"iter"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/codec/cbor"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/deflate"
	"github.com/penstock-go/penstock/router"
)

// The messages of the application. An ID is never used twice.
type (
	item struct { // a publication
		ID  string `json:"id"`
		Pad string `json:"pad,omitempty"`
	}
	setting struct { // a publication with a key, whose latest one is the state of the key
		ID  string `json:"id"`
		Key string `json:"key"`
	}
	letter struct { // to a user
		ID string `json:"id"`
	}
	work struct { // a call
		ID      string `json:"id"`
		Millis  int    `json:"millis"`
		Publish string `json:"publish,omitempty"` // the topic to which the handler publishes an item with the ID
		Others  bool   `json:"others,omitempty"`  // the connection of the call does not receive it
	}
	worked struct {
		ID string `json:"id"`
	}
	note struct { // an event
		ID string `json:"id"`
	}
	count struct { // a stream
		ID string `json:"id"`
		N  int    `json:"n"`
	}
	counted struct {
		I int `json:"i"`
	}
	join struct { // a call whose handler subscribes the connection
		Topic string `json:"topic"`
		Leave bool   `json:"leave,omitempty"`
	}
	joined struct{}
	ask    struct { // a call of the server
		ID string `json:"id"`
	}
	asked struct {
		ID string `json:"id"`
	}
)

func (item) MessageType() string    { return "ITEM" }
func (setting) MessageType() string { return "SETTING" }
func (letter) MessageType() string  { return "LETTER" }
func (work) MessageType() string    { return "WORK" }
func (worked) MessageType() string  { return "WORKED" }
func (note) MessageType() string    { return "NOTE" }
func (count) MessageType() string   { return "COUNT" }
func (counted) MessageType() string { return "COUNTED" }
func (join) MessageType() string    { return "JOIN" }
func (joined) MessageType() string  { return "JOINED" }
func (ask) MessageType() string     { return "ASK" }
func (asked) MessageType() string   { return "ASKED" }

// ConflationKey makes a setting the state of its key.
func (s setting) ConflationKey() string { return s.Key }

// Times of the application, in virtual time.
const (
	resumeWithin  = 30 * time.Second
	presenceGrace = 10 * time.Second
	historyAge    = 10 * time.Minute
	longHistory   = 400 // publications: more than a client misses while it is away
	shortHistory  = 5
)

// An app is the application of one node, until it shuts down or is killed.
type app struct {
	*router.Router

	handler http.Handler
	world   *world
	name    string
	hooks   *hooks
	killed  bool // guarded by world.mu: what its handlers still do has no effect outside
}

// ServeHTTP passes requests to the router, over WebSocket or plain HTTP.
func (a *app) ServeHTTP(rw http.ResponseWriter, req *http.Request) { a.handler.ServeHTTP(rw, req) }

// newApp starts the application of a node.
func newApp(w *world, b broker.HistoryBroker) *app {
	a := &app{world: w}
	opts := &router.Options{
		Broker:          b,
		Codecs:          []router.Codec{cbor.New(nil)},
		Authenticate:    w.authenticate,
		UserHistory:     router.History{Messages: longHistory, Age: historyAge},
		OnMessagesLost:  func(topic string, n int) { w.messagesLost(a, topic, n) },
		OnError:         func(e router.ErrorReport) { w.serverError(a, e) },
		OnLimitExceeded: w.limitExceeded,
		Logger:          slog.New(slog.NewTextHandler(logOutput, nil)),

		CompressMinBytes:    64,
		CompressWindowBytes: 2 * deflate.MemoryBytes, // a third connection on a node has none
	}
	if w.plan.Mood == hot {
		opts.Limits = router.Limits{QueueMessages: 16, QueueBytes: 8 << 10, Concurrency: 4, SessionsPerUser: 3}
	}
	a.watchHooks(opts)
	a.Router = router.New(opts)
	a.name = "node " + a.NodeID()
	a.declareTopics()
	router.On(a, a.note)
	router.RPC(a, a.work)
	router.Stream(a, a.count)
	router.RPC(a, a.join)
	for _, f := range features() {
		if f.routes != nil {
			f.routes(a)
		}
	}
	mux := http.NewServeMux()
	mux.Handle("/ws", a.Router)
	mux.Handle("/ws/http", a.HTTPFallback(nil))
	a.handler = mux
	return a
}

// The families of topics: a name is "family/number".
//
//	log    a long history; clients subscribe themselves
//	short  a history that is shorter than what clients miss
//	live   no history
//	state  a history with keys
//	room   presence, without a history; with a grace if the number is even
//	join   a long history; only handlers subscribe
func (a *app) declareTopics() {
	authorize := func(ctx *router.Context, match router.TopicMatch) error {
		return a.world.mayRead(ctx.Identity().UserID, match.String())
	}
	long := router.History{Messages: longHistory, Age: historyAge}
	router.Topic(a.Router, "log/{n}", &router.TopicOptions{Authorize: authorize, History: long})
	router.Topic(a.Router, "short/{n}", &router.TopicOptions{Authorize: authorize, History: router.History{Messages: shortHistory, Age: historyAge}})
	router.Topic(a.Router, "state/{n}", &router.TopicOptions{Authorize: authorize, History: long})
	router.Topic(a.Router, "live/{n}", &router.TopicOptions{Authorize: authorize})
	router.Topic(a.Router, "room/1", &router.TopicOptions{Authorize: authorize, AuthorizeHidden: authorize, Presence: true})
	router.Topic(a.Router, "room/2", &router.TopicOptions{Authorize: authorize, AuthorizeHidden: authorize, Presence: true, PresenceGrace: presenceGrace})
	router.Topic(a.Router, "join/{n}", &router.TopicOptions{History: long})
}

// authenticate accepts tokens of the form "user/client/seconds", where the identity ends after so many seconds; 0 is
// never.
func (w *world) authenticate(req *http.Request) (router.Identity, error) {
	parts := strings.Split(router.Token(req), "/")
	if len(parts) != 3 {
		return router.Identity{}, errors.Errorf(errors.Unauthenticated, "no token")
	}
	id := router.Identity{UserID: parts[0]}
	if s, _ := strconv.Atoi(parts[2]); s > 0 {
		id.ExpiresAt = time.Now().Add(time.Duration(s) * time.Second)
	}
	return id, nil
}

func (a *app) note(_ *router.Context, m note) error {
	a.executed(m.ID)
	return nil
}

func (a *app) work(ctx *router.Context, m work) (worked, error) {
	if !a.executed(m.ID) {
		return worked{}, errors.Errorf(errors.Internal, "the node was killed")
	}
	select {
	case <-time.After(time.Duration(m.Millis) * time.Millisecond):
		a.checkHandler(ctx, m.ID)
	case <-ctx.Done():
		return worked{}, ctx.Err()
	}
	if m.Publish != "" {
		var opts []router.PublishOption
		if m.Others {
			opts = append(opts, router.Except(ctx.Conn()))
		}
		if err := a.publish(ctx, m.Publish, item{ID: m.ID}, m.ID, opts...); err != nil {
			return worked{}, err
		}
	}
	return worked{m.ID}, nil
}

func (a *app) count(ctx *router.Context, m count) iter.Seq2[counted, error] {
	return func(yield func(counted, error) bool) {
		a.executed(m.ID)
		for i := range m.N {
			if !yield(counted{i}, nil) || ctx.Err() != nil {
				return
			}
		}
	}
}

func (a *app) join(ctx *router.Context, m join) (joined, error) {
	if m.Leave {
		ctx.Unsubscribe(m.Topic)
		return joined{}, nil
	}
	if err := a.world.mayRead(ctx.Identity().UserID, m.Topic); err != nil {
		return joined{}, err
	}
	return joined{}, ctx.Subscribe(m.Topic)
}

// publish publishes an item, and records what became of it.
func (a *app) publish(ctx context.Context, topic string, m router.Message, id string, opts ...router.PublishOption) error {
	p := a.world.beginPublication(a, topic, id)
	if hasHistory(topic) {
		opts = append(opts, router.IdempotencyKey(id), router.Stored(ctx, &p.position))
	}
	err := a.Publish(topic, m, opts...)
	a.world.endPublication(p, ctx.Err() != nil, err)
	return err
}

func hasHistory(topic string) bool {
	switch family(topic) {
	case "log", "short", "state", "join":
		return true
	}
	return false
}

func family(topic string) string { return topic[:strings.IndexByte(topic, '/')] }

func (a *app) String() string { return a.name }
