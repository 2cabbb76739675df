package postgres

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/postgrestest"
)

// restoreCopy publishes one message that is in a copy of the data and some that are not, restores
// the copy, and returns the position before that. No node and no process has any memory of it.
func restoreCopy(t *testing.T) (restored *postgrestest.Server, before broker.Position) {
	server := startServer(t)
	pool := openPool(t, server.URL())
	connect(t, NewBroker(pool, nil)).publish(t, "news", "1")
	pool.Close()
	server.Stop()
	restored = server.Copy()
	server.Restart()
	n := connect(t, NewBroker(openPool(t, server.URL()), nil))
	for i := range 5 {
		before = n.publish(t, "news", fmt.Sprint("lost ", i)).Position
	}
	n.HistoryNode.(*historyNode).Kill()
	server.Stop()
	restored.Restart()
	return restored, before
}

// positionOf reads the position of news for a client that has one.
func (n *node) positionOf(t testing.TB, known broker.Position) broker.Page {
	t.Helper()
	pages, err := n.ReadAll(t.Context(), broker.Batch{Topics: []broker.TopicQuery{{Topic: "news", Retention: keepAll, After: known.Offset, Epoch: known.Epoch}}})
	require.NoError(t, err)
	return pages[0].Page
}

// TestRestored_PositionAboveTheTopEndsEpoch asks with the position of a client.
func TestRestored_PositionAboveTheTopEndsEpoch(t *testing.T) {
	t.Parallel()
	server, before := restoreCopy(t)
	n := connect(t, NewBroker(openPool(t, server.URL()), nil))
	first := broker.Position{Epoch: before.Epoch, Offset: 1}
	assert.Equal(t, first, n.positionOf(t, first).Position, "nothing shows that the data is a copy")

	page := n.positionOf(t, before)
	assert.NotEqual(t, before.Epoch, page.Position.Epoch)
	assert.EqualValues(t, 1, page.Position.Offset)
	assert.Equal(t, first, page.Previous)
	assert.Equal(t, broker.Position{Epoch: page.Position.Epoch, Offset: 2}, n.publish(t, "news", "2").Position)

	invented := broker.Position{Epoch: page.Position.Epoch, Offset: 1 << 52}
	assert.Equal(t, page.Position.Epoch, n.positionOf(t, invented).Position.Epoch, "clients cannot begin epochs as often as they like")
}

func TestRestored_FunctionEndsEpoch(t *testing.T) {
	t.Parallel()
	server, before := restoreCopy(t)
	pool := openPool(t, server.URL())
	_, err := pool.Exec(t.Context(), "SELECT penstock.restored()")
	require.NoError(t, err)
	n := connect(t, NewBroker(pool, nil))
	stored := n.publish(t, "news", "2")
	assert.NotEqual(t, before.Epoch, stored.Position.Epoch)
	page := n.positionOf(t, stored.Position)
	assert.Equal(t, broker.Position{Epoch: before.Epoch, Offset: 1}, page.Previous)
	_, packets := n.page(t, "news")
	assert.Equal(t, []string{"1", "2"}, packets)
}
