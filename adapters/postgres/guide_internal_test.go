package postgres

import (
	"context"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/postgrestest"
)

// guideSQL returns the blocks of SQL of the guide and of the README.
func guideSQL(t testing.TB) (blocks []string) {
	for _, file := range []string{"../../docs/guides/postgresql.md", "README.md"} {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, match := range regexp.MustCompile("(?s)```sql\n(.*?)```").FindAllSubmatch(text, -1) {
			blocks = append(blocks, string(match[1]))
		}
	}
	return blocks
}

// TestGuide_StatementsAndPrivileges executes the statements of the guide, and uses the roles that
// they create.
func TestGuide_StatementsAndPrivileges(t *testing.T) {
	t.Parallel()
	server := postgrestest.Start(t)
	pool := openPool(t, server.URL())
	require.NoError(t, Migrate(t.Context(), pool, ""))
	conn, err := pool.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	blocks := guideSQL(t)
	require.Len(t, blocks, 4)
	for _, block := range blocks {
		_, err := conn.Conn().PgConn().Exec(t.Context(), block).ReadAll()
		require.NoError(t, err, block)
	}
	as := func(role string) *pgxpool.Pool {
		return openPool(t, strings.Replace(server.URL(), "postgres@", role+"@", 1))
	}
	nodes, publishers := as("app_nodes"), as("app_publishers")
	n := connect(t, NewBroker(nodes, nil))
	n.follow(t, "orders/1")
	n.publish(t, "orders/1", "1")
	version, err := n.StoreValue(t.Context(), "key", []byte("value"), 0, 1<<40)
	require.NoError(t, err)
	assert.NotZero(t, version)
	require.NoError(t, n.HistoryNode.(*historyNode).sequencer.deleteExpired())
	n.eventually(t, "publication", func() bool { return len(n.published["orders/1"]) == 1 })

	require.NoError(t, InTx(t.Context(), publishers, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "SELECT penstock.publish('orders/1', 'ORDER_PAID')")
		require.NoError(t, err)
		return Publish(ctx, tx, appendOf("orders/1", "2"))
	}))
	n.eventually(t, "publications", func() bool { return len(n.published["orders/1"]) == 3 })
	require.Eventually(t, func() bool {
		page, _ := n.page(t, "orders")
		return page.Position.Offset == 2
	}, time.Minute, 10*time.Millisecond, "the statements of the guide have published")
	for _, table := range []string{"history", "outbox", "value", "topic"} {
		_, err := publishers.Exec(t.Context(), "SELECT FROM penstock."+table)
		require.ErrorContains(t, err, "permission denied", table)
	}
	_, err = publishers.Exec(t.Context(), "SELECT penstock.restored()")
	require.ErrorContains(t, err, "permission denied")
	_, err = nodes.Exec(t.Context(), "SELECT penstock.restored()")
	require.NoError(t, err)
	_, err = nodes.Exec(t.Context(), "DROP TABLE penstock.history")
	require.ErrorContains(t, err, "must be owner")
}

// TestGuide_ProgramStartsAtOnce creates the table of the guide's program on several connections.
func TestGuide_ProgramStartsAtOnce(t *testing.T) {
	t.Parallel()
	direct, schema := newSchema(t)
	config := direct.Config()
	config.MaxConns, config.ConnConfig.RuntimeParams["search_path"] = 8, schema
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	defer pool.Close()
	literals := regexp.MustCompile(`"([^"]*)"`)
	text, err := os.ReadFile("../../docs/guides/postgresql.md")
	require.NoError(t, err)
	var table strings.Builder
	for _, literal := range literals.FindAllSubmatch(regexp.MustCompile(`(?s)const table = .*?\n\tif`).Find(text), -1) {
		table.Write(literal[1])
	}
	require.Contains(t, table.String(), "CREATE TABLE")
	for range 10 {
		results := make(chan error, 8)
		for range cap(results) {
			go func() {
				_, err := pool.Exec(t.Context(), table.String())
				results <- err
			}()
		}
		for range cap(results) {
			require.NoError(t, <-results)
		}
		_, err := pool.Exec(t.Context(), "DROP TABLE orders")
		require.NoError(t, err)
	}
}
