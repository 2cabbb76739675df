package chat

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/limitfile"
	"github.com/penstock-go/penstock/middleware/metrics"
	"github.com/penstock-go/penstock/router/routertest"
)

// announcedCapacity returns that of the limit in the answer to a greeting.
func announcedCapacity(t *testing.T, c *routertest.Conn) int64 {
	t.Helper()
	c.SendText(`{"type":"$ws:hello","meta":{"correlationId":"1"}}`)
	var welcome struct {
		Payload struct{ Limits []struct{ Capacity int64 } }
	}
	require.NoError(t, json.Unmarshal([]byte(c.Next().Text), &welcome))
	require.Len(t, welcome.Payload.Limits, 1)
	return welcome.Payload.Limits[0].Capacity
}

func TestLimits_FollowTheFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "limits.txt")
		require.NoError(t, os.WriteFile(path, []byte("chat: 1/h burst 3\ntry: 1/h\n"), 0o600))
		chat := newServer(newConfig(t, "-limits="+path, "-try=9/s"))
		hangups := make(chan os.Signal)
		require.NoError(t, chat.limits.follow(t.Context(), path, hangups))
		ann := routertest.Dial(t, chat.router, withToken("ann"))
		assert.EqualValues(t, 3, announcedCapacity(t, ann))
		for range 3 {
			routertest.Call[Users](ann, Who{"go"})
		}
		require.EqualValues(t, "RESOURCE_EXHAUSTED", routertest.CallError(ann, Who{"go"}).Code)

		require.NoError(t, os.WriteFile(path, []byte("chat: 1/h burst 5\ntry: 1/h\n"), 0o600))
		time.Sleep(2 * limitfile.Interval)
		synctest.Wait()
		assert.EqualValues(t, 5, announcedCapacity(t, ann))
		for range 2 {
			routertest.Call[Users](ann, Who{"go"})
		}
		require.EqualValues(t, "RESOURCE_EXHAUSTED", routertest.CallError(ann, Who{"go"}).Code, "the change has refilled nothing")

		require.NoError(t, os.WriteFile(path, []byte("chat: 1/h burst 6\ntry: 1/h\n"), 0o600))
		hangups <- syscall.SIGHUP
		synctest.Wait()
		routertest.Call[Users](ann, Who{"go"})
	})
}

// Nothing listens on the address of Redis: the node grants its share of the limit.
func TestRateLimit_IsDividedWhileRedisDoesNotAnswer(t *testing.T) {
	ann := routertest.Dial(t, newChat(t, "-capacity=100", "-refill=1", "-nodes=10", "-key=user", "-redis=redis://127.0.0.1:1"), withToken("ann"))
	for range 10 {
		routertest.Call[Users](ann, Who{"go"})
	}
	refused := 0
	for range 5 {
		ann.Send(Who{"go"})
		if strings.Contains(ann.Next().Text, `"RESOURCE_EXHAUSTED"`) {
			refused++
		}
	}
	assert.GreaterOrEqual(t, refused, 3, "a token returns after ten seconds")
}

// The limiter on Redis and its fallback change together, or not at all, even while Redis is unavailable.
func TestSharedLimiter_SetsBothPolicies(t *testing.T) {
	client := goredis.NewClient(&goredis.Options{Addr: "127.0.0.1:1"})
	defer client.Close() //nolint:errcheck // it has no connection
	cfg := newConfig(t, "-nodes=1000", "-capacity=40")
	cfg.redis = client
	l := newLimits(cfg, metrics.New(prometheus.NewRegistry(), nil))
	shared := l.inFile[0].(sharedLimiter)
	capacities := func() []int64 { return []int64{shared.Describe()[0].Limit, shared.fallback.Describe()[0].Limit} }
	assert.Equal(t, []int64{40, 5}, capacities())
	require.NoError(t, shared.SetPolicy(limit.PerSecond(5).Burst(8000).Named("chat")))
	assert.Equal(t, []int64{8000, 8}, capacities())
	require.ErrorContains(t, shared.SetPolicy(limit.Per(1, 87600*time.Hour).Named("chat")), "the share of one of 1000 nodes")
	assert.Equal(t, []int64{8000, 8}, capacities())
}
