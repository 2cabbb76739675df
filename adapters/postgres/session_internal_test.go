package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

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

func TestSession_ContinuesOnAnotherNode(t *testing.T) {
	t.Parallel()
	pool, schema := newSchema(t)
	newNode := func() *router.Router {
		r := router.New(&router.Options{
			Broker: NewBroker(pool, &Options{Schema: schema}), Resume: router.ResumeOptions{Within: time.Minute},
			OnOpen: func(_ context.Context, c *router.Conn) error { return c.Subscribe("orders/1") },
		})
		router.Topic(r, "orders/{customer}", &router.TopicOptions{History: router.History{Messages: 100}})
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			_ = r.Shutdown(ctx)
		})
		return r
	}
	sessions := func() (n int) {
		require.NoError(t, pool.QueryRow(t.Context(), "SELECT count(*) FROM "+schema+".value WHERE expires_at > now()").Scan(&n))
		return n
	}
	one, two := newNode(), newNode()
	old := routertest.Dial(t, one)
	token := decodeToken(t, ask(t, old, "$ws:hello", `{"session":true}`))
	frame := old.Next()
	require.Equal(t, "$ws:subscribed", frame.Type, frame.Text)
	var at struct{ Epoch string }
	require.NoError(t, json.Unmarshal(frame.Payload, &at))
	for _, cents := range []int{1, 2} {
		require.NoError(t, two.Publish("orders/1", orderPaid{"a", cents}))
		assert.Equal(t, orderPaid{"a", cents}, routertest.Receive[orderPaid](old))
	}
	assert.Equal(t, 1, sessions())

	c := routertest.Dial(t, two) // the old connection is still open
	answer := ask(t, c, "$ws:resume", fmt.Sprintf(`{"token":%q,"topics":[{"topic":"orders/1","epoch":%q,"offset":1}]}`, token, at.Epoch))
	next := decodeToken(t, answer)
	assert.Contains(t, answer.Text, `"offset":1,"recovered":true`)
	assert.Equal(t, orderPaid{"a", 2}, routertest.Receive[orderPaid](c))
	assert.Equal(t, router.StatusSuperseded, old.Closed().Code)

	c.Close()
	require.Eventually(t, func() bool { return sessions() == 0 }, time.Minute, 10*time.Millisecond)
	assert.Contains(t, ask(t, routertest.Dial(t, one), "$ws:resume", fmt.Sprintf(`{"token":%q}`, next)).Text, `"NOT_FOUND"`)
}
