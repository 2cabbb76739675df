package postgres

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestSequence_SnapshotOfAnotherServerIsNotUsed gives a node the snapshot of a server that has used
// more transaction IDs than its present one, as an old primary has that accepts writes until it ends.
func TestSequence_SnapshotOfAnotherServerIsNotUsed(t *testing.T) {
	t.Parallel()
	pool, schema := newSchema(t)
	n := connect(t, NewBroker(pool, &Options{Schema: schema, PollInterval: time.Hour}))
	n.publish(t, "news", "1")
	_, err := pool.Exec(t.Context(), inSchema(`INSERT INTO penstock.lineage (no, epoch, identity)
		SELECT no + 1, 'next', identity FROM penstock.lineage ORDER BY no DESC LIMIT 1`, schema)) // by another node
	require.NoError(t, err)
	st := &n.HistoryNode.(*historyNode).store.shards[shardOf("news")]
	st.mu.Lock()
	st.snapshot, st.snapshotAt = "4000000000:4000000000:", time.Now()
	st.mu.Unlock()

	require.NoError(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		return Outbox{Schema: schema}.Publish(t.Context(), tx, appendOf("news", "2"))
	}))
	assert.Equal(t, "next", n.publish(t, "news", "3").Position.Epoch)
	_, packets := n.page(t, "news")
	assert.Equal(t, []string{"1", "2", "3"}, packets)
}
