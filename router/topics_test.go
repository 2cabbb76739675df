package router_test

import (
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

type Subscribe struct {
	Room string `json:"room"`
}

func (Subscribe) MessageType() string { return "SUBSCRIBE" }

type Unsubscribe struct {
	Room string `json:"room"`
}

func (Unsubscribe) MessageType() string { return "UNSUBSCRIBE" }

// SayOthers is Say to all subscribers except the sender.
type SayOthers Say

func (SayOthers) MessageType() string { return "SAY_OTHERS" }

// newChat returns a router that subscribes, unsubscribes and publishes on request.
func newChat() *router.Router {
	r := router.New(&router.Options{Authenticate: byUser})
	router.On(r, func(ctx *router.Context, m Subscribe) error { return ctx.Subscribe(m.Room) })
	router.On(r, func(ctx *router.Context, m Unsubscribe) error { ctx.Unsubscribe(m.Room); return nil })
	router.On(r, func(ctx *router.Context, m Say) error { return ctx.Publish(m.Room, m) })
	router.On(r, func(ctx *router.Context, m SayOthers) error {
		return ctx.Publish(m.Room, Say(m), router.Except(ctx.Conn()))
	})
	return r
}

// TestSubscribe_LastOfConcurrentCallsWins subscribes last on every connection while the topic is
// repeatedly created and removed.
func TestSubscribe_LastOfConcurrentCallsWins(t *testing.T) {
	r := newChat()
	var members []*routertest.Conn
	for range 4 {
		members = append(members, routertest.Dial(t, r))
	}
	var wg sync.WaitGroup
	for c := range r.Conns() {
		wg.Go(func() {
			for range 2000 {
				assert.NoError(t, c.Subscribe("go"))
				c.Unsubscribe("go")
			}
			assert.NoError(t, c.Subscribe("go"))
		})
	}
	wg.Wait()
	require.NoError(t, r.Publish("go", Say{"go", "last"}))
	for _, c := range members {
		assert.Equal(t, "last", routertest.Receive[Say](c).Text)
	}
}

func TestPublish_SubscribersReceiveSameOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newChat()
		var members []*routertest.Conn
		for range 5 {
			c := routertest.Dial(t, r)
			c.Send(Subscribe{"go"})
			members = append(members, c)
		}
		synctest.Wait()
		var wg sync.WaitGroup
		for _, text := range []string{"a", "b", "c", "d"} {
			wg.Go(func() {
				for range 50 {
					assert.NoError(t, r.Publish("go", Say{"go", text}))
				}
			})
		}
		wg.Wait()
		for range 200 {
			first := routertest.Receive[Say](members[0])
			for _, other := range members[1:] {
				require.Equal(t, first, routertest.Receive[Say](other))
			}
		}
	})
}

// A Position replaces earlier positions of the same player.
type Position struct {
	Player string `json:"player"`
	X      int    `json:"x"`
}

func (Position) MessageType() string { return "POSITION" }

func (m Position) ConflationKey() string { return m.Player }

// TestPublication_NamesItsTopicToClientsThatHaveGreeted has topics with a history and without.
func TestPublication_NamesItsTopicToClientsThatHaveGreeted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := router.New(discardLogs(router.Options{}))
		router.Topic(r, "kept/{name}", &router.TopicOptions{History: router.History{Messages: 10}})
		greeted, plain := routertest.Dial(t, r), routertest.Dial(t, r)
		greeted.SendText(`{"type":"$ws:hello"}`)
		assert.Equal(t, "$ws:welcome", greeted.Next().Type)
		for c := range r.Conns() {
			require.NoError(t, c.Subscribe("a"))
			require.NoError(t, c.Subscribe("kept/a"))
		}
		for _, topic := range []string{"a", "kept/a"} {
			synctest.Wait() // the topic is followed
			require.NoError(t, r.Publish(topic, Blob{N: 1}))
			assert.Contains(t, greeted.Next().Text, `,"topic":"`+topic+`"},"payload":{"n":1,`)
			assert.NotContains(t, plain.Next().Text, "topic")
		}
	})
}

// TestSince_ClientsThatHaveNotGreetedReceiveNoPositions lets a handler subscribe clients to a topic
// with a history from a position on.
func TestSince_ClientsThatHaveNotGreetedReceiveNoPositions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := router.New(nil)
		router.Topic(r, "feed/{name}", &router.TopicOptions{
			History:   router.History{Messages: 10},
			Authorize: permit,
		})
		router.RPC(r, func(ctx *router.Context, m Echo) (Echoed, error) {
			err := subscribeSince(ctx, "feed/a", broker.Position{})
			return Echoed(m), err
		})
		router.On(r, func(ctx *router.Context, m Blob) error { return ctx.Publish("feed/a", m, router.Except(ctx.Conn())) })
		plain, asks, greeted := routertest.Dial(t, r), routertest.Dial(t, r), routertest.Dial(t, r)
		greeted.SendText(`{"type":"$ws:hello"}`)
		assert.Equal(t, "$ws:welcome", greeted.Next().Type)
		asks.SendText(`{"type":"$ws:subscribe","meta":{"correlationId":"s"},"payload":{"topic":"feed/a","positions":true}}`)
		assert.Equal(t, "$ws:subscribed", asks.Next().Type)
		for _, client := range []*routertest.Conn{plain, greeted} {
			client.SendText(`{"type":"ECHO","meta":{"correlationId":"e"},"payload":{}}`)
			assert.Equal(t, "ECHOED", client.Next().Type)
		}
		require.NoError(t, r.Publish("feed/a", Blob{Text: "x"}))
		assert.NotContains(t, plain.Next().Text, "feed/a")
		assert.Contains(t, asks.Next().Text, `"topic":"feed/a","offset":1`)
		assert.Contains(t, greeted.Next().Text, `"topic":"feed/a","offset":1`)
		plain.Send(Blob{Text: "y"}) // which it does not receive, and no position either
		synctest.Wait()
		asks.Send(Blob{Text: "z"})
		synctest.Wait()
		assert.Contains(t, plain.Next().Text, `"z"`)
		assert.Zero(t, plain.Pending())
		assert.Equal(t, "BLOB", asks.Next().Type)
		assert.Equal(t, "$ws:position", asks.Next().Type)
		assert.Equal(t, 2, greeted.Pending())
	})
}
