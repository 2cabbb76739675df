package router_test

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/cluster"
	"github.com/penstock-go/penstock/internal/cluster/enginetest"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// A netNode is a router on a network with faults.
type netNode struct {
	*router.Router
	*cluster.Node
	network *enginetest.Network
}

// A netBroker keeps the session of its node.
type netBroker struct {
	*cluster.Broker
	session *cluster.Node
}

func (b *netBroker) Connect(h broker.Handler) broker.Node {
	b.session = b.Broker.Connect(h).(*cluster.Node)
	return b.session
}

// newNetNode returns a node whose users are those of their tokens.
func newNetNode(t *testing.T, network *enginetest.Network, opts router.Options) *netNode {
	t.Helper()
	b := &netBroker{Broker: cluster.New(network)}
	opts.Broker = b
	opts.Authenticate = func(req *http.Request) (router.Identity, error) {
		return router.Identity{UserID: router.Token(req)}, nil
	}
	n := &netNode{router.New(&opts), b.session, network}
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = n.Shutdown(ctx)
		synctest.Wait()
		n.isIdle(t)
		time.Sleep(3 * time.Second) // for what is in transit
	})
	return n
}

// Close ends the session, of which the router has another method.
func (n *netNode) Close(ctx context.Context) error { return n.Node.Close(ctx) }

// update changes the faults of the node.
func (n *netNode) update(change func(*enginetest.Faults)) { n.network.Update(n.Name(), change) }

// isIdle checks that the node waits for no answer, and that none waits for it.
func (n *netNode) isIdle(t *testing.T) {
	t.Helper()
	asked, served, calls, bytes := router.OpenAsks(n.Router)
	assert.Zero(t, asked, "asks")
	assert.Zero(t, served, "asks of other nodes")
	assert.Zero(t, calls, "calls for other nodes")
	assert.Zero(t, bytes, "bytes of answers")
}

// netNodes returns nodes that know each other.
func netNodes(t *testing.T, n int, opts router.Options) (network *enginetest.Network, nodes []*netNode) {
	t.Helper()
	network = enginetest.New()
	for range n {
		nodes = append(nodes, newNetNode(t, network, opts))
	}
	time.Sleep(3 * time.Second) // heartbeats were exchanged
	return network, nodes
}

// dialUser opens a connection and returns both sides.
func dialUser(t *testing.T, r *router.Router, user string) (*routertest.Conn, *router.Conn) {
	t.Helper()
	before := map[*router.Conn]bool{}
	for _, c := range collect(r) {
		before[c] = true
	}
	client := routertest.Dial(t, r, routertest.Token(user))
	synctest.Wait()
	for _, c := range collect(r) {
		if !before[c] {
			return client, c
		}
	}
	t.Fatal("the connection is not open")
	return nil, nil
}

// confirmByID makes a call with CallConn on a new goroutine.
func confirmByID(ctx context.Context, r *router.Router, connID string) <-chan outcome {
	done, start := make(chan outcome, 1), time.Now()
	go func() {
		reply, err := router.CallConn[Confirmed](ctx, r, connID, Confirm{"delete?"})
		done <- outcome{reply, err, time.Since(start)}
	}()
	return done
}

// lossy loses what a node publishes.
func lossy(f *enginetest.Faults) { f.Lose = true }

// healthy ends all faults.
func healthy(f *enginetest.Faults) { *f = enginetest.Faults{} }
