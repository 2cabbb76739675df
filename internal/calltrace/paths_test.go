package main_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/adapters/redis"
	"github.com/penstock-go/penstock/internal/calltrace/record"
	"github.com/penstock-go/penstock/internal/redistest"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
	"github.com/penstock-go/penstock/run"
)

type (
	say  struct{ Text string }
	said struct{ Text string }
	word struct{ Text string }
)

func (say) MessageType() string  { return "say" }
func (said) MessageType() string { return "said" }
func (word) MessageType() string { return "word" }

// A node is an application with sessions, a topic with a history, and runs.
type node struct {
	*router.Router

	answers *run.Runs[word]
}

// newNodes starts nodes that share a store.
func newNodes(t *testing.T, n int) []node {
	permit := func(*router.Context, router.TopicMatch) error { return nil }
	b := memory.NewBroker()
	nodes := make([]node, n)
	for i := range nodes {
		r := router.New(&router.Options{
			Broker: b, Logger: slog.New(slog.DiscardHandler), Resume: router.ResumeOptions{Within: time.Minute},
			Authenticate: func(*http.Request) (router.Identity, error) { return router.Identity{UserID: "ann"}, nil },
		})
		router.Topic(r, "room/{name}", &router.TopicOptions{Authorize: permit, History: router.History{Messages: 100}})
		router.RPC(r, func(_ *router.Context, m say) (said, error) { return said(m), nil })
		router.On(r, func(ctx *router.Context, m said) error { return ctx.Publish("room/a", m) })
		nodes[i] = node{r, run.New(r, "answer/{chat}", &run.Options[word]{
			Authorize: func(*router.Context, run.Action, run.Topic) error { return nil },
		})}
		t.Cleanup(func() { assert.NoError(t, r.Shutdown(context.Background())) })
	}
	return nodes
}

// path records what run enters until all goroutines of the bubble wait for something, if command calltrace runs
// the test.
func path(t *testing.T, name string, run func()) {
	entered := record.During(func() {
		run()
		synctest.Wait()
	})
	appendResults(t, name, entered)
}

func appendResults(t *testing.T, name string, entered []string) {
	results := os.Getenv("PENSTOCK_CALLTRACE")
	if results == "" {
		assert.Empty(t, entered, "only the copy of the module has calls of Enter")
		return
	}
	require.NotEmpty(t, entered)
	file, err := os.OpenFile(results, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600) //nolint:gosec // named by command calltrace
	require.NoError(t, err)
	_, err = fmt.Fprintf(file, "%s\t%s\n", name, strings.Join(entered, " "))
	require.NoError(t, err)
	require.NoError(t, file.Close())
}

func TestPath_Call(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := routertest.Dial(t, newNodes(t, 1)[0])
		path(t, "a call", func() { assert.Equal(t, said{"hi"}, routertest.Call[said](c, say{"hi"})) })
	})
}

func TestPath_Publication(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes(t, 2)
		ann, bob := routertest.Dial(t, nodes[0]), routertest.Dial(t, nodes[1])
		routertest.Subscribe(bob, "room/a")
		path(t, "a publication with a history, to a subscriber of another node", func() {
			ann.Send(said{"hi"})
			assert.Equal(t, said{"hi"}, routertest.Receive[said](bob))
		})
	})
}

func TestPath_Resume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes(t, 2)
		old := routertest.Dial(t, nodes[0])
		old.SendText(`{"type":"$ws:hello","meta":{"correlationId":"1"},"payload":{"session":true}}`)
		var welcome routertest.Welcome
		require.NoError(t, json.Unmarshal(old.Next().Payload, &welcome))
		old.SendText(`{"type":"$ws:subscribe","meta":{"correlationId":"2"},"payload":{"topic":"room/a","positions":true}}`)
		var position struct{ Epoch string }
		require.NoError(t, json.Unmarshal(old.Next().Payload, &position))
		old.Abort()
		synctest.Wait()
		require.NoError(t, nodes[0].Publish("room/a", said{"missed"}))

		c := routertest.Dial(t, nodes[1])
		synctest.Wait()
		path(t, "a session that resumes on another node, with one topic and one missed publication", func() {
			c.SendText(fmt.Sprintf(`{"type":"$ws:resume","meta":{"correlationId":"1"},"payload":{"token":%q,"topics":[{"topic":"room/a","epoch":%q,"offset":0}]}}`, welcome.Session.Token, position.Epoch))
			resumed := c.Next()
			assert.Equal(t, "$ws:resumed", resumed.Type, resumed.Text)
			assert.Equal(t, said{"missed"}, routertest.Receive[said](c))
		})
	})
}

func TestPath_TakeOnRedis(t *testing.T) {
	client := redistest.Start(t).Client(t)
	limiter := redis.NewLimiter(client, limit.PerHour(10).Named("messages"))
	take := func() {
		d, err := limit.Consume(t.Context(), limiter, limit.Key{"ann"}, 1)
		require.NoError(t, err)
		assert.True(t, d.Allowed)
	}
	take() // connects
	appendResults(t, "a message that a limiter on Redis admits", record.During(take))
}

func TestPath_ItemOfRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes(t, 2)
		next := make(chan struct{})
		_, err := nodes[0].answers.Start(t.Context(), "answer/1", nil, func(_ context.Context, out *run.Output[word]) error {
			for _, text := range []string{"early", "late"} {
				if err := out.Emit(word{text}); err != nil {
					return err
				}
				<-next
			}
			return nil
		})
		require.NoError(t, err)
		c := routertest.Dial(t, nodes[1])
		c.SendText(`{"type":"word.attach","meta":{"correlationId":"1"},"payload":{"topic":"answer/1","from":0}}`)
		synctest.Wait()
		for c.Pending() > 0 {
			require.Equal(t, "$ws:rpc-progress", c.Next().Type)
		}
		path(t, "an item of a run, to a reader of another node who has come late", func() {
			next <- struct{}{}
			assert.Contains(t, c.Next().Text, "late")
		})
		close(next)
		synctest.Wait()
	})
}
