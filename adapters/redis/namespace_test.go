package redis_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/redis"
	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/redistest"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

func TestWithNamespace_PanicsIfItIsNotValid(t *testing.T) {
	t.Parallel()
	client := goredis.NewClient(&goredis.Options{})
	t.Cleanup(func() { _ = client.Close() })
	for _, name := range []string{"", "a:b", "a{b}", "a b", "ä", strings.Repeat("x", 65)} {
		assert.PanicsWithValue(t, fmt.Sprintf("redis: WithNamespace: the namespace is %q; it must have 1 to 64 letters, digits, dots, hyphens and underscores", name),
			func() { redis.WithNamespace(client, name) })
	}
	assert.PanicsWithValue(t, "redis: WithNamespace needs a client", func() { redis.WithNamespace(nil, "shop") })
	assert.PanicsWithValue(t, `redis: WithNamespace "b": the client has the namespace "a" already`, func() { redis.WithNamespace(redis.WithNamespace(client, "a"), "b") })
}

// An application uses everything that a Redis server can keep.
type application struct {
	*router.Router

	client  goredis.UniversalClient
	limits  []limit.Limiter
	permits limit.Semaphore
	lost    atomic.Int64
}

func newApplication(t *testing.T, client goredis.UniversalClient) *application {
	a := &application{client: client}
	a.limits = []limit.Limiter{
		redis.NewLimiter(client, limit.PerHour(3)),
		redis.NewSlidingLog(client, limit.WindowPolicy{Max: 3, Window: time.Hour}),
		redis.NewSlidingCounter(client, limit.WindowPolicy{Max: 3, Window: time.Hour}),
		redis.NewCooldown(client, limit.CooldownPolicy{Max: 3, Window: time.Hour, Penalty: time.Hour}, nil),
		redis.NewQuota(client, limit.QuotaPolicy{Max: 3, Period: limit.Day}),
	}
	a.permits = redis.NewSemaphore(client, "calls", 1)
	a.Router = router.New(&router.Options{
		Broker: redis.NewBroker(client), Resume: router.ResumeOptions{Within: time.Minute},
		Authenticate: func(req *http.Request) (router.Identity, error) {
			return router.Identity{UserID: router.Token(req)}, nil
		},
		Logger:         slog.New(slog.DiscardHandler),
		OnMessagesLost: func(_ string, n int) { a.lost.Add(int64(n)) },
	})
	allow := func(*router.Context, router.TopicMatch) error { return nil }
	router.Topic(a.Router, "room/{id}", &router.TopicOptions{Authorize: allow, Presence: true, History: router.History{Messages: 100}})
	router.Topic(a.Router, "plain/{id}", &router.TopicOptions{Authorize: allow})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = a.Shutdown(ctx)
	})
	return a
}

// exhaust uses up every limit of a user, and fails if there is not all of each.
func (a *application) exhaust(t *testing.T) {
	key := limit.Key{"user", "", "ann"}
	for _, l := range a.limits {
		for n := range 4 {
			d, err := limit.Consume(t.Context(), l, key, 1)
			require.NoError(t, err, "%T", l)
			assert.Equal(t, n < 3, d.Allowed, "%T", l)
		}
	}
	permit, err := a.permits.Acquire(t.Context(), key)
	require.NoError(t, err)
	require.NotNil(t, permit.Release)
	second, err := a.permits.Acquire(t.Context(), key)
	require.NoError(t, err)
	assert.Nil(t, second.Release)
}

// join connects ann, who has a session and subscribes to both kinds of topics.
func (a *application) join(t *testing.T) (c *routertest.Conn, token string) {
	c = routertest.Dial(t, a.Router, routertest.Token("ann"))
	token = decodeToken(t, ask(t, c, "$ws:hello", `{"session":true}`))
	ask(t, c, "$ws:subscribe", `{"topic":"plain/a"}`)
	ask(t, c, "$ws:subscribe", `{"topic":"room/a","positions":true}`)
	return c, token
}

// testSeparate has two applications, of which one does everything that the other one could notice.
func testSeparate(t *testing.T, one, two goredis.UniversalClient) {
	noisy, quiet := newApplication(t, one), newApplication(t, two)
	ann, token := quiet.join(t)
	var before broker.Position
	require.NoError(t, quiet.Publish("room/a", note{1}, router.Stored(t.Context(), &before)))
	assert.EqualValues(t, 1, before.Offset)
	require.Equal(t, "NOTE", ann.Next().Type)

	noisy.exhaust(t)
	other, otherToken := noisy.join(t)
	var at broker.Position
	require.NoError(t, noisy.Publish("room/a", note{2}, router.IdempotencyKey("k"), router.Stored(t.Context(), &at)))
	assert.EqualValues(t, 1, at.Offset, "its first publication")
	require.NoError(t, noisy.Publish("plain/a", note{3}))
	_, err := noisy.SendToUser("", "ann", note{4})
	require.NoError(t, err)
	require.NoError(t, noisy.Revoke(t.Context(), "", "ann", "{all...}"))
	for range 3 { // published on plain/a and room/a, and sent to ann
		require.Eventually(t, func() bool { return other.Pending() > 0 }, time.Minute, time.Millisecond)
		other.Next()
	}
	_, err = noisy.DisconnectUser("", "ann", router.StatusPermissionDenied, "")
	require.NoError(t, err)
	late := routertest.Dial(t, quiet.Router, routertest.Token("ann"))
	assert.Contains(t, ask(t, late, "$ws:resume", fmt.Sprintf(`{"token":%q}`, otherToken)).Text, string(errors.NotFound))

	// Redis delivers what was published before in order, so this comes last.
	require.NoError(t, quiet.Publish("plain/a", note{5}))
	frame := ann.Next()
	assert.JSONEq(t, `{"n":5}`, string(frame.Payload), frame.Text)
	assert.Zero(t, ann.Pending())
	assert.Len(t, quiet.Presence("room/a"), 1)
	messages, position, err := quiet.ReadHistory(t.Context(), "room/a", broker.Query{Limit: 10})
	require.NoError(t, err)
	assert.Len(t, messages, 1)
	assert.Equal(t, before, position)
	var again broker.Position
	require.NoError(t, quiet.Publish("room/a", note{6}, router.IdempotencyKey("k"), router.Stored(t.Context(), &again)))
	assert.EqualValues(t, 2, again.Offset, "the key is that of the other application")
	quiet.exhaust(t)
	ann.Abort()
	decodeToken(t, ask(t, late, "$ws:resume", fmt.Sprintf(`{"token":%q}`, token)))
	assert.Zero(t, quiet.lost.Load()+noisy.lost.Load())
}

func TestWithNamespace_SeparatesApplications(t *testing.T) {
	t.Parallel()
	t.Run("one server", func(t *testing.T) {
		server := redistest.Start(t)
		client := server.Client(t)
		testSeparate(t, redis.WithNamespace(client, "shop"), redis.WithNamespace(client, "shop-staging"))
		for _, name := range namesOf(t, client) {
			assert.True(t, strings.HasPrefix(name, "shop:") || strings.HasPrefix(name, "shop-staging:"), name)
		}
	})
	t.Run("with and without", func(t *testing.T) {
		client := redistest.Start(t).Client(t)
		testSeparate(t, client, redis.WithNamespace(client, "shop"))
	})
	t.Run("databases", func(t *testing.T) {
		server := redistest.Start(t)
		inDatabase := func(n int) goredis.UniversalClient {
			client := goredis.NewClient(&goredis.Options{Addr: server.Addr, DB: n})
			t.Cleanup(func() { _ = client.Close() })
			return client
		}
		testSeparate(t, inDatabase(0), inDatabase(1))
		testSeparate(t, redis.WithNamespace(inDatabase(2), "shop"), redis.WithNamespace(inDatabase(3), "shop"))
	})
}

func TestWithNamespace_SeparatesApplicationsOnCluster(t *testing.T) {
	t.Parallel()
	client := redistest.StartCluster(t).Client(t)
	testSeparate(t, redis.WithNamespace(client, "shop"), redis.WithNamespace(client, "shop-staging"))
}

// namesOf returns the keys and channels of database 0.
func namesOf(t *testing.T, client *goredis.Client) []string {
	keys, err := client.Keys(t.Context(), "*").Result()
	require.NoError(t, err)
	channels, err := client.PubSubChannels(t.Context(), "*").Result()
	require.NoError(t, err)
	require.NotEmpty(t, keys)
	require.NotEmpty(t, channels)
	return slices.Concat(keys, channels)
}

// aclRules are those of the guide "Deployment" for the namespace shop.
const aclRules = "on >secret ~shop:* &shop:* +@all -@dangerous +info"

// TestWithNamespace_NeedsNoMoreThanItsKeysAndChannels has the rights of one application.
func TestWithNamespace_NeedsNoMoreThanItsKeysAndChannels(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	args := []any{"ACL", "SETUSER", "shop"}
	for rule := range strings.FieldsSeq(aclRules) {
		args = append(args, rule)
	}
	require.NoError(t, server.Client(t).Do(t.Context(), args...).Err())
	limited := goredis.NewClient(&goredis.Options{Addr: server.Addr, Username: "shop", Password: "secret"})
	t.Cleanup(func() { _ = limited.Close() })
	shop := newApplication(t, redis.WithNamespace(limited, "shop"))
	shop.exhaust(t)
	for _, l := range shop.limits {
		if l, ok := l.(interface {
			Reset(context.Context, limit.Key) error
		}); ok {
			require.NoError(t, l.Reset(t.Context(), limit.Key{"user", "", "ann"}))
		}
	}
	ann, token := shop.join(t)
	err := shop.Publish("room/a", note{1}, router.Stored(t.Context(), nil))
	require.NoError(t, err)
	ann.Next()
	_, _, err = shop.ReadState(t.Context(), "room/a")
	require.NoError(t, err)
	ann.Abort()
	decodeToken(t, ask(t, routertest.Dial(t, shop.Router, routertest.Token("ann")), "$ws:resume", fmt.Sprintf(`{"token":%q}`, token)))
	require.NoError(t, shop.Revoke(t.Context(), "", "ann", "room/a"))

	denied, err := server.Client(t).Do(t.Context(), "ACL", "LOG").Slice()
	require.NoError(t, err)
	for _, entry := range denied { // the eviction policy is then read with INFO
		assert.Contains(t, fmt.Sprint(entry), "object:config|get")
	}
	require.ErrorContains(t, limited.Get(t.Context(), "penstock:limit:x").Err(), "NOPERM")
	require.ErrorContains(t, limited.Publish(t.Context(), "penstock:topic:x", "").Err(), "NOPERM")
}
