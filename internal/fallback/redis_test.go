package fallback_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/adapters/redis"
	"github.com/penstock-go/penstock/internal/redistest"
	"github.com/penstock-go/penstock/router"
)

// TestRedis_EachRequestReachesAnotherNode has three nodes on Redis, as servers on loopback.
func TestRedis_EachRequestReachesAnotherNode(t *testing.T) {
	t.Parallel()
	client := redis.WithNamespace(redistest.Shared(t), "fallback-"+rand.Text())
	var servers []*httptest.Server
	for range 3 {
		r := router.New(&router.Options{Broker: redis.NewBroker(client)})
		router.RPC(r, echo)
		server := httptest.NewServer(r.HTTPFallback(nil))
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			assert.NoError(t, r.Shutdown(ctx))
			server.Close()
		})
		servers = append(servers, server)
	}
	next := -1
	c := clientOf(t, func(req *http.Request) (*http.Response, error) {
		for { // until the nodes know each other
			next = (next + 1) % 3
			again := req.Clone(req.Context())
			again.URL.Host = servers[next].Listener.Addr().String()
			again.Body, _ = req.GetBody()
			resp, err := servers[next].Client().Do(again)
			if err != nil || resp.StatusCode != http.StatusServiceUnavailable {
				return resp, err
			}
			_ = resp.Body.Close()
			next-- // the same node again
			time.Sleep(100 * time.Millisecond)
		}
	})
	for _, mode := range []string{"stream", "poll"} {
		c.seq, c.ack = 0, 0
		events := c.open(mode)
		for i := range 30 {
			c.up(call(i, i))
			if mode == "poll" || i%7 == 0 {
				events.close()
				events = c.events(mode)
			}
			assert.Contains(t, c.receive(events).data, fmt.Sprintf(`{"n":%d}`, i))
		}
		events.close()
	}
}
