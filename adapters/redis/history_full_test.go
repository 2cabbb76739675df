package redis_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/redis"
	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/redistest"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// A newsClient follows the topic news/go and keeps its position.
type newsClient struct {
	*routertest.Conn

	t        *testing.T
	epoch    string
	offset   uint64
	received []string
}

func (c *newsClient) subscribe(r *router.Router) {
	c.t.Helper()
	c.Conn = routertest.Dial(c.t, r)
	since := `"positions":true`
	if c.epoch != "" {
		since = fmt.Sprintf(`"epoch":%q,"offset":%d`, c.epoch, c.offset)
	}
	c.SendText(`{"type":"$ws:subscribe","meta":{"correlationId":"s"},"payload":{"topic":"news/go",` + since + `}}`)
	var answer struct {
		Epoch     string `json:"epoch"`
		Offset    uint64 `json:"offset"`
		Recovered bool   `json:"recovered"`
	}
	frame := c.Next()
	require.NoError(c.t, json.Unmarshal(frame.Payload, &answer), frame.Text)
	require.True(c.t, answer.Recovered, frame.Text)
	c.epoch, c.offset = answer.Epoch, answer.Offset
}

// receive receives what has been stored up to an offset.
func (c *newsClient) receive(offset uint64) {
	c.t.Helper()
	for c.offset < offset {
		frame := c.Next()
		var envelope struct {
			Meta struct {
				Offset uint64 `json:"offset"`
			} `json:"meta"`
			Payload News `json:"payload"`
		}
		require.NoError(c.t, json.Unmarshal([]byte(frame.Text), &envelope))
		require.Equal(c.t, c.offset+1, envelope.Meta.Offset, frame.Text)
		c.offset++
		c.received = append(c.received, envelope.Payload.Text)
	}
}

// TestHistory_RedisOutOfMemory lets Redis reject all that needs memory: publishers get an error,
// subscribers of new topics a position, and connected and returning clients miss nothing that was stored.
func TestHistory_RedisOutOfMemory(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--maxmemory-policy", "noeviction")
	admin := server.Client(t)
	newRouter := func() *router.Router {
		r := router.New(&router.Options{Broker: redis.NewBroker(server.Client(t))})
		router.Topic(r, "news/{id}", &router.TopicOptions{
			Authorize: func(*router.Context, router.TopicMatch) error { return nil },
			History:   router.History{Messages: 1000},
		})
		router.On(r, func(ctx *router.Context, m News) error { return ctx.Publish("news/go", m, router.Except(ctx.Conn())) })
		return r
	}
	nodes := []*router.Router{newRouter(), newRouter()}
	connected, returning := &newsClient{t: t}, &newsClient{t: t}
	connected.subscribe(nodes[1])
	returning.subscribe(nodes[1])
	publisher := routertest.Dial(t, nodes[0])
	stored := uint64(0)
	publish := func() {
		t.Helper()
		var position broker.Position
		require.NoError(t, nodes[0].Publish("news/go", News{Text: fmt.Sprint(stored + 1)}, router.Stored(t.Context(), &position)))
		stored++
		require.Equal(t, stored, position.Offset)
	}
	for range 10 {
		publish()
	}
	returning.receive(stored)
	returning.Close()
	for range 20 {
		publish()
	}

	require.NoError(t, admin.ConfigSet(t.Context(), "maxmemory", "1").Err())
	for range 3 {
		err := nodes[0].Publish("news/go", News{Text: "not stored"}, router.Stored(t.Context(), nil))
		assert.Equal(t, errors.ResourceExhausted, errors.CodeOf(err), err)
		publisher.Send(News{Text: "not stored"})
		rejected := routertest.ReceiveError(publisher)
		assert.Equal(t, errors.ResourceExhausted, rejected.Code)
		assert.Contains(t, rejected.Message, "was not stored, because the memory of Redis is full")
	}
	publisher.SendText(`{"type":"$ws:subscribe","meta":{"correlationId":"s"},"payload":{"topic":"news/new","positions":true}}`)
	assert.Equal(t, "$ws:subscribed", publisher.Next().Type)
	connected.receive(stored)
	returning.subscribe(nodes[0])
	returning.receive(stored)
	messages, position, err := nodes[1].ReadHistory(t.Context(), "news/go", broker.Query{Limit: 100})
	require.NoError(t, err)
	assert.Len(t, messages, int(stored))
	assert.Equal(t, stored, position.Offset)

	require.NoError(t, admin.ConfigSet(t.Context(), "maxmemory", "0").Err())
	for range 20 {
		publish()
	}
	for _, client := range []*newsClient{connected, returning} {
		client.receive(stored)
		for i, text := range client.received {
			assert.Equal(t, fmt.Sprint(i+1), text)
		}
	}
}
