package member_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// work is an event whose handler runs until the test says so.
type work struct{}

func (work) MessageType() string { return "work" }

// A client is a connection of node one, in a topic, whose handler runs.
type client struct {
	t        *testing.T
	one, two *router.Router
	ws       *routertest.Conn
	conn     *router.Conn
	token    string
	end      chan struct{} // ends the handler
}

const known, other = "known", "other" // the topics

func newClient(t *testing.T, session bool) *client {
	c := &client{t: t, end: make(chan struct{})}
	started, b := make(chan *router.Conn, 1), memory.NewBroker()
	newNode := func() *router.Router {
		r := router.New(&router.Options{
			Broker: b, Logger: slog.New(slog.DiscardHandler), Resume: router.ResumeOptions{Within: time.Minute},
			Authenticate: func(*http.Request) (router.Identity, error) { return router.Identity{UserID: "ann"}, nil },
		})
		router.Topic(r, "{name}", &router.TopicOptions{Presence: true})
		router.On(r, func(ctx *router.Context, _ work) error {
			started <- ctx.Conn()
			<-c.end
			return nil
		})
		t.Cleanup(func() { assert.NoError(t, r.Shutdown(context.Background())) })
		return r
	}
	c.one, c.two = newNode(), newNode()
	c.ws = routertest.Dial(t, c.one)
	if session {
		c.ws.SendText(`{"type":"$ws:hello","payload":{"session":true}}`)
		var welcome routertest.Welcome
		require.NoError(t, json.Unmarshal(c.ws.Next().Payload, &welcome))
		c.token = welcome.Session.Token
	}
	c.ws.Send(work{})
	c.conn = <-started
	require.NoError(t, c.conn.Subscribe(known))
	routertest.Dial(t, c.two) // a subscriber, so that node two knows who is present
	synctest.Wait()
	for conn := range c.two.Conns() {
		for _, topic := range []string{known, other} {
			require.NoError(t, conn.Subscribe(topic))
		}
	}
	synctest.Wait()
	return c
}

// resume takes the session to a connection of node two, and returns its topics.
func (c *client) resume() (topics []string) {
	ws := routertest.Dial(c.t, c.two)
	ws.SendText(fmt.Sprintf(`{"type":"$ws:resume","meta":{"correlationId":"1"},"payload":{"token":%q}}`, c.token))
	synctest.Wait()
	answer := ws.Next()
	var resumed struct {
		Topics []struct {
			Topic string           `json:"topic"`
			Error *json.RawMessage `json:"error"`
		} `json:"topics"`
	}
	require.NoError(c.t, json.Unmarshal(answer.Payload, &resumed))
	for _, t := range resumed.Topics {
		if t.Error == nil {
			topics = append(topics, t.Topic)
		}
	}
	return topics
}

func (c *client) enter(state string) {
	switch state {
	case "lost":
		c.ws.Abort()
	case "closed":
		c.ws.Close()
	case "superseded":
		require.Contains(c.t, c.resume(), known)
	case "left":
		c.ws.Abort()
		synctest.Wait()
		close(c.end)
	}
	synctest.Wait()
}

// do causes an event, and returns its result and the topic that it concerns.
func (c *client) do(event string) (result, topic string) {
	topic = known
	switch event {
	case "subscribe":
		topic = other
		if err := c.conn.Subscribe(topic); err != nil {
			return string(errors.CodeOf(err)), topic
		}
	case "unsubscribe":
		c.conn.Unsubscribe(topic)
	case "revoke":
		require.NoError(c.t, c.one.Revoke(c.t.Context(), "", "ann", topic))
	case "return":
		close(c.end)
	}
	synctest.Wait()
	if c.conn.Subscribed(topic) {
		return "subscribed", topic
	}
	return "-", topic
}

// present reports whether node two knows the client as a member of a topic, besides its own connections.
func (c *client) present(topic string) string {
	for _, m := range c.two.Presence(topic) {
		own := false
		for conn := range c.two.Conns() {
			own = own || conn.ID() == m.ConnID
		}
		if !own {
			return "yes"
		}
	}
	return "no"
}

func TestStates_AreThoseOfTheDocumentation(t *testing.T) {
	text, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	_, table, _ := strings.Cut(string(text), "-----------  ----------")
	rows := regexp.MustCompile(`(?m)^//\t(\w+) +(\w+) +(\S+) +(yes|no) +(yes|no)$`).FindAllStringSubmatch(table, -1)
	require.Len(t, rows, 18)
	for _, row := range rows {
		event, state := row[1], row[2]
		t.Run(event+"/"+state, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newClient(t, state != "plain")
				c.enter(state)
				result, topic := c.do(event)
				assert.Equal(t, row[3], result, "result")
				assert.Equal(t, row[4], c.present(topic), "present")
				resumes := "no"
				if c.token != "" && state != "superseded" {
					for _, name := range c.resume() {
						if name == topic {
							resumes = "yes"
						}
					}
				}
				assert.Equal(t, row[5], resumes, "resumes")
				select {
				case <-c.end:
				default:
					close(c.end)
				}
			})
		})
	}
}
