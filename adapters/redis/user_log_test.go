package redis_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync/atomic"
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

// A userNode is a node that keeps messages for each user, behind a proxy.
type userNode struct {
	*router.Router

	proxy *redistest.Proxy
	lost  atomic.Int32
}

func newUserNode(t *testing.T, server *redistest.Server) *userNode {
	n := &userNode{proxy: redistest.StartProxy(t, server.Addr)}
	n.Router = router.New(userOptions(server.Client(t, func(o *goredis.Options) { o.Addr = n.proxy.Addr }), func(string, int) { n.lost.Add(1) }))
	shutdownAfter(t, n.Router, n.proxy.Restore)
	return n
}

func userOptions(client goredis.UniversalClient, lost func(string, int)) *router.Options {
	return &router.Options{
		Broker: redis.NewBroker(client), Resume: router.ResumeOptions{Within: time.Minute},
		UserHistory: router.History{Messages: 1000, Age: time.Hour}, OnMessagesLost: lost,
		Authenticate: func(req *http.Request) (router.Identity, error) {
			return router.Identity{UserID: router.Token(req)}, nil
		},
	}
}

func shutdownAfter(t *testing.T, r *router.Router, before func()) {
	t.Cleanup(func() {
		before()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = r.Shutdown(ctx)
	})
}

// A userClient has a session, and knows the position of the messages to its user.
type userClient struct {
	*routertest.Conn

	t      *testing.T
	token  string
	epoch  string
	offset int
}

func dialUser(t *testing.T, r *router.Router, user string) *userClient {
	c := &userClient{Conn: routertest.Dial(t, r, routertest.Token(user)), t: t}
	c.token = decodeToken(t, ask(t, c.Conn, "$ws:hello", `{"session":true}`))
	frame := c.Next()
	require.Equal(t, "$ws:subscribed", frame.Type, frame.Text)
	var at struct {
		Epoch  string
		Offset int
	}
	require.NoError(t, json.Unmarshal(frame.Payload, &at))
	c.epoch, c.offset = at.Epoch, at.Offset
	return c
}

// expect receives notes, each once and in order.
func (c *userClient) expect(from, to int) {
	c.t.Helper()
	for n := from; n <= to; n++ {
		require.Equal(c.t, note{n}, routertest.Receive[note](c.Conn))
		c.offset++
	}
}

func sendNotes(t *testing.T, r *router.Router, user string, from, to int) {
	t.Helper()
	for n := from; n <= to; n++ {
		_, err := r.SendToUser("", user, note{n})
		require.NoError(t, err)
	}
}

// TestUserHistory_NodeThatWasCutOff cuts one of two nodes off, sends messages to a user with two connections on each, and
// disconnects another one.
func TestUserHistory_NodeThatWasCutOff(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	one, two := newUserNode(t, server), newUserNode(t, server)
	var clients, disconnected []*userClient
	for _, n := range []*userNode{one, one, two, two} {
		clients = append(clients, dialUser(t, n.Router, "ann"))
		disconnected = append(disconnected, dialUser(t, n.Router, "bob"))
	}
	sendNotes(t, two.Router, "ann", 1, 3)
	for _, c := range clients {
		c.expect(1, 3)
	}
	two.proxy.Cut()
	late := routertest.Dial(t, two, routertest.Token("bob"))
	sendNotes(t, one.Router, "ann", 4, 103)
	sendNotes(t, one.Router, "bob", 1, 2)
	n, err := one.DisconnectUser("", "bob", 4403, "banned")
	require.NoError(t, err)
	assert.Equal(t, 2, n)
	again := routertest.Dial(t, one, routertest.Token("bob"))
	assert.Zero(t, clients[2].Pending())
	two.proxy.Restore()
	for _, c := range clients {
		c.expect(4, 103)
	}
	for _, c := range disconnected {
		c.expect(1, 2)
		assert.EqualValues(t, 4403, c.Closed().Code)
	}
	assert.EqualValues(t, 4403, late.Closed().Code)
	sendNotes(t, two.Router, "bob", 7, 7)
	assert.Equal(t, note{7}, routertest.Receive[note](again), "it has logged in afterwards")
	assert.Zero(t, one.lost.Load()+two.lost.Load())

	// A client returns to the other node.
	c := clients[2]
	c.Abort()
	sendNotes(t, one.Router, "ann", 104, 110)
	next := &userClient{Conn: routertest.Dial(t, one, routertest.Token("ann")), t: t}
	answer := ask(t, next.Conn, "$ws:resume", fmt.Sprintf(`{"token":%q,"topics":[{"topic":"","epoch":%q,"offset":%d}]}`, c.token, c.epoch, c.offset))
	assert.Contains(t, answer.Text, `"recovered":true`)
	next.expect(104, 110)
}
