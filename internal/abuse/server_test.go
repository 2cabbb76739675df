//go:build unix && !race

package abuse_test

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/redis"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
)

// The messages of the server. What their handlers do is nothing, so that the table has the costs of the
// framework.
type (
	Event    struct{}
	Last     struct{}
	LastDone struct{}
	Checked  struct {
		Text string `json:"text"`
	}
	Wait   struct{}
	Waited struct{}
	Rows   struct{}
	Price  struct {
		Symbol string `json:"symbol"`
		Text   string `json:"text"`
	}
)

func (Event) MessageType() string     { return "EVENT" }
func (Last) MessageType() string      { return "LAST" }
func (LastDone) MessageType() string  { return "LAST_DONE" }
func (Checked) MessageType() string   { return "CHECKED" }
func (Wait) MessageType() string      { return "WAIT" }
func (Waited) MessageType() string    { return "WAITED" }
func (Rows) MessageType() string      { return "ROWS" }
func (Price) MessageType() string     { return "PRICE" }
func (p Price) ConflationKey() string { return p.Symbol }
func (Checked) Validate() error       { return errors.InvalidField("text", "is never valid") }

const (
	retained = 1000 // publications of the topic "history/full"
	keys     = 200  // of the state of that topic
	members  = 500  // of the topic "members/full"
)

// newServer starts a server with the default limits, which keeps histories, presence and sessions in
// Redis.
func newServer(t *testing.T, client *goredis.Client) (r *router.Router, addr string) {
	r = router.New(&router.Options{
		Authenticate: func(req *http.Request) (router.Identity, error) {
			user := router.Token(req)
			if user == "wrong" {
				return router.Identity{}, errors.Errorf(errors.Unauthenticated, "unknown token")
			}
			return router.Identity{UserID: user}, nil
		},
		Broker: redis.NewBroker(client),
		Resume: router.ResumeOptions{Within: time.Minute},
		OnOpen: func(_ context.Context, c *router.Conn) error {
			if c.Identity().UserID != "granted" {
				return nil
			}
			for n := range grants {
				if err := c.Subscribe(fmt.Sprint("closed/", n)); err != nil {
					return err
				}
			}
			return nil
		},
		Logger: slog.New(slog.DiscardHandler),
	})
	router.On(r, func(*router.Context, Event) error { return nil })
	router.On(r, func(*router.Context, Checked) error { return nil })
	router.RPC(r, func(*router.Context, Last) (LastDone, error) { return LastDone{}, nil }).Serial()
	router.RPC(r, func(ctx *router.Context, _ Wait) (Waited, error) {
		<-ctx.Done()
		return Waited{}, ctx.Err()
	})
	router.Stream(r, func(ctx *router.Context, _ Rows) iter.Seq2[int, error] {
		return func(yield func(int, error) bool) {
			for n := 0; yield(n, nil); n++ {
			}
		}
	})
	open := func(*router.Context, router.TopicMatch) error { return nil }
	router.Topic(r, "plain/{name}", &router.TopicOptions{Authorize: open})
	router.Topic(r, "closed/{name}", nil)
	router.Topic(r, "members/{name}", &router.TopicOptions{Authorize: open, Presence: true})
	router.Topic(r, "history/{name}", &router.TopicOptions{Authorize: open, History: router.History{Messages: retained}})
	server := httptest.NewServer(r)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		require.NoError(t, r.Shutdown(ctx))
		server.Close()
	})
	return r, server.Listener.Addr().(*net.TCPAddr).String()
}

// fill publishes what the topic "history/full" retains.
func fill(t *testing.T, r *router.Router) {
	text := strings.Repeat("x", 200)
	for n := range retained {
		err := r.Publish("history/full", Price{fmt.Sprint("S", n%keys), text}, router.Stored(t.Context(), nil))
		require.NoError(t, err)
	}
}
