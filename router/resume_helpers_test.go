package router_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// byUserToken authenticates the user that is the token, of the tenant "t"; without a token, a client
// is anonymous.
func byUserToken(r *http.Request) (router.Identity, error) {
	user := router.Token(r)
	if user == "" {
		return router.Identity{}, nil
	}
	return router.Identity{TenantID: "t", UserID: user}, nil
}

// newSessionRouter returns a router with sessions. Clients may subscribe to room/… and feed/…, which
// has a history; handlers subscribe them to private/…, which has one, and to plain/….
func newSessionRouter(b broker.Broker, change func(*router.Options)) *router.Router {
	return newSessionRouterKeeping(100, b, change)
}

// newSessionRouterKeeping is newSessionRouter with a number of messages that histories keep.
func newSessionRouterKeeping(messages int, b broker.Broker, change func(*router.Options)) *router.Router {
	opts := discardLogs(router.Options{Broker: b, Authenticate: byUserToken, Resume: router.ResumeOptions{Within: resumeWithin}})
	if change != nil {
		change(opts)
	}
	r := router.New(opts)
	history := router.History{Messages: messages}
	router.Topic(r, "feed/{name}", &router.TopicOptions{Authorize: permit, History: history})
	router.Topic(r, "room/{name}", &router.TopicOptions{Authorize: permit})
	router.Topic(r, "private/{name}", &router.TopicOptions{History: history})
	return r
}

// A sessionClient is a client that keeps its token.
type sessionClient struct {
	*routertest.Conn

	t     *testing.T
	conn  *router.Conn // the server's side
	token string
	calls int
}

// dialSession connects a client of a user.
func dialSession(t *testing.T, r *router.Router, user string, opts ...routertest.Option) *sessionClient {
	t.Helper()
	before := collect(r)
	c := &sessionClient{Conn: routertest.Dial(t, r, append(opts, routertest.Token(user))...), t: t}
	for _, conn := range collect(r) {
		if !slices.Contains(before, conn) {
			c.conn = conn
		}
	}
	return c
}

// call sends a message of the protocol and returns the answer.
func (c *sessionClient) call(typ, payload string) routertest.Frame {
	c.t.Helper()
	c.calls++
	id := fmt.Sprintf("r%d", c.calls)
	c.SendText(fmt.Sprintf(`{"type":%q,"meta":{"correlationId":%q},"payload":%s}`, typ, id, payload))
	for {
		frame := c.Next()
		if frame.Meta.CorrelationID == id {
			return frame
		}
		require.Empty(c.t, frame.Meta.CorrelationID, frame.Text)
	}
}

// hello opens a session.
func (c *sessionClient) hello() *sessionClient {
	c.t.Helper()
	frame := c.call("$ws:hello", `{"session":true}`)
	require.Equal(c.t, "$ws:welcome", frame.Type, frame.Text)
	var welcome routertest.Welcome
	require.NoError(c.t, json.Unmarshal(frame.Payload, &welcome))
	require.NotNil(c.t, welcome.Session, frame.Text)
	require.Equal(c.t, resumeWithin.Milliseconds(), welcome.Session.ResumeWithinMs)
	c.token = welcome.Session.Token
	return c
}

type resumed struct {
	Session struct {
		Token          string `json:"token"`
		ResumeWithinMs int64  `json:"resumeWithinMs"`
	} `json:"session"`
	Topics []resumedTopic `json:"topics"`
}

type resumedTopic struct {
	Topic     string `json:"topic"`
	Epoch     string `json:"epoch"`
	Offset    uint64 `json:"offset"`
	Recovered *bool  `json:"recovered"`
	Error     *struct {
		Code      errors.Code `json:"code"`
		Retryable bool        `json:"retryable"`
	} `json:"error"`
}

// topic fails unless there is a result for a topic.
func (r resumed) topic(t *testing.T, name string) {
	t.Helper()
	require.True(t, slices.ContainsFunc(r.Topics, func(topic resumedTopic) bool { return topic.Topic == name }), "no result for "+name)
}

// resume presents a token, and fails the test unless it is accepted.
func (c *sessionClient) resume(token, topics string) resumed {
	c.t.Helper()
	frame := c.call("$ws:resume", fmt.Sprintf(`{"token":%q,"topics":[%s]}`, token, topics))
	require.Equal(c.t, "$ws:resumed", frame.Type, frame.Text)
	var answer resumed
	require.NoError(c.t, json.Unmarshal(frame.Payload, &answer))
	c.token = answer.Session.Token
	return answer
}

// resumeError presents a token that must be rejected.
func (c *sessionClient) resumeError(token string) errors.Code {
	c.t.Helper()
	frame := c.call("$ws:resume", fmt.Sprintf(`{"token":%q}`, token))
	require.Equal(c.t, "RPC_ERROR", frame.Type, frame.Text)
	var payload struct {
		Code errors.Code `json:"code"`
	}
	require.NoError(c.t, json.Unmarshal(frame.Payload, &payload))
	return payload.Code
}

// texts returns the texts of the publications that have arrived.
func (c *sessionClient) texts() []string {
	c.t.Helper()
	synctest.Wait()
	var texts []string
	for c.Pending() > 0 {
		frame := c.Next()
		require.Equal(c.t, "BLOB", frame.Type, frame.Text)
		var blob Blob
		require.NoError(c.t, json.Unmarshal(frame.Payload, &blob))
		texts = append(texts, blob.Text)
	}
	return texts
}
