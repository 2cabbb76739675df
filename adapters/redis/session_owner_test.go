package redis_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/redis"
	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/redistest"
	"github.com/penstock-go/penstock/internal/testscale"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// A lateBroker returns what Redis answers about sessions a moment later.
type lateBroker struct{ broker.HistoryBroker }

func (b lateBroker) ConnectHistory(handler broker.Handler, histories broker.HistoryHandler) broker.HistoryNode {
	return lateSession{b.HistoryBroker.ConnectHistory(handler, histories)}
}

type lateSession struct{ broker.HistoryNode }

func (s lateSession) LoadValue(ctx context.Context, key string) (broker.Value, error) {
	defer wait()
	return s.HistoryNode.LoadValue(ctx, key)
}

func (s lateSession) PatchValue(ctx context.Context, key string, p broker.Patch, version uint64, lifetime time.Duration) (uint64, error) {
	defer wait()
	return s.HistoryNode.PatchValue(ctx, key, p, version, lifetime)
}

// wait waits for up to 50 ms, and every other time not at all.
func wait() {
	if rand.IntN(2) == 0 {
		time.Sleep(rand.N(50 * time.Millisecond))
	}
}

// TestSession_BelongsToOneConnection lets three connections on two nodes resume a session at once,
// while the answers of Redis are late. A connection that another one has superseded learns of it
// long before it stores its record again.
func TestSession_BelongsToOneConnection(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client(t)
	var nodes [2]*router.Router
	var answered atomic.Int32
	for i := range nodes {
		nodes[i] = router.New(&router.Options{
			Broker: lateBroker{redis.NewBroker(client)}, Resume: router.ResumeOptions{Within: time.Hour},
			Logger: slog.New(slog.DiscardHandler),
		})
		nodes[i].Observe(func(e router.Event) {
			if e.Kind == router.EventSessionResumed {
				answered.Add(1)
			}
		})
		shutDownAtEnd(t, nodes[i])
	}
	owned := func() (owners int) {
		for _, node := range nodes {
			for c := range node.Conns() {
				if c.Resumable() {
					owners++
				}
			}
		}
		return owners
	}
	for range testscale.Tiers(20, 20, 500) {
		answered.Store(0)
		conns := []*routertest.Conn{routertest.Dial(t, nodes[rand.IntN(2)])}
		token := decodeToken(t, ask(t, conns[0], "$ws:hello", `{"session":true}`))
		for range 3 {
			c := routertest.Dial(t, nodes[rand.IntN(2)])
			c.SendText(fmt.Sprintf(`{"type":"$ws:resume","meta":{"correlationId":"c"},"payload":{"token":%q}}`, token))
			conns = append(conns, c)
		}
		closed := conns[0].Closed() // one of the others has succeeded
		assert.Equal(t, router.StatusSuperseded, closed.Code)
		require.Eventually(t, func() bool { return answered.Load() == 3 && owned() == 1 }, 10*time.Second, 5*time.Millisecond)
		for _, c := range conns[1:] {
			c.Abort()
		}
		require.Eventually(t, func() bool { return owned() == 0 }, 10*time.Second, 5*time.Millisecond)
	}
}

// An endingNode is a node whose connections to Redis can be cut, which for the others is as if it
// were killed.
type endingNode struct {
	*router.Router

	proxy *redistest.Proxy

	mu     sync.Mutex
	events []router.PresenceEvent
}

// newEndingNode returns a node on which clients are the user that is their token, and present in
// hall/… and club/…. In the latter, users stay present without a session.
func newEndingNode(t *testing.T, addr string, returnWithin time.Duration) *endingNode {
	n := &endingNode{proxy: redistest.StartProxy(t, addr)}
	client := goredis.NewClient(&goredis.Options{Addr: n.proxy.Addr})
	t.Cleanup(func() { _ = client.Close() })
	n.Router = router.New(&router.Options{
		Broker: redis.NewBroker(client), Resume: router.ResumeOptions{Within: returnWithin}, Logger: slog.New(slog.DiscardHandler),
		Authenticate: func(r *http.Request) (router.Identity, error) { return router.Identity{UserID: router.Token(r)}, nil },
		OnPresence: func(e router.PresenceEvent) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.events = append(n.events, e)
		},
	})
	allow := func(*router.Context, router.TopicMatch) error { return nil }
	router.Topic(n.Router, "hall/{name}", &router.TopicOptions{Authorize: allow, Presence: true})
	router.Topic(n.Router, "club/{name}", &router.TopicOptions{Authorize: allow, Presence: true, PresenceGrace: returnWithin})
	shutDownAtEnd(t, n.Router)
	return n
}

// left waits until a user has left a topic.
func (n *endingNode) left(t *testing.T, topic, user string, within time.Duration) {
	t.Helper()
	require.Eventually(t, func() bool { return n.reported(topic, user, false) }, within, 5*time.Millisecond, "%s in %s", user, topic)
}

func (n *endingNode) reported(topic, user string, joined bool) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, e := range n.events {
		if e.Topic == topic && e.Member.UserID == user && e.Joined == joined {
			return true
		}
	}
	return false
}

// enter connects a user, who is present in both topics.
func (n *endingNode) enter(t *testing.T, user string) *routertest.Conn {
	t.Helper()
	c := routertest.Dial(t, n, routertest.Token(user))
	for _, topic := range []string{"hall/go", "club/go"} {
		ask(t, c, "$ws:subscribe", fmt.Sprintf(`{"topic":%q,"presence":true}`, topic))
	}
	return c
}

// testNodeEnds ends the node of three users, of whom one has a session. When another node has
// noticed, the one with a session and one without return.
func testNodeEnds(t *testing.T, end func(*endingNode), notice, returnWithin time.Duration) {
	server := redistest.Start(t)
	one, two := newEndingNode(t, server.Addr, returnWithin), newEndingNode(t, server.Addr, returnWithin)
	two.enter(t, "observer")
	session, grace := one.enter(t, "ann"), one.enter(t, "bob")
	token := decodeToken(t, ask(t, session, "$ws:hello", `{"session":true}`))
	_, _ = grace, one.enter(t, "eve")
	require.Eventually(t, func() bool {
		return len(two.Presence("hall/go")) == 4 && len(two.Presence("club/go")) == 4
	}, 10*time.Second, 5*time.Millisecond)
	two.mu.Lock()
	two.events = nil
	two.mu.Unlock()

	end(one)
	two.left(t, "hall/go", "bob", notice) // without a session
	two.left(t, "hall/go", "eve", notice)
	back := routertest.Dial(t, two, routertest.Token("ann"))
	resumed := ask(t, back, "$ws:resume", fmt.Sprintf(`{"token":%q,"topics":[{"topic":"hall/go"},{"topic":"club/go"}]}`, token))
	require.Equal(t, "$ws:resumed", resumed.Type, resumed.Text)
	returned := two.enter(t, "bob")
	two.left(t, "club/go", "eve", returnWithin+5*time.Second)
	for _, joined := range []bool{false, true} {
		assert.False(t, two.reported("hall/go", "ann", joined), "with a session")
		assert.False(t, two.reported("club/go", "ann", joined), "with a session")
		assert.False(t, two.reported("club/go", "bob", joined), "within the grace")
	}
	back.Close()
	returned.Close()
	two.left(t, "hall/go", "ann", 5*time.Second)
	two.left(t, "club/go", "ann", 5*time.Second)
	two.left(t, "club/go", "bob", 5*time.Second)
}

func TestPresence_NodeIsKilled(t *testing.T) {
	testscale.FullOnly(t, "TestPresence_NodeShutsDown")
	t.Parallel()
	testNodeEnds(t, func(n *endingNode) { n.proxy.Cut() }, 30*time.Second, 20*time.Second)
}

func TestPresence_NodeShutsDown(t *testing.T) {
	t.Parallel()
	testNodeEnds(t, func(n *endingNode) {
		ctx, cancel := context.WithTimeout(context.Background(), 8*time.Second)
		defer cancel()
		assert.NoError(t, n.Shutdown(ctx))
	}, 5*time.Second, 3*time.Second)
}

func shutDownAtEnd(t *testing.T, r *router.Router) {
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = r.Shutdown(ctx)
	})
}
