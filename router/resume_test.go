package router_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// resumeWithin is the time for a resume in these tests.
const resumeWithin = 2 * time.Minute

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
	opts := discardLogs(router.Options{Broker: b, Authenticate: byUserToken, Resume: router.ResumeOptions{Within: resumeWithin}})
	if change != nil {
		change(opts)
	}
	r := router.New(opts)
	allow := func(*router.Context, router.TopicName) error { return nil }
	history := router.History{Messages: 100}
	router.Topic(r, "feed/{name}", &router.TopicOptions{Authorize: allow, History: history})
	router.Topic(r, "room/{name}", &router.TopicOptions{Authorize: allow})
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
func dialSession(t *testing.T, r *router.Router, user string) *sessionClient {
	t.Helper()
	before := collect(r)
	c := &sessionClient{Conn: routertest.Dial(t, r, routertest.Token(user)), t: t}
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

// topic returns the result for a topic.
func (r resumed) topic(t *testing.T, name string) resumedTopic {
	t.Helper()
	for _, topic := range r.Topics {
		if topic.Topic == name {
			return topic
		}
	}
	require.Fail(t, "no result for "+name)
	return resumedTopic{}
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

// acknowledge confirms the latest $ws:resumed.
func (c *sessionClient) acknowledge() {
	c.t.Helper()
	c.SendText(fmt.Sprintf(`{"type":"$ws:ack","meta":{"correlationId":"r%d"}}`, c.calls))
	synctest.Wait()
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

func TestResume_ContinuesOnAnotherNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.NewBroker()
		one, two := newSessionRouter(b, nil), newSessionRouter(b, nil)
		publishTexts(t, one, 1, 3)
		old := dialSession(t, one, "ann").hello()
		frame := old.call("$ws:subscribe", `{"topic":"feed/a","positions":true}`)
		var at subscribed
		require.NoError(t, json.Unmarshal(frame.Payload, &at))
		publishTexts(t, two, 4, 4)
		assert.Equal(t, []string{"4"}, old.texts())
		old.Abort()
		publishTexts(t, two, 5, 7)

		c := dialSession(t, two, "ann")
		answer := c.resume(old.token, fmt.Sprintf(`{"topic":"feed/a","epoch":%q,"offset":4}`, at.Epoch))
		topic := answer.topic(t, "feed/a")
		assert.True(t, *topic.Recovered)
		assert.Equal(t, at.Epoch, topic.Epoch)
		assert.EqualValues(t, 4, topic.Offset)
		assert.NotEqual(t, old.token, c.token)
		publishTexts(t, one, 8, 8)
		assert.Equal(t, []string{"5", "6", "7", "8"}, c.texts())
	})
}

func TestResume_RestoresWhatHandlersHaveSubscribed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.NewBroker()
		one, two := newSessionRouter(b, nil), newSessionRouter(b, nil)
		watcher := dialSession(t, two, "eve")
		require.NoError(t, watcher.conn.Join("room/go", ""))
		old := dialSession(t, one, "ann").hello()
		require.NoError(t, old.conn.Join("room/go", "Ann"))
		require.NoError(t, old.conn.Subscribe("private/ann"))
		require.NoError(t, old.conn.Subscribe("plain/a"))
		require.NoError(t, old.conn.Subscribe("plain/left"))
		old.conn.Unsubscribe("plain/left")
		old.call("$ws:subscribe", `{"topic":"room/own"}`)
		synctest.Wait()
		_, at, err := one.ReadHistory(t.Context(), "private/ann", broker.Query{})
		require.NoError(t, err)
		old.Abort()
		synctest.Wait()
		_, err = two.PublishStored(t.Context(), "private/ann", Blob{Text: "missed"}, nil)
		require.NoError(t, err)
		assert.Len(t, two.Presence("room/go"), 1)

		c := dialSession(t, two, "ann")
		answer := c.resume(old.token, fmt.Sprintf(`{"topic":"private/ann","epoch":%q,"offset":0}`, at.Epoch))
		require.Len(t, answer.Topics, 3)
		for _, topic := range answer.Topics {
			assert.Nil(t, topic.Error, topic.Topic)
			assert.True(t, c.conn.Subscribed(topic.Topic))
		}
		assert.Equal(t, "private/ann", answer.Topics[0].Topic, "presented topics come first")
		assert.True(t, *answer.topic(t, "private/ann").Recovered)
		assert.Nil(t, answer.topic(t, "plain/a").Recovered)
		assert.False(t, c.conn.Subscribed("room/own"), "the client has not presented it")
		assert.False(t, c.conn.Subscribed("plain/left"))
		assert.Equal(t, []string{"missed"}, c.texts())
		synctest.Wait()
		var infos []string
		for _, m := range two.Presence("room/go") {
			infos = append(infos, m.UserID+" "+m.Info)
		}
		assert.ElementsMatch(t, []string{"eve ", "ann Ann"}, infos)

		c.Abort() // the restored topics are in the record again
		synctest.Wait()
		again := dialSession(t, one, "ann").resume(c.token, "")
		require.Len(t, again.Topics, 3)
		assert.False(t, *again.topic(t, "private/ann").Recovered, "the client has not presented a position")
		assert.EqualValues(t, 1, again.topic(t, "private/ann").Offset)
	})
}

func TestSession_ClientLearnsOfSubscriptionsThatHandlersMake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSessionRouter(nil, func(o *router.Options) {
			o.OnOpen = func(_ context.Context, c *router.Conn) error {
				return errors.Join(c.Subscribe("plain/first"), c.Subscribe("private/first"))
			}
		})
		c := dialSession(t, r, "ann")
		synctest.Wait()
		c.hello()
		synctest.Wait()
		first := []string{c.Next().Text, c.Next().Text}
		assert.Contains(t, fmt.Sprint(first), `{"type":"$ws:subscribed","meta":{"timestamp":946684800000},"payload":{"topic":"plain/first"}}`)
		assert.Regexp(t, `\{"type":"\$ws:subscribed","meta":\{"timestamp":946684800000\},"payload":\{"topic":"private/first","epoch":"[A-Z2-7]+","offset":0\}\}`, fmt.Sprint(first))

		require.NoError(t, c.conn.Subscribe("private/ann"))
		require.NoError(t, c.conn.Subscribe("private/ann"))
		synctest.Wait()
		assert.Contains(t, c.Next().Text, `"payload":{"topic":"private/ann","epoch":`)
		require.NoError(t, r.Publish("private/ann", Blob{Text: "1"}))
		require.NoError(t, r.Publish("private/first", Blob{Text: "2"}))
		assert.Contains(t, c.Next().Text, `"topic":"private/ann","offset":1}`)
		assert.Contains(t, c.Next().Text, `"topic":"private/first","offset":1}`)
		require.NoError(t, c.conn.Join("plain/first", "Ann"), "the client knows of it already")

		c.conn.Unsubscribe("private/ann")
		c.conn.Unsubscribe("private/ann")
		assert.Equal(t, `{"type":"$ws:unsubscribed","meta":{"timestamp":946684800000},"payload":{"topic":"private/ann"}}`, c.Next().Text)
		assert.Contains(t, c.call("$ws:unsubscribe", `{"topic":"plain/first"}`).Text, "$ws:unsubscribed")
		assert.Contains(t, c.call("$ws:subscribe", `{"topic":"feed/a"}`).Text, "$ws:subscribed")
		synctest.Wait()
		assert.Zero(t, c.Pending(), "answers are not repeated")
	})
}

func TestSession_SubscribeSinceIsAnnouncedBeforeWhatWasMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSessionRouter(nil, nil)
		router.RPC(r, func(ctx *router.Context, m Echo) (Echoed, error) {
			_, at, err := r.ReadHistory(ctx, "private/a", broker.Query{})
			if err == nil {
				_, err = ctx.SubscribeSince("private/a", broker.Position{Epoch: at.Epoch})
			}
			return Echoed(m), err
		})
		_, err := r.PublishStored(t.Context(), "private/a", Blob{Text: "1"}, nil)
		require.NoError(t, err)
		c := dialSession(t, r, "ann").hello()
		routertest.Call[Echoed](c.Conn, Echo{})
		assert.Contains(t, c.Next().Text, `"topic":"private/a"`)
		assert.Equal(t, []string{"1"}, c.texts())
		c.Abort()
		dialSession(t, r, "ann").resume(c.token, "").topic(t, "private/a")
	})
}

func TestSession_ConnectionsWithoutOneAreNotNotified(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSessionRouter(nil, nil)
		c := dialSession(t, r, "ann")
		c.Greet()
		require.NoError(t, c.conn.Subscribe("private/a"))
		c.conn.Unsubscribe("private/a")
		synctest.Wait()
		assert.Zero(t, c.Pending())
	})
}

func TestResume_TokensThatAreRejected(t *testing.T) {
	for name, test := range map[string]struct {
		user  string
		token func(token string) string
		want  errors.Code
	}{
		"guessed":        {"ann", func(string) string { return "AAAAAAAAAAAAAAAAAAAAAAAAAA.AAAAAAAAAAAAAAAAAAAAAAAAAA" }, errors.NotFound},
		"other secret":   {"ann", func(token string) string { return token[:27] + "AAAAAAAAAAAAAAAAAAAAAAAAAA" }, errors.NotFound},
		"no secret":      {"ann", func(token string) string { return token[:27] }, errors.NotFound},
		"secret cut":     {"ann", func(token string) string { return token[:52] }, errors.NotFound},
		"longer secret":  {"ann", func(token string) string { return token + "A" }, errors.NotFound},
		"empty":          {"ann", func(string) string { return "" }, errors.NotFound},
		"malformed":      {"ann", func(token string) string { return "a" + token[1:] }, errors.NotFound},
		"only the ID":    {"ann", func(token string) string { return token[:26] }, errors.NotFound},
		"of ann for bob": {"bob", func(token string) string { return token }, errors.PermissionDenied},
		"of ann for all": {"", func(token string) string { return token }, errors.PermissionDenied},
		"guessed by bob": {"bob", func(token string) string { return token[:27] + "AAAAAAAAAAAAAAAAAAAAAAAAAA" }, errors.NotFound},
	} {
		runSynctest(t, name, func(t *testing.T) {
			r := newSessionRouter(nil, nil)
			old := dialSession(t, r, "ann").hello()
			require.Len(t, old.token, 53)
			c := dialSession(t, r, test.user)
			assert.Equal(t, test.want, c.resumeError(test.token(old.token)))
			synctest.Wait()
			assert.Len(t, collect(r), 2, "the old connection is not disturbed")
			dialSession(t, r, "ann").resume(old.token, "")
		})
	}
}

func TestResume_TokenExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSessionRouter(nil, nil)
		one, two := dialSession(t, r, "ann").hello(), dialSession(t, r, "ann").hello()
		one.Abort()
		two.Abort()
		time.Sleep(resumeWithin - time.Millisecond)
		dialSession(t, r, "ann").resume(one.token, "")
		time.Sleep(time.Millisecond)
		assert.Equal(t, errors.NotFound, dialSession(t, r, "ann").resumeError(two.token))
	})
}

func TestResume_TokenIsValidUntilTheNextOneIsAcknowledgedOrUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.NewBroker()
		one, two := newSessionRouter(b, nil), newSessionRouter(b, nil)
		first := dialSession(t, one, "ann").hello()
		lost := dialSession(t, two, "ann")
		lost.resume(first.token, "") // the answer does not reach the client
		again := dialSession(t, one, "ann")
		again.resume(first.token, "")
		assert.Equal(t, router.StatusSuperseded, lost.Closed().Code)
		assert.Equal(t, errors.NotFound, dialSession(t, two, "ann").resumeError(lost.token), "it was replaced")
		again.acknowledge()
		assert.Equal(t, errors.NotFound, dialSession(t, two, "ann").resumeError(first.token), "the next one is acknowledged")
		used := dialSession(t, two, "ann")
		used.resume(again.token, "")
		third := dialSession(t, one, "ann")
		third.resume(used.token, "")
		assert.Equal(t, errors.NotFound, dialSession(t, two, "ann").resumeError(again.token), "the next one was used")
	})
}

func TestResume_AcknowledgmentWithAnotherIDHasNoEffect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSessionRouter(nil, nil)
		old := dialSession(t, r, "ann").hello()
		c := dialSession(t, r, "ann")
		c.SendText(`{"type":"$ws:ack","meta":{"correlationId":"r1"}}`) // before the session is resumed
		c.SendText(`{"type":"$ws:ack"}`)
		c.resume(old.token, "")
		c.SendText(`{"type":"$ws:ack","meta":{"correlationId":"other"}}`)
		c.SendText(`{"type":"$ws:ack"}`)
		synctest.Wait()
		assert.Zero(t, c.Pending())
		dialSession(t, r, "ann").resume(old.token, "")
	})
}

func TestResume_OldConnectionIsSuperseded(t *testing.T) {
	for name, nodes := range map[string]int{"on its node": 1, "on another node": 2} {
		runSynctest(t, name, func(t *testing.T) {
			b := memory.NewBroker()
			routers := []*router.Router{newSessionRouter(b, nil), newSessionRouter(b, nil)}
			old := dialSession(t, routers[0], "ann").hello()
			dialSession(t, routers[nodes-1], "ann").resume(old.token, "")
			closed := old.Closed()
			assert.Equal(t, router.StatusSuperseded, closed.Code)
			assert.Equal(t, `{"code":"ABORTED","message":"superseded by another connection"}`, closed.Reason)
			time.Sleep(10 * time.Minute)
			assert.Len(t, collect(routers[nodes-1]), 1)
		})
	}
}

func TestResume_CloseCodes(t *testing.T) {
	client := func(code router.StatusCode) func(*sessionClient) {
		return func(c *sessionClient) { c.CloseWith(code, "") }
	}
	server := func(code router.StatusCode) func(*sessionClient) {
		return func(c *sessionClient) { c.conn.Close(code, "") }
	}
	for name, test := range map[string]struct {
		end  func(*sessionClient)
		want bool // the session survives
	}{
		"1000 of the client":        {client(1000), false},
		"1001 of the client":        {client(1001), true},
		"1006":                      {func(c *sessionClient) { c.Abort() }, true},
		"1011 of the client":        {client(1011), true},
		"4000 of the client":        {client(4000), false},
		"1000 of the application":   {server(1000), false},
		"1001 of the application":   {server(1001), true},
		"1002":                      {server(1002), false},
		"1003":                      {server(1003), false},
		"1007":                      {func(c *sessionClient) { c.SendText("\xff") }, false},
		"1008":                      {server(1008), false},
		"1009":                      {server(1009), true},
		"1011":                      {server(1011), true},
		"1012":                      {server(1012), true},
		"1013":                      {server(1013), true},
		"4000 of the application":   {server(4000), false},
		"4401":                      {server(router.StatusUnauthenticated), false},
		"4403":                      {server(router.StatusPermissionDenied), false},
		"4999":                      {server(4999), false},
		"4403 after the connection": {func(c *sessionClient) { c.Abort(); synctest.Wait(); c.conn.Close(4403, "") }, false},
	} {
		runSynctest(t, name, func(t *testing.T) {
			b := memory.NewBroker()
			one, two := newSessionRouter(b, nil), newSessionRouter(b, nil)
			old := dialSession(t, one, "ann").hello()
			test.end(old)
			synctest.Wait()
			require.Empty(t, collect(one))
			c := dialSession(t, two, "ann")
			if test.want {
				c.resume(old.token, "")
			} else {
				assert.Equal(t, errors.NotFound, c.resumeError(old.token))
			}
		})
	}
}

func TestResume_DisconnectUserEndsSessionsOnAllNodes(t *testing.T) {
	for name, code := range map[string]router.StatusCode{"4403": 4403, "1012": router.StatusServiceRestart} {
		runSynctest(t, name, func(t *testing.T) {
			b := memory.NewBroker()
			one, two := newSessionRouter(b, nil), newSessionRouter(b, nil)
			old := dialSession(t, one, "ann").hello()
			other := dialSession(t, one, "bob").hello()
			_, err := two.DisconnectUser("t", "ann", code, "banned")
			require.NoError(t, err)
			assert.Equal(t, code, old.Closed().Code)
			synctest.Wait()
			assert.Equal(t, errors.NotFound, dialSession(t, two, "ann").resumeError(old.token))
			other.Abort()
			dialSession(t, two, "bob").resume(other.token, "")
		})
	}
}

func TestResume_ShutdownMovesSessionsToOtherNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two, cut := newCutRouters()
		router.On(one, func(ctx *router.Context, _ Nothing) error {
			time.Sleep(time.Second)
			return ctx.Subscribe("plain/last")
		})
		old := dialSession(t, one, "ann").hello()
		old.Send(Nothing{}) // the connection is closed after its handler
		synctest.Wait()
		cut.store.Store(storeSlow) // Shutdown waits for it
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.NoError(t, one.Shutdown(ctx))
		assert.Equal(t, router.StatusServiceRestart, old.Closed().Code)
		dialSession(t, two, "ann").resume(old.token, "").topic(t, "plain/last")
	})
}
