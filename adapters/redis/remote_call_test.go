package redis_test

import (
	"context"
	"net/http"
	"strconv"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/redis"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/redistest"
	"github.com/penstock-go/penstock/internal/testscale"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// question is a call to clients.
type question struct {
	Text string `json:"text"`
}

func (question) MessageType() string { return "QUESTION" }

// reply is the reply to question.
type reply struct {
	Text string `json:"text"`
}

func (reply) MessageType() string { return "REPLY" }

// newCallNode returns a node whose users are those of their tokens.
func newCallNode(t *testing.T, client goredis.UniversalClient) *router.Router {
	r := router.New(&router.Options{Broker: redis.NewBroker(client), Authenticate: func(req *http.Request) (router.Identity, error) {
		return router.Identity{UserID: router.Token(req)}, nil
	}})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = r.Shutdown(ctx)
	})
	return r
}

// dialAnswering connects ann, who answers each question with its text.
func dialAnswering(t *testing.T, r *router.Router) {
	routertest.Handle(routertest.Dial(t, r, routertest.Token("ann")), func(q question) (reply, error) { return reply(q), nil })
}

// awaitConns waits until all nodes know all connections of ann.
func awaitConns(t *testing.T, want int, nodes ...*router.Router) (conns []router.UserConn) {
	t.Helper()
	for _, n := range nodes {
		require.Eventually(t, func() bool {
			got, err := n.UserConns(t.Context(), "", "ann")
			conns = got.Conns
			return err == nil && len(conns) == want
		}, time.Minute, 10*time.Millisecond)
	}
	return conns
}

// TestRemoteCall_OneServer calls clients of other nodes through one Redis server.
func TestRemoteCall_OneServer(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	callAllNodes(t, func() goredis.UniversalClient { return server.Client(t) })
}

// TestRemoteCall_SentinelAndCluster does the same through other kinds of servers.
func TestRemoteCall_SentinelAndCluster(t *testing.T) {
	testscale.FullOnly(t, "TestRemoteCall_OneServer")
	t.Parallel()
	t.Run("Sentinel", func(t *testing.T) {
		t.Parallel()
		sentinel := redistest.StartSentinel(t)
		callAllNodes(t, func() goredis.UniversalClient { return sentinel.Client(t) })
	})
	t.Run("Cluster", func(t *testing.T) {
		t.Parallel()
		servers := redistest.StartCluster(t)
		callAllNodes(t, func() goredis.UniversalClient { return servers.Client(t) })
	})
}

// callAllNodes calls the clients of three nodes from each of them.
func callAllNodes(t *testing.T, client func() goredis.UniversalClient) {
	t.Helper()
	nodes := []*router.Router{newCallNode(t, client()), newCallNode(t, client()), newCallNode(t, client())}
	for _, n := range nodes {
		dialAnswering(t, n)
	}
	conns := awaitConns(t, len(nodes), nodes...)
	for _, c := range conns {
		for _, n := range nodes {
			got, err := router.CallConn[reply](t.Context(), n, c.ConnID, question{"hi"})
			require.NoError(t, err)
			assert.Equal(t, reply{"hi"}, got)
		}
	}
	for _, n := range nodes {
		answered := map[string]bool{}
		for r := range router.CallUser[reply](t.Context(), n, "", "ann", question{"hi"}) {
			require.NoError(t, r.Err)
			answered[r.NodeID] = true
		}
		assert.Len(t, answered, len(nodes))
	}
	require.NoError(t, nodes[2].Shutdown(t.Context()))
	awaitConns(t, len(nodes)-1, nodes[:2]...)
	for _, c := range conns {
		_, err := router.CallConn[reply](t.Context(), nodes[0], c.ConnID, question{})
		assert.Equal(t, c.NodeID == nodes[2].NodeID(), errors.CodeOf(err) == errors.NotFound, "%v", err)
	}
}

// TestRemoteCall_CutConnections calls a client while the caller, or the node of the client, has no
// connection to Redis.
func TestRemoteCall_CutConnections(t *testing.T) {
	testscale.FullOnly(t, "TestRemoteCall_OneServer")
	t.Parallel()
	for _, cut := range []int{0, 1} {
		t.Run([]string{"of the caller", "of the client"}[cut], func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			var proxies []*redistest.Proxy
			var nodes []*router.Router
			for range 2 {
				proxy := redistest.StartProxy(t, server.Addr)
				proxies = append(proxies, proxy)
				nodes = append(nodes, newCallNode(t, server.Client(t, func(o *goredis.Options) { o.Addr = proxy.Addr })))
			}
			dialAnswering(t, nodes[1])
			conns := awaitConns(t, 1, nodes[0])
			proxies[cut].Cut()
			start := time.Now()
			_, err := router.CallConn[reply](t.Context(), nodes[0], conns[0].ConnID, question{})
			assert.Equal(t, errors.Unavailable, errors.CodeOf(err))
			assert.Less(t, time.Since(start), 20*time.Second, "not only after Timeouts.Call")
			proxies[cut].Restore()
			require.EventuallyWithT(t, func(t *assert.CollectT) {
				_, err := router.CallConn[reply](context.Background(), nodes[0], conns[0].ConnID, question{})
				assert.NoError(t, err)
			}, time.Minute, 5*time.Millisecond)
		})
	}
}

// TestRemoteCall_CostsTwoPackets counts what calls cost on Redis.
func TestRemoteCall_CostsTwoPackets(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	nodes := make([]*router.Router, 4)
	for i := range nodes {
		nodes[i] = newCallNode(t, server.Client(t))
	}
	dialAnswering(t, nodes[1])
	conn := awaitConns(t, 1, nodes...)[0]
	const calls, attempts = 200, 5
	measure := func(what string, most float64, call func()) {
		var perCall float64
		for range attempts { // other packets on a busy computer are not those of the calls
			before, start := readCost(t, server), time.Now()
			for range calls {
				call()
			}
			cost := readCost(t, server).minus(before)
			idle := 3 * float64(len(nodes)) * time.Since(start).Seconds() // about one heartbeat and two probes of each node per second
			perCall = (float64(cost.published) - idle) / calls
			t.Logf("%s: %.2f PUBLISH commands, %.0f bytes to Redis, %.0f bytes from it", what, perCall, float64(cost.in)/calls, float64(cost.out)/calls)
			if perCall <= most+.5 {
				return
			}
		}
		assert.LessOrEqual(t, perCall, most+.5)
	}
	measure("CallConn", 2, func() {
		_, err := router.CallConn[reply](t.Context(), nodes[0], conn.ConnID, question{"hi"})
		require.NoError(t, err)
	})
	measure("CallUser on 4 nodes", 4, func() {
		for r := range router.CallUser[reply](t.Context(), nodes[0], "", "ann", question{"hi"}) {
			require.NoError(t, r.Err)
		}
	})
	measure("UserConns on 4 nodes", 4, func() {
		_, err := nodes[0].UserConns(t.Context(), "", "ann")
		require.NoError(t, err)
	})
	measure("CallConn on its own node", 0, func() {
		_, err := router.CallConn[reply](t.Context(), nodes[1], conn.ConnID, question{"hi"})
		require.NoError(t, err)
	})
	measure("CallConn without a connection", 0, func() {
		_, err := router.CallConn[reply](t.Context(), nodes[0], "GONE", question{"hi"})
		require.Error(t, err)
	})
}

// A cost is what a server has done since its start.
type cost struct{ published, in, out int64 }

func (c cost) minus(d cost) cost { return cost{c.published - d.published, c.in - d.in, c.out - d.out} }

func readCost(t *testing.T, server *redistest.Server) (c cost) {
	t.Helper()
	c.published = server.CommandStats(t)["publish"]
	stats, err := server.Client(t).InfoMap(t.Context(), "stats").Result()
	require.NoError(t, err)
	for key, to := range map[string]*int64{"total_net_input_bytes": &c.in, "total_net_output_bytes": &c.out} {
		*to, err = strconv.ParseInt(stats["Stats"][key], 10, 64)
		require.NoError(t, err)
	}
	return c
}
