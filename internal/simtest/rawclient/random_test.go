package rawclient_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/internal/deflate"
	"github.com/penstock-go/penstock/internal/simtest/rawclient"
	"github.com/penstock-go/penstock/router"
)

// TestClient_FindsNothingInRandomUse has clients of every kind do what they like on two nodes. The router
// keeps to the page, so nothing may be reported.
func TestClient_FindsNothingInRandomUse(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { randomUse(t, rand.New(rand.NewPCG(seed, 1))) }) //nolint:gosec // a test
		})
	}
}

func randomUse(t *testing.T, random *rand.Rand) {
	b := memory.NewBroker()
	var nodes []*router.Router
	for range 2 {
		nodes = append(nodes, newRouter(t, func(o *router.Options) {
			o.Broker, o.UserHistory = b, router.History{Messages: 10}
			o.Limits.QueueMessages = 8 + random.IntN(100)
			o.CompressMinBytes, o.CompressWindowBytes = 64, 2*deflate.MemoryBytes
		}))
	}
	var clients []*rawclient.Client
	for i := range 6 {
		own := rand.New(rand.NewPCG(random.Uint64(), 2)) //nolint:gosec // a test
		var turn atomic.Int64
		anyNode := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			nodes[turn.Add(1)%2].ServeHTTP(w, r)
		})
		clients = append(clients, newClient(t, anyNode, []string{"ann", "bob"}[i%2], func(cfg *rawclient.Config) {
			report := cfg.Report
			cfg.Report = func(f string, a ...any) {
				report(fmt.Sprintf("client %d, %s: ", i, time.Now().Format("04:05.000"))+f, a...)
			}
			cfg.Greet, cfg.Session, cfg.Trace, cfg.Rand = i > 0, i > 1, i == 2, own
			cfg.Deflate = []string{"", "permessage-deflate", "permessage-deflate; client_max_window_bits"}[i/2]
		}))
	}
	synctest.Wait()
	for range 150 {
		step(t, random, nodes[random.IntN(2)], clients[random.IntN(len(clients))])
		time.Sleep(time.Duration(random.IntN(300)) * time.Millisecond)
	}
	time.Sleep(3 * time.Minute)
	for _, c := range clients {
		c.Quiet()
	}
}

func step(t *testing.T, random *rand.Rand, r *router.Router, c *rawclient.Client) {
	topic := []string{"feed/a", "feed/b", "room/a", "room/b"}[random.IntN(4)]
	flip := func() bool { return random.IntN(2) == 0 }
	switch random.IntN(20) {
	case 0, 1, 2:
		c.Subscribe(topic, rawclient.SubscribeOptions{Presence: flip(), Positions: flip(), State: flip()})
	case 3:
		c.Unsubscribe(topic)
	case 4:
		c.Event("ENTER", enter{[]string{"private/a", topic}[random.IntN(2)]}, flip())
	case 5:
		c.Event("LEAVE", leave{[]string{"private/a", topic}[random.IntN(2)]}, flip())
	case 6, 7, 8:
		for i := range 1 + random.IntN(6) {
			m := price{string(rune('a' + random.IntN(5))), fmt.Sprint(i, strings.Repeat(" again", random.IntN(40)))}
			var opts []router.PublishOption
			if flip() {
				for conn := range r.Conns() {
					opts = []router.PublishOption{router.Except(conn)}
				}
			}
			_ = r.Publish([]string{topic, "private/a"}[random.IntN(2)], m, opts...)
		}
	case 9:
		_, err := r.SendToUser("t", "ann", echo{"for you"})
		assert.NoError(t, err)
	case 10:
		c.Call("ECHO", echo{"x"}, rawclient.CallOptions{Ack: flip(), Timeout: time.Second})
	case 11:
		id := c.Call("SLOW", slow{random.IntN(2000)}, rawclient.CallOptions{})
		if flip() {
			time.Sleep(time.Duration(random.IntN(2000)) * time.Millisecond)
			c.Abort(id)
		}
	case 12:
		credit := int64(random.IntN(3))
		id := c.Call("COUNT", count{random.IntN(9)}, rawclient.CallOptions{Stream: true, Credit: &credit})
		c.Credit(id, int64(random.IntN(9)))
	case 13:
		c.Drop(random.IntN(300), -1)
	case 14:
		c.Drop(-1, random.IntN(300))
	case 15:
		c.Pause(time.Duration(random.IntN(5000)) * time.Millisecond)
	case 16:
		c.Move()
	case 17:
		c.Refused([]byte(`{"type":"NO"}`))
		c.Heartbeat()
		c.Ping()
		c.Greet()
	case 18:
		assert.NoError(t, r.Revoke(context.Background(), "t", []string{"ann", "bob"}[random.IntN(2)], topic))
	case 19:
		for conn := range r.Conns() {
			_ = conn.Send(echo{"directly"})
		}
	}
}
