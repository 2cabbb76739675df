package postgres

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/postgrestest"
	"github.com/penstock-go/penstock/internal/testscale"
)

const (
	sizeTopics   = 1000
	sizeMessages = 100
	sizePacket   = 200 // bytes
)

// TestSize_AfterLoad publishes on 1,000 topics that keep 100 publications of 200 bytes each, in
// transactions and with Append, with states, idempotency keys and values, and prints the sizes of
// the tables. README.md has the table of PENSTOCK_TESTS=15m.
func TestSize_AfterLoad(t *testing.T) {
	t.Parallel()
	lasts := testscale.Duration(2*time.Second, 5*time.Second)
	server := postgrestest.Start(t, "autovacuum_naptime=60s")
	pool := openPool(t, server.URL())
	require.NoError(t, Migrate(t.Context(), pool, ""))
	n := connect(t, NewBroker(pool, nil))
	ctx, cancel := context.WithTimeout(t.Context(), lasts)
	defer cancel()
	published := loadForSizes(ctx, n)
	t.Logf("%d publications in %v", published, lasts)
	assert.Positive(t, published)
	require.Eventually(t, func() bool { return outboxRows(t, pool, DefaultSchema) == 0 }, time.Minute, 10*time.Millisecond)

	rows, err := pool.Query(t.Context(), `SELECT relname::text, pg_total_relation_size(relid), n_live_tup, n_dead_tup,
		CASE WHEN n_tup_upd > 0 THEN 100 * n_tup_hot_upd / n_tup_upd END FROM pg_stat_user_tables ORDER BY relname`)
	require.NoError(t, err)
	var table string
	var size, live, dead int64
	var hot *int64
	var text strings.Builder
	sizes := map[string]int64{}
	_, err = pgx.ForEachRow(rows, []any{&table, &size, &live, &dead, &hot}, func() error {
		updates := "–"
		if hot != nil {
			updates = fmt.Sprint(*hot, " %")
		}
		sizes[table] = size
		fmt.Fprintf(&text, "| `%s` | %.1f MB | %d | %d | %s |\n", table, float64(size)/1e6, live, dead, updates)
		return nil
	})
	require.NoError(t, err)
	t.Log("table, size, rows, dead rows, HOT updates\n" + text.String())
	const kept = sizeTopics * sizeMessages * (sizePacket + 150) // bytes of the rows
	assert.Less(t, sizes["history"], int64(4*kept), "the ring has a bound")
	assert.Less(t, sizes["outbox"], int64(64<<20), "the outbox is a queue")
}

// loadForSizes publishes about 1,000 times per second until ctx is done.
func loadForSizes(ctx context.Context, n *node) (published int) {
	var mu sync.Mutex
	var running sync.WaitGroup
	const publishers, pause = 8, 8 * time.Millisecond
	packet := []byte(strings.Repeat("x", sizePacket))
	for p := range publishers {
		running.Go(func() {
			ticker := time.NewTicker(pause)
			defer ticker.Stop()
			for i := 0; ctx.Err() == nil; i++ {
				select {
				case <-ticker.C:
				case <-ctx.Done():
					return
				}
				a := broker.Append{Topic: fmt.Sprint("topic ", rand.IntN(sizeTopics)), Retention: broker.Retention{Messages: sizeMessages, Age: time.Hour}, Packet: packet}
				if i%4 == 0 {
					a.StateKey, a.IdempotencyKey = fmt.Sprint("key ", i%40), fmt.Sprint(p, " ", i)
				}
				var err error
				if i%2 == 0 {
					err = InTx(context.WithoutCancel(ctx), n.HistoryNode.(*historyNode).store.pool, func(ctx context.Context, tx pgx.Tx) error { return Publish(ctx, tx, a) })
				} else {
					_, err = n.Append(context.WithoutCancel(ctx), a)
				}
				if i%10 == 0 {
					_, _ = n.StoreValue(context.WithoutCancel(ctx), fmt.Sprint(p, " ", i), packet, 0, time.Minute)
				}
				if err == nil {
					mu.Lock()
					published++
					mu.Unlock()
				}
			}
		})
	}
	running.Wait()
	return published
}
