package router_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

var timestamp = regexp.MustCompile(`"timestamp":\d+,?`)

// TestSubscribe_ClientSubscribesOverSocket is the story of a client that subscribes by itself.
func TestSubscribe_ClientSubscribesOverSocket(t *testing.T) {
	r := newChat()
	router.Topic(r, "room/{id}", &router.TopicOptions{Authorize: func(ctx *router.Context, topic router.TopicMatch) error {
		assert.Equal(t, "room/go", topic.String())
		assert.Equal(t, "go", topic.Value("id"))
		assert.Empty(t, topic.Value("name"), "the pattern has no such wildcard")
		assert.Equal(t, "$ws:subscribe", ctx.Type())
		return nil
	}})
	server := httptest.NewServer(r)
	defer server.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	ws, _, err := websocket.Dial(ctx, server.URL, nil)
	require.NoError(t, err)
	defer func() { _ = ws.CloseNow() }()
	receive := func() string {
		_, text, err := ws.Read(ctx)
		require.NoError(t, err)
		return timestamp.ReplaceAllString(string(text), "")
	}
	send := func(text string) { require.NoError(t, ws.Write(ctx, websocket.MessageText, []byte(text))) }

	send(`{"type":"$ws:subscribe","meta":{"correlationId":"1"},"payload":{"topic":"room/go"}}`)
	assert.JSONEq(t, `{"type":"$ws:subscribed","meta":{"correlationId":"1"},"payload":{"topic":"room/go"}}`, receive())
	require.NoError(t, r.Publish("room/go", Say{"go", "hi"}))
	assert.JSONEq(t, `{"type":"SAY","meta":{},"payload":{"room":"go","text":"hi"}}`, receive())
	send(`{"type":"$ws:unsubscribe","meta":{"correlationId":"2"},"payload":{"topic":"room/go"}}`)
	assert.JSONEq(t, `{"type":"$ws:unsubscribed","meta":{"correlationId":"2"},"payload":{"topic":"room/go"}}`, receive())
	require.NoError(t, r.Publish("room/go", Say{"go", "no subscriber"}))
	send(`{"type":"$ws:subscribe","payload":{"topic":"room/"}}`)
	assert.Contains(t, receive(), `"type":"ERROR"`, "an answer without correlation ID")
}

// TestSubscribe_RejectionsReachClient rejects a subscription in every way.
func TestSubscribe_RejectionsReachClient(t *testing.T) {
	newRouter := func() *router.Router {
		r := router.New(discardLogs(router.Options{}))
		authorize := func(_ *router.Context, topic router.TopicMatch) error {
			switch topic.Value("id") {
			case "denied":
				return errors.Errorf(errors.PermissionDenied, "members only")
			case "broken":
				return http.ErrNoCookie
			case "limited":
				return &router.LimitExceeded{Kind: "rooms", Observed: 2, Limit: 1, RetryAfter: time.Second}
			}
			return nil
		}
		router.Topic(r, "room/{id}", &router.TopicOptions{Authorize: authorize})
		router.Topic(r, "room/internal", nil)
		return r
	}
	for name, tt := range map[string]struct {
		payload string
		want    errors.Code
		message string
	}{
		"undeclared":           {`{"topic":"news"}`, errors.NotFound, `topic "news" does not exist`},
		"no Authorize":         {`{"topic":"room/internal"}`, errors.PermissionDenied, "clients must not subscribe to this topic"},
		"denied":               {`{"topic":"room/denied"}`, errors.PermissionDenied, "members only"},
		"error without a code": {`{"topic":"room/broken"}`, errors.Internal, ""},
		"application's limit":  {`{"topic":"room/limited"}`, errors.ResourceExhausted, "rooms limit exceeded"},
		"empty name":           {`{"topic":""}`, errors.InvalidArgument, "1 to 256 bytes"},
		"no name":              {`{}`, errors.InvalidArgument, "1 to 256 bytes"},
		"long name":            {`{"topic":"room/` + strings.Repeat("x", 252) + `"}`, errors.InvalidArgument, "not 257"},
		"control character":    {`{"topic":"room/\u0000users"}`, errors.InvalidArgument, `"room/\x00users"`},
		"users' topic":         {`{"topic":"\u0000users"}`, errors.InvalidArgument, "control characters"},
		"name of a wrong type": {`{"topic":["room/go"]}`, errors.InvalidArgument, "topic"},
		"no payload":           {``, errors.InvalidArgument, "payload"},
	} {
		runSynctest(t, name, func(t *testing.T) {
			r := newRouter()
			conn := routertest.Dial(t, r)
			payload := ""
			if tt.payload != "" {
				payload = `,"payload":` + tt.payload
			}
			conn.SendText(`{"type":"$ws:subscribe","meta":{"correlationId":"c"}` + payload + `}`)
			err := routertest.ReceiveError(conn)
			assert.Equal(t, tt.want, err.Code)
			assert.Contains(t, err.Message, tt.message)
			if tt.want == errors.InvalidArgument {
				conn.SendText(`{"type":"$ws:unsubscribe","meta":{"correlationId":"c"}` + payload + `}`)
				assert.Equal(t, tt.want, routertest.ReceiveError(conn).Code)
			}
			require.NoError(t, r.Publish("room/broken", Nothing{}))
			require.NoError(t, r.Publish("room/denied", Nothing{}))
			synctest.Wait()
			assert.Zero(t, conn.Pending(), "the connection is not subscribed")
		})
	}
}

func TestSubscribe_TextThatIsNotUTF8IsRejected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := router.New(nil)
		router.Topic(r, "{all...}", &router.TopicOptions{Authorize: permit})
		conn := routertest.Dial(t, r)
		conn.SendText(`{"type":"$ws:subscribe","payload":{"topic":"room/` + "\xff" + `"}}`)
		assert.EqualValues(t, 1007, conn.Closed().Code)
	})
}

// TestSubscribe_AuthorizeThatBlocksGrantsNothingLater blocks Authorize until the client has gone,
// or has received an error.
func TestSubscribe_AuthorizeThatBlocksGrantsNothingLater(t *testing.T) {
	for name, tt := range map[string]struct {
		end  func(*routertest.Conn)
		want errors.Code
	}{
		"deadline": {func(*routertest.Conn) { time.Sleep(time.Minute) }, errors.DeadlineExceeded},
		"abort": {func(c *routertest.Conn) {
			c.SendText(`{"type":"$ws:abort","meta":{"correlationId":"c"}}`)
			synctest.Wait()
		}, errors.Canceled},
		"close": {func(c *routertest.Conn) { c.Close() }, ""},
	} {
		runSynctest(t, name, func(t *testing.T) {
			var conn *router.Conn
			returned := make(chan struct{})
			r := router.New(&router.Options{OnError: func(report router.ErrorReport) {
				assert.Fail(t, "nothing is wrong on the server", "%v", report)
			}})
			router.Topic(r, "room/{id}", &router.TopicOptions{Presence: true, Authorize: func(ctx *router.Context, _ router.TopicMatch) error {
				defer close(returned)
				conn = ctx.Conn()
				<-ctx.Done()
				return nil
			}})
			client := routertest.Dial(t, r)
			client.SendText(`{"type":"$ws:subscribe","meta":{"correlationId":"c"},"payload":{"topic":"room/go","presence":true}}`)
			synctest.Wait()
			tt.end(client)
			<-returned
			synctest.Wait()
			assert.False(t, conn.Subscribed("room/go"))
			assert.Empty(t, r.Presence("room/go"))
			if tt.want != "" {
				assert.Equal(t, tt.want, routertest.ReceiveError(client).Code)
				assert.Zero(t, client.Pending())
			}
		})
	}
}

// TestSubscribe_IsChargedLikeAnyMessage counts what ingress functions and middleware see.
func TestSubscribe_IsChargedLikeAnyMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ingress, middleware recorder[string]
		r := router.New(nil)
		r.UseIngress(func(_ context.Context, in router.IngressContext) error {
			if ingress.add(in.Type); len(ingress.all()) > 3 {
				return &router.LimitExceeded{Kind: router.LimitRate, Observed: 1, Limit: 3, RetryAfter: time.Second}
			}
			return nil
		})
		r.Use(func(next router.Handler) router.Handler {
			return func(ctx *router.Context) error {
				middleware.add(ctx.Type())
				return next(ctx)
			}
		})
		router.Topic(r, "room/{id}", &router.TopicOptions{Authorize: permit})
		conn := routertest.Dial(t, r)
		routertest.Subscribe(conn, "room/go")
		assert.Equal(t, errors.NotFound, routertest.SubscribeError(conn, "news").Code)
		routertest.Unsubscribe(conn, "room/go")
		err := routertest.SubscribeError(conn, "room/go")
		assert.Equal(t, errors.ResourceExhausted, err.Code)
		assert.Equal(t, time.Second, err.RetryAfter)
		assert.Equal(t, []string{"$ws:subscribe", "$ws:subscribe", "$ws:unsubscribe", "$ws:subscribe"}, ingress.all())
		assert.Equal(t, []string{"$ws:subscribe", "$ws:subscribe", "$ws:unsubscribe"}, middleware.all())
		assert.NotContains(t, collectTypes(r), "$ws:subscribe")
	})
}

func collectTypes(r *router.Router) (types []string) {
	for typ := range r.Types() {
		types = append(types, typ)
	}
	return types
}

func TestSubscribe_LaterMessagesSeeSubscription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newChat()
		router.Topic(r, "{room}", &router.TopicOptions{Authorize: func(*router.Context, router.TopicMatch) error {
			time.Sleep(time.Second)
			return nil
		}})
		conn := routertest.Dial(t, r)
		conn.SendText(`{"type":"$ws:subscribe","meta":{"correlationId":"c"},"payload":{"topic":"go"}}`)
		conn.Send(Say{"go", "hi"})
		assert.Equal(t, "$ws:subscribed", conn.Next().Type)
		assert.Equal(t, "hi", routertest.Receive[Say](conn).Text)
	})
}

func TestTopicOptions_MaxPerConn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := router.New(&router.Options{Limits: router.Limits{Topics: 4}})
		router.Topic(r, "room/{id}", &router.TopicOptions{Authorize: permit, MaxPerConn: 2})
		router.Topic(r, "room/lobby", &router.TopicOptions{Authorize: permit})
		router.Topic(r, "news", &router.TopicOptions{Authorize: permit})
		client := routertest.Dial(t, r)
		synctest.Wait()
		conn := onlyConn(t, r)
		rejected := func(topic string, observed, limit float64) {
			t.Helper()
			err := routertest.SubscribeError(client, topic)
			assert.Equal(t, errors.ResourceExhausted, err.Code)
			assert.Equal(t, errors.Never, err.RetryAfter, "it is not retryable")
			assert.Equal(t, map[string]any{"kind": "topics", "observed": observed, "limit": limit}, err.Details)
		}
		require.NoError(t, conn.Subscribe("room/1"))
		routertest.Subscribe(client, "room/2")
		routertest.Subscribe(client, "room/2")
		rejected("room/3", 3, 2)
		exceeded, ok := errors.AsType[*router.LimitExceeded](conn.Subscribe("room/3", router.Present("")))
		require.True(t, ok)
		assert.Equal(t, router.LimitExceeded{Kind: router.LimitTopics, Observed: 3, Limit: 2, RetryAfter: errors.Never}, *exceeded)
		routertest.Subscribe(client, "room/lobby") // another pattern
		require.NoError(t, conn.Subscribe("undeclared"))
		rejected("news", 5, 4)
		routertest.Unsubscribe(client, "room/1")
		routertest.Subscribe(client, "room/3")
	})
}

// TestSubscribe_FloodIsBounded sends 10,000 subscriptions to different topics.
func TestSubscribe_FloodIsBounded(t *testing.T) {
	r := router.New(&router.Options{Limits: withoutRates(router.Limits{})})
	router.Topic(r, "room/{id}", &router.TopicOptions{Authorize: permit, Presence: true})
	conn := routertest.Dial(t, r)
	subscribe := func(topic func(n int) int) map[string]int {
		answers := map[string]int{}
		for n := range 10_000 {
			conn.SendText(fmt.Sprintf(`{"type":"$ws:subscribe","meta":{"correlationId":"%d"},"payload":{"topic":"room/%d","presence":true}}`, n, topic(n)))
			if n%50 != 49 { // below Limits.Concurrency
				continue
			}
			for range 50 {
				answers[conn.Next().Type]++
			}
		}
		return answers
	}
	assert.Equal(t, map[string]int{"$ws:subscribed": 1000, "RPC_ERROR": 9000}, subscribe(func(n int) int { return n }))
	routertest.Unsubscribe(conn, "room/0")
	assert.Len(t, routertest.Subscribe(conn, "room/9999"), 1)
	assert.Equal(t, map[string]int{"$ws:subscribed": 10_000}, subscribe(func(int) int { return 1 }))
	assert.Len(t, r.Presence("room/1"), 1)
}
