package postgres

import (
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/broker"
)

// TestOutbox_BacklogAndBatches publishes while no node runs, and then connects one.
func TestOutbox_BacklogAndBatches(t *testing.T) {
	t.Parallel()
	pool, schema := newSchema(t)
	o := Outbox{schema}
	backlog, err := o.Backlog(t.Context(), pool)
	require.NoError(t, err)
	assert.Zero(t, backlog)

	before := time.Now()
	require.NoError(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		for range 3 {
			if err := o.Publish(t.Context(), tx, broker.Append{Topic: "news", Retention: keepAll, Packet: []byte("a")}); err != nil {
				return err
			}
		}
		backlog, err := o.Backlog(t.Context(), pool)
		assert.Zero(t, backlog, "the transaction has not committed")
		return err
	}))
	backlog, err = o.Backlog(t.Context(), pool)
	require.NoError(t, err)
	assert.Equal(t, 3, backlog.Publications)
	assert.Positive(t, backlog.Oldest)

	var mu sync.Mutex
	var batches []OutboxBatch
	n := connect(t, NewBroker(pool, &Options{Schema: schema, Observe: func(b OutboxBatch) {
		mu.Lock()
		defer mu.Unlock()
		batches = append(batches, b)
	}}))
	n.eventually(t, "the batch", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(batches) > 0
	})
	assert.Len(t, batches, 1)
	assert.Equal(t, 3, batches[0].Publications)
	assert.Greater(t, batches[0].Lag, backlog.Oldest)
	assert.LessOrEqual(t, batches[0].Lag, time.Since(before), "since the transaction began")
	assert.Zero(t, outboxRows(t, pool, schema))
}
