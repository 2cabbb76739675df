package fallback_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/cluster"
	"github.com/penstock-go/penstock/internal/cluster/enginetest"
	"github.com/penstock-go/penstock/router"
)

// A nodes is a cluster, whose requests reach the node that is chosen.
type nodes struct {
	network *enginetest.Network
	routers []*router.Router
	do      []func(*http.Request) (*http.Response, error)
	choose  func() int
	address string // of the clients, which may change between two requests; "" is unknown
}

// newNodes returns nodes that know each other, with their own broker or that of opts. setUp registers handlers.
func newNodes(t *testing.T, n int, opts router.Options, setUp func(*router.Router)) *nodes {
	t.Helper()
	return newNodesWith(t, n, opts, nil, setUp)
}

// newNodesWith is newNodes with options of HTTPFallback.
func newNodesWith(t *testing.T, n int, opts router.Options, fallback *router.FallbackOptions, setUp func(*router.Router)) *nodes {
	t.Helper()
	c := &nodes{network: enginetest.New()}
	shared := opts.Broker
	for range n {
		if shared == nil {
			opts.Broker = cluster.New(c.network)
		}
		r := router.New(&opts)
		setUp(r)
		t.Cleanup(func() {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			_ = r.Shutdown(ctx)
		})
		c.routers = append(c.routers, r)
		h := r.HTTPFallback(fallback)
		c.do = append(c.do, serveInMemory(t, &http.Server{Handler: withAddress(h, &c.address)}).Do)
	}
	next := -1
	c.choose = func() int { // each request reaches another node
		next = (next + 1) % n
		return next
	}
	time.Sleep(3 * time.Second) // heartbeats were exchanged
	return c
}

// client returns a client whose requests reach the chosen nodes.
func (c *nodes) client(t *testing.T) *client {
	t.Helper()
	return clientOf(t, func(req *http.Request) (*http.Response, error) { return c.do[c.choose()](req) })
}

func TestPeers_EachRequestReachesAnotherNode(t *testing.T) {
	for n := 2; n <= 3; n++ {
		for _, mode := range []string{"stream", "poll"} {
			runSynctest(t, fmt.Sprintf("%d/%s", n, mode), func(t *testing.T) {
				c := newNodes(t, n, router.Options{}, func(r *router.Router) { router.RPC(r, echo) })
				client := c.client(t)
				events := client.open(mode)
				owner := onlyConn(t, c.routers[0])
				for i := range 20 {
					client.up(call(i, i))
					events.close()
					events = client.events(mode)
					assert.Contains(t, client.receive(events).data, fmt.Sprintf(`{"n":%d}`, i))
				}
				if mode == "stream" { // one response carries on over many questions
					for i := range 5 {
						time.Sleep(7 * time.Second)
						assert.Equal(t, http.StatusNoContent, client.acknowledge())
						require.NoError(t, owner.Send(Echo{N: i}))
						assert.Contains(t, client.receive(events).data, fmt.Sprintf(`{"n":%d}`, i))
					}
				}
				large := strings.Repeat("x", 300<<10)
				require.NoError(t, owner.Send(text{large}))
				if mode == "poll" {
					events.close()
					events = client.events(mode)
				}
				assert.Contains(t, client.receive(events).data, large)
				assert.Equal(t, http.StatusNoContent, client.acknowledge())
				owner.Close(4001, "done")
				if mode == "poll" {
					events.close()
					events = client.events(mode)
				}
				assert.Equal(t, `{"code":4001,"reason":"done"}`, client.receive(events).data)
				_, err := events.next()
				require.Error(t, err)
				events.close()
			})
		}
	}
}

// TestPeers_OwnerThatHasGone checks what the requests of a client are answered after its node has failed, has been
// shut down, or cannot be reached.
func TestPeers_OwnerThatHasGone(t *testing.T) {
	for name, tt := range map[string]struct {
		end  func(*nodes)
		want int
	}{
		"failed": {func(c *nodes) {
			c.network.Update(c.routers[0].NodeID(), func(f *enginetest.Faults) { f.Lose, f.Deaf = true, true })
			time.Sleep(time.Minute)
		}, http.StatusConflict},
		"shut down": {func(c *nodes) {
			_ = c.routers[0].Shutdown(context.Background())
			time.Sleep(time.Second)
		}, http.StatusConflict},
		"mute": {func(c *nodes) {
			c.network.Update(c.routers[0].NodeID(), func(f *enginetest.Faults) { f.Deaf = true })
		}, http.StatusServiceUnavailable},
	} {
		runSynctest(t, name, func(t *testing.T) {
			c := newNodes(t, 2, router.Options{}, func(*router.Router) {})
			client := c.client(t)
			c.choose = func() int { return 0 }
			client.open("poll").close()
			tt.end(c)
			c.choose = func() int { return 1 }
			start := time.Now()
			assert.Equal(t, tt.want, client.acknowledge())
			if tt.want == http.StatusServiceUnavailable {
				assert.LessOrEqual(t, time.Since(start), 5*time.Second)
				return // the broker finds the fault, and ends it
			}
			resp := client.down("stream")
			assert.Equal(t, tt.want, resp.StatusCode)
			require.NoError(t, resp.Body.Close())
		})
	}
}

// TestPeers_UnknownSecretsCostNoPackets counts what nodes are asked for secrets that no node has made, and for guesses
// of a connection of another node.
func TestPeers_UnknownSecretsCostNoPackets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newNodes(t, 2, router.Options{}, func(*router.Router) {})
		client := c.client(t)
		c.choose = func() int { return 0 }
		client.open("stream").close()
		right := client.secret
		c.choose = func() int { return 1 }
		// Its node does not hear anything any more, so that what needs its answer takes five seconds.
		c.network.Update(c.routers[0].NodeID(), func(f *enginetest.Faults) { f.Deaf = true })
		start := time.Now()
		client.secret = otherThan(right[0]) + right[1:]
		assert.Equal(t, http.StatusConflict, client.acknowledge())
		assert.Zero(t, time.Since(start))
		client.secret = right[:len(right)-1] + otherThan(right[len(right)-1])
		assert.Equal(t, http.StatusServiceUnavailable, client.acknowledge())
		assert.Equal(t, 5*time.Second, time.Since(start))
	})
}

// otherThan returns a character of secrets that differs from c.
func otherThan(c byte) string {
	if c == 'A' {
		return "B"
	}
	return "A"
}
