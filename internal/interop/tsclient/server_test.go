package tsclient_test

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/codec/cbor"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/middleware/ratelimit"
	"github.com/penstock-go/penstock/router"
)

type (
	// Left are the details of NO_LUCK.
	Left struct {
		N int `json:"left"`
	}
	// Say is an event whose handler publishes it on a topic.
	Say struct {
		Topic string `json:"topic"`
		Text  string `json:"text"`
	}
	// Said is the publication.
	Said struct {
		Text string `json:"text"`
	}
	// Price is the state of a share.
	Price struct {
		Share string `json:"share"`
		Value int    `json:"value"`
	}
	// Delisted removes a share.
	Delisted struct {
		Share string `json:"share"`
	}
	// Ask is a call whose handler does what it says.
	Ask struct {
		Do string `json:"do"`
		N  int    `json:"n"`
	}
	Answer struct {
		N int `json:"n"`
	}
	// Export is a stream of numbers.
	Export struct {
		N int `json:"n"`
	}
	Row struct {
		N int `json:"n"`
	}
	Exported struct {
		Rows int `json:"rows"`
	}
	// Measure is a call whose reply has the same values.
	Measure struct {
		At     time.Time `json:"at"`
		Bytes  []byte    `json:"bytes"`
		Values []float64 `json:"values"`
		Note   string    `json:"note"`
	}
	Measured struct {
		At     time.Time `json:"at"`
		Bytes  []byte    `json:"bytes"`
		Values []float64 `json:"values"`
		Note   string    `json:"note"`
	}
	// Confirm is a call of the server.
	Confirm struct {
		Question string `json:"question"`
	}
	Confirmed struct {
		Yes bool `json:"yes"`
	}
	// Paced and Hidden are events with a limit, which the server announces or not.
	Paced  struct{ N int }
	Hidden struct{ N int }
)

func (Say) MessageType() string          { return "SAY" }
func (Said) MessageType() string         { return "SAID" }
func (Price) MessageType() string        { return "PRICE" }
func (p Price) ConflationKey() string    { return p.Share }
func (Delisted) MessageType() string     { return "DELISTED" }
func (d Delisted) ConflationKey() string { return d.Share }
func (Ask) MessageType() string          { return "ASK" }
func (Answer) MessageType() string       { return "ANSWER" }
func (Export) MessageType() string       { return "EXPORT" }
func (Exported) MessageType() string     { return "EXPORTED" }
func (Measure) MessageType() string      { return "MEASURE" }
func (Measured) MessageType() string     { return "MEASURED" }
func (Confirm) MessageType() string      { return "CONFIRM" }
func (Confirmed) MessageType() string    { return "CONFIRMED" }
func (Paced) MessageType() string        { return "PACED" }
func (Hidden) MessageType() string       { return "HIDDEN" }

// startServer returns the URL of a server with a route for everything that the client can do. Over HTTP it is at /http.
func startServer(t *testing.T) string {
	announced := memory.NewLimiter(limit.PerSecond(200).Burst(20).Named("messages"))
	hidden := memory.NewLimiter(limit.PerSecond(100).Burst(20))
	paced := &ratelimit.Options{Key: ratelimit.KeyPerConn, Cost: costOf("PACED")}
	unpaced := &ratelimit.Options{Key: ratelimit.KeyPerConn, Cost: costOf("HIDDEN")}
	r := router.New(&router.Options{
		Authenticate:       authenticate,
		RefuseAfterUpgrade: true,
		Resume:             router.ResumeOptions{Within: time.Minute},
		AnnounceLimits:     ratelimit.Announce(announced, paced),
		Codecs:             []router.Codec{cbor.New(nil)},
		Logger:             slog.New(slog.DiscardHandler),
	})
	r.UseIngress(ratelimit.New(announced, paced), ratelimit.New(hidden, unpaced))

	register(r)
	mux := http.NewServeMux()
	mux.Handle("/http", r.HTTPFallback(nil))
	mux.Handle("/", r)
	server := httptest.NewServer(mux)
	t.Cleanup(func() {
		_ = r.Shutdown(context.Background())
		server.Close()
	})
	return "ws" + strings.TrimPrefix(server.URL, "http")
}

func costOf(limited string) func(router.IngressContext) int64 {
	return func(in router.IngressContext) int64 {
		if in.Type == limited {
			return 1
		}
		return 0
	}
}

// authenticate reads a token as the user. The token of "brief" is valid for two seconds.
func authenticate(req *http.Request) (router.Identity, error) {
	user := router.Token(req)
	switch user {
	case "":
		return router.Identity{}, errors.Errorf(errors.Unauthenticated, "log in first")
	case "banned":
		return router.Identity{}, errors.Errorf(errors.PermissionDenied, "you are banned")
	case "brief":
		return router.Identity{UserID: user, ExpiresAt: time.Now().Add(2 * time.Second)}, nil
	}
	return router.Identity{UserID: user}, nil
}

func register(r *router.Router) {
	history := router.History{Messages: 1000}
	mayRead := func(_ *router.Context, name router.TopicMatch) error {
		if name.Value("id") == "secret" {
			return errors.Errorf(errors.PermissionDenied, "%s is secret", name)
		}
		return nil
	}
	router.Topic(r, "room/{id}", &router.TopicOptions{Authorize: mayRead, History: history, Presence: true})
	router.Topic(r, "inbox/{id}", &router.TopicOptions{History: history})
	router.Topic(r, "prices", &router.TopicOptions{Authorize: mayRead, History: router.History{Messages: 50}})
	router.On(r, func(ctx *router.Context, m Say) error {
		err := r.Publish(m.Topic, Said{m.Text}, router.Stored(ctx, nil))
		return err
	})
	router.On(r, func(ctx *router.Context, m Price) error {
		err := r.Publish("prices", m, router.Stored(ctx, nil))
		return err
	})
	router.On(r, func(ctx *router.Context, m Delisted) error {
		err := r.Publish("prices", m, router.Removed(), router.Stored(ctx, nil))
		return err
	})
	router.On(r, func(*router.Context, Paced) error { return nil })
	router.On(r, func(*router.Context, Hidden) error { return nil })
	router.RPC(r, ask)
	router.RPC(r, func(_ *router.Context, m Measure) (Measured, error) { return Measured(m), nil })
	router.Stream(r, export)
	registerRuns(r)
}

func ask(ctx *router.Context, m Ask) (Answer, error) {
	switch m.Do {
	case "progress":
		for i := range m.N {
			if err := ctx.Progress(i); err != nil {
				return Answer{}, err
			}
		}
	case "wait":
		<-ctx.Done()
		return Answer{}, context.Cause(ctx)
	case "fail":
		return Answer{}, errors.Errorf(errors.NotFound, "there is none")
	case "gamble":
		return Answer{}, &errors.Error{Code: "NO_LUCK", Details: Left{m.N}}
	case "disconnect":
		ctx.Conn().Close(router.StatusCode(m.N), "you asked for it")
	case "join": // as the effect of a message of the application
		return Answer{m.N}, ctx.Subscribe(fmt.Sprintf("inbox/%d", m.N), router.Since(broker.Position{}, nil))
	case "confirm":
		reply, err := router.Call[Confirmed](ctx, ctx.Conn(), Confirm{"Sure?"})
		if err != nil {
			return Answer{}, err
		}
		if !reply.Yes {
			return Answer{}, nil
		}
	}
	return Answer{m.N}, nil
}

func export(ctx *router.Context, m Export) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		for i := range m.N {
			if !yield(Row{i}, nil) {
				return
			}
		}
		ctx.SetReply(Exported{m.N})
	}
}
