package fallback_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
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
	for _, mode := range []string{"stream", "poll"} {
		runSynctest(t, mode, func(t *testing.T) {
			c := newNodes(t, 3, router.Options{}, func(r *router.Router) { router.RPC(r, echo) })
			client := c.client(t)
			events := client.open(mode)
			owner := onlyConn(t, c.routers[0])
			next := func() string {
				events.close()
				events = client.events(mode)
				return client.receive(events).data
			}
			for i := range 20 {
				client.up(call(i, i))
				assert.Contains(t, next(), fmt.Sprintf(`{"n":%d}`, i))
			}
			for i := 0; i < 5 && mode == "stream"; i++ { // one response carries on over many questions
				time.Sleep(7 * time.Second)
				assert.Equal(t, http.StatusNoContent, client.acknowledge())
				require.NoError(t, owner.Send(Echo{N: i}))
				assert.Contains(t, client.receive(events).data, fmt.Sprintf(`{"n":%d}`, i))
			}
			large := strings.Repeat("x", 300<<10)
			require.NoError(t, owner.Send(text{large}))
			assert.Contains(t, next(), large)
			assert.Equal(t, http.StatusNoContent, client.acknowledge())
			owner.Close(4001, "done")
			assert.Equal(t, `{"code":4001,"reason":"done"}`, next())
			require.Error(t, errorOf(events.next()))
			events.close()
		})
	}
}

// otherThan returns a character of secrets that differs from c.
func otherThan(c byte) string {
	if c == 'A' {
		return "B"
	}
	return "A"
}
