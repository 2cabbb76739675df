package redis_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/redis"
	"github.com/penstock-go/penstock/internal/redistest"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// A note is published on topics with a history.
type note struct {
	N int `json:"n"`
}

func (note) MessageType() string { return "NOTE" }

// newSessionNode returns a node that subscribes its clients to room/go.
func newSessionNode(t *testing.T, client *goredis.Client) *router.Router {
	r := router.New(&router.Options{
		Broker: redis.NewBroker(client), Resume: router.ResumeOptions{Within: time.Minute},
		OnOpen: func(_ context.Context, c *router.Conn) error { return c.Subscribe("room/go") },
	})
	router.Topic(r, "room/{id}", &router.TopicOptions{History: router.History{Messages: 100}})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = r.Shutdown(ctx)
	})
	return r
}

// ask sends a call of the protocol, and returns the answer without what precedes it.
func ask(t *testing.T, c *routertest.Conn, typ, payload string) routertest.Frame {
	t.Helper()
	c.SendText(fmt.Sprintf(`{"type":%q,"meta":{"correlationId":"c"},"payload":%s}`, typ, payload))
	for {
		if frame := c.Next(); frame.Meta.CorrelationID == "c" {
			return frame
		}
	}
}

func decodeToken(t *testing.T, frame routertest.Frame) string {
	t.Helper()
	var payload struct {
		Session struct{ Token string } `json:"session"`
	}
	require.NoError(t, json.Unmarshal(frame.Payload, &payload))
	require.NotEmpty(t, payload.Session.Token, frame.Text)
	return payload.Session.Token
}

func sessionKeys(t *testing.T, client *goredis.Client) []string {
	t.Helper()
	keys, err := client.Keys(t.Context(), "*session*").Result()
	require.NoError(t, err)
	return keys
}

func TestSession_ContinuesOnAnotherNode(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client(t)
	one, two := newSessionNode(t, client), newSessionNode(t, client)
	old := routertest.Dial(t, one)
	token := decodeToken(t, ask(t, old, "$ws:hello", `{"session":true}`))
	frame := old.Next()
	require.Equal(t, "$ws:subscribed", frame.Type, frame.Text)
	var at struct{ Epoch string }
	require.NoError(t, json.Unmarshal(frame.Payload, &at))
	require.NoError(t, two.Publish("room/go", note{1}))
	assert.Equal(t, note{1}, routertest.Receive[note](old))

	keys := sessionKeys(t, client)
	require.Len(t, keys, 1)
	lifetime, err := client.TTL(t.Context(), keys[0]).Result()
	require.NoError(t, err)
	assert.Positive(t, lifetime)
	assert.LessOrEqual(t, lifetime, 80*time.Second)
	stored, err := client.HGetAll(t.Context(), keys[0]).Result()
	require.NoError(t, err)
	_, secret, _ := strings.Cut(token, ".")
	assert.Contains(t, fmt.Sprint(stored), "room/go")
	assert.NotContains(t, fmt.Sprint(stored), secret)

	require.NoError(t, two.Publish("room/go", note{2}))
	require.Equal(t, note{2}, routertest.Receive[note](old))
	c := routertest.Dial(t, two) // the old connection is still open
	answer := ask(t, c, "$ws:resume", fmt.Sprintf(`{"token":%q,"topics":[{"topic":"room/go","epoch":%q,"offset":1}]}`, token, at.Epoch))
	next := decodeToken(t, answer)
	assert.Contains(t, answer.Text, `"offset":1,"recovered":true`)
	assert.Equal(t, note{2}, routertest.Receive[note](c))
	assert.Equal(t, router.StatusSuperseded, old.Closed().Code)

	c.Close()
	require.Eventually(t, func() bool { return len(sessionKeys(t, client)) == 0 }, time.Minute, 10*time.Millisecond)
	assert.Contains(t, ask(t, routertest.Dial(t, one), "$ws:resume", fmt.Sprintf(`{"token":%q}`, next)).Text, `"NOT_FOUND"`)
}

func TestSession_EndsWhenRedisLosesItsData(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := server.Client(t)
	one := newSessionNode(t, client)
	old := routertest.Dial(t, one)
	token := decodeToken(t, ask(t, old, "$ws:hello", `{"session":true}`))
	old.Abort()
	c := routertest.Dial(t, one)
	token = decodeToken(t, ask(t, c, "$ws:resume", fmt.Sprintf(`{"token":%q}`, token)))
	require.NoError(t, client.FlushAll(t.Context()).Err())
	assert.Contains(t, ask(t, routertest.Dial(t, one), "$ws:resume", fmt.Sprintf(`{"token":%q}`, token)).Text, `"NOT_FOUND"`)
	assert.Equal(t, "$ws:welcome", ask(t, c, "$ws:hello", `{"session":true}`).Type, "the connection works")
}
