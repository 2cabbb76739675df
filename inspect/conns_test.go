package inspect_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/inspect"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// TestConns_FoundOnAllNodes finds connections by user, tenant, address and ID on three nodes.
func TestConns_FoundOnAllNodes(t *testing.T) {
	t.Parallel()
	nodes := newCluster(t, 3)
	findsConns(t, nodes)
}

func findsConns(t *testing.T, nodes []*testNode) {
	for i, n := range nodes {
		routertest.Dial(t, n.router, routertest.Token("acme:ann"))
		routertest.Dial(t, n.router, routertest.Token(fmt.Sprintf("acme:user%d", i)))
	}
	routertest.Dial(t, nodes[0].router, routertest.Token("ann")) // of no tenant
	var found object
	require.Eventually(t, func() bool { // nodes on Redis do not know each other at once
		found = nodes[0].post(t, inspect.ViewConns, object{"tenant": "acme", "user": "ann"})
		return len(rows(t, found)) == 3 && found["nodes"].(object)["complete"] == true
	}, time.Minute, 20*time.Millisecond, "%v", &found)
	assert.Empty(t, found["nodes"].(object)["missing"])
	assert.ElementsMatch(t, []any{nodes[0].router.NodeID(), nodes[1].router.NodeID(), nodes[2].router.NodeID()}, column(rows(t, found), "node"))
	assert.Equal(t, []any{"ann", "ann", "ann"}, column(rows(t, found), "user"))

	remote := rows(t, found)[2]
	byID := rows(t, nodes[1].post(t, inspect.ViewConns, object{"id": remote["id"]}))
	require.Len(t, byID, 1)
	assert.Equal(t, remote["node"], byID[0]["node"])
	assert.Len(t, rows(t, nodes[1].post(t, inspect.ViewConns, object{"tenant": "acme"})), 6)
	assert.Len(t, rows(t, nodes[2].post(t, inspect.ViewConns, object{})), 7)
	assert.Len(t, rows(t, nodes[2].post(t, inspect.ViewConns, object{"ip": "192.0.2.1"})), 7)
	assert.Len(t, rows(t, nodes[2].post(t, inspect.ViewConns, object{"ip": "192.0.2.0/24", "tenant": "acme"})), 6)
	assert.Empty(t, rows(t, nodes[0].post(t, inspect.ViewConns, object{"user": "none"})))
	assert.Empty(t, rows(t, nodes[0].post(t, inspect.ViewConns, object{"ip": "198.51.100.0/24"})))
	assert.Contains(t, nodes[0].fail(t, http.StatusBadRequest, inspect.ViewConns, object{"ip": "nowhere"}), "must be an address or a prefix")
	assert.Contains(t, nodes[0].fail(t, http.StatusBadRequest, inspect.ViewConns, object{"after": "x"}), "after is not the next of a page")
	assert.Contains(t, nodes[0].fail(t, http.StatusBadRequest, inspect.ViewConns, object{"usr": "ann"}), "unknown object member name")
}

// TestConns_PagesHaveEachConnectionOnce reads 250 connections of two nodes in pages of 100.
func TestConns_PagesHaveEachConnectionOnce(t *testing.T) {
	t.Parallel()
	nodes := newCluster(t, 2)
	for i := range 250 {
		routertest.Dial(t, nodes[i%2].router, routertest.Token(fmt.Sprintf("user%03d", i)))
	}
	seen := map[any]bool{}
	var sizes []int
	after := ""
	for {
		page := nodes[0].post(t, inspect.ViewConns, object{"after": after})
		assert.EqualValues(t, 250, page["total"])
		sizes = append(sizes, len(rows(t, page)))
		for _, id := range column(rows(t, page), "id") {
			assert.False(t, seen[id], "twice")
			seen[id] = true
		}
		next, ok := page["next"].(string)
		if !ok {
			break
		}
		after = next
	}
	assert.Len(t, seen, 250)
	assert.Equal(t, []int{100, 100, 50}, sizes)
}

// TestConn_ShowsTopicsAndLimits asks another node than that of the connection.
func TestConn_ShowsTopicsAndLimits(t *testing.T) {
	t.Parallel()
	nodes := newCluster(t, 2)
	ann := routertest.Dial(t, nodes[1].router, routertest.Token("ann"))
	routertest.Call[Said](ann, Join{"room/a"})
	require.NoError(t, nodes[1].router.Publish("room/a", Said{"hello"}))
	routertest.Receive[Said](ann)
	id := rows(t, nodes[0].post(t, inspect.ViewConns, object{"user": "ann"}))[0]["id"]
	found := nodes[0].post(t, inspect.ViewConn, object{"id": id})["conn"].(object)
	assert.Equal(t, nodes[1].router.NodeID(), found["node"])
	assert.EqualValues(t, 0, found["calls"])
	assert.Greater(t, found["messageBurst"], 1.0)
	assert.Less(t, found["messageTokens"], found["messageBurst"].(float64)+1)
	topic := found["topics"].([]any)[0].(object)
	assert.Equal(t, "room/a", topic["name"])
	assert.Equal(t, "room/{id}", topic["pattern"])
	assert.EqualValues(t, 1, topic["offset"])
	assert.Nil(t, nodes[0].post(t, inspect.ViewConn, object{"id": "none"})["conn"])
}

// TestDisconnect_ClosesOnAnotherNode closes one connection, ends the session of another one, and
// then disconnects the user.
func TestDisconnect_ClosesOnAnotherNode(t *testing.T) {
	t.Parallel()
	nodes := newCluster(t, 2)
	dial := func() (*routertest.Conn, string) {
		c := routertest.Dial(t, nodes[1].router, routertest.Token("acme:ann"))
		all := rows(t, nodes[0].post(t, inspect.ViewConns, object{"tenant": "acme", "user": "ann"}))
		return c, all[len(all)-1]["id"].(string)
	}
	assert.Contains(t, nodes[0].fail(t, http.StatusNotFound, inspect.Disconnect, object{"id": "none"}), "no node")
	assert.Contains(t, nodes[0].fail(t, http.StatusBadRequest, inspect.Disconnect, object{}), "id is empty")
	c, id := dial()
	nodes[0].post(t, inspect.Disconnect, object{"id": id, "reason": "deploy"})
	assert.Equal(t, router.CloseError{Code: router.StatusServiceRestart, Reason: "deploy"}, c.Closed())
	c, id = dial()
	nodes[0].post(t, inspect.EndSession, object{"id": id})
	assert.Equal(t, router.StatusPolicyViolation, c.Closed().Code)
	c, _ = dial()
	nodes[0].post(t, inspect.DisconnectUser, object{"tenant": "acme", "user": "ann", "reason": "abuse"})
	assert.Equal(t, router.CloseError{Code: router.StatusPolicyViolation, Reason: "abuse"}, c.Closed())
	assert.Contains(t, nodes[0].fail(t, http.StatusBadRequest, inspect.DisconnectUser, object{"tenant": "acme"}), "user is empty")
}

// TestRevoke_UnsubscribesOnAnotherNode ends a subscription.
func TestRevoke_UnsubscribesOnAnotherNode(t *testing.T) {
	t.Parallel()
	nodes := newCluster(t, 2)
	ann := routertest.Dial(t, nodes[1].router, routertest.Token("ann"))
	routertest.Call[Said](ann, Join{"room/a"})
	nodes[0].post(t, inspect.Revoke, object{"user": "ann", "topic": "room/{id}"})
	for c := range nodes[1].router.Conns() {
		require.Eventually(t, func() bool { return !c.Subscribed("room/a") }, time.Minute, time.Millisecond)
	}
	nodes[0].fail(t, http.StatusBadRequest, inspect.Revoke, object{"user": "ann", "topic": ""})
}

// TestNodes_SilentNodeIsShown has a node that does not answer, and one without an inspector.
func TestNodes_SilentNodeIsShown(t *testing.T) {
	t.Parallel()
	b := memory.NewBroker()
	n := newNode(t, b, func(o *inspect.Options) { o.Timeout = 50 * time.Millisecond })
	silent := b.Connect(broker.Callbacks{})
	defer func() { _ = silent.Close(t.Context()) }()
	without := router.New(&router.Options{Broker: b})
	result := n.post(t, inspect.ViewNodes, nil)
	assert.Equal(t, []any{n.router.NodeID()}, result["nodes"].(object)["answered"])
	assert.ElementsMatch(t, []any{
		object{"node": silent.Name(), "error": "the node has not answered in time"},
		object{"node": without.NodeID(), "error": "no inspector is mounted on this node"},
	}, result["nodes"].(object)["missing"])
	require.Len(t, rows(t, result), 1)
	assert.Equal(t, true, rows(t, result)[0]["asker"])
	assert.Equal(t, true, rows(t, result)[0]["healthy"])
}

// TestNodes_WithoutBroker has one node without a name.
func TestNodes_WithoutBroker(t *testing.T) {
	t.Parallel()
	n := newNode(t, nil)
	routertest.Dial(t, n.router, routertest.Token("ann"))
	result := n.post(t, inspect.ViewNodes, nil)
	require.Len(t, rows(t, result), 1)
	assert.EqualValues(t, 1, rows(t, result)[0]["conns"])
	assert.Equal(t, true, result["nodes"].(object)["complete"])
	assert.Len(t, rows(t, n.post(t, inspect.ViewConns, object{})), 1)
}
