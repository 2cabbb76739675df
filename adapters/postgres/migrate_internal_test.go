package postgres

import (
	"context"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/postgres/schema"
	"github.com/penstock-go/penstock/internal/postgrestest"
)

func TestMigrate_NodesAtOnceAndAgain(t *testing.T) {
	t.Parallel()
	pool := openPool(t, postgrestest.Shared(t))
	const name = `a "quoted" schema'; -- that is longer than 30 bytes`
	t.Cleanup(func() { _, _ = pool.Exec(context.Background(), "DROP SCHEMA "+schema.Quote(name)+" CASCADE") })
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { assert.NoError(t, Migrate(t.Context(), pool, name)) })
	}
	wg.Wait()
	require.NoError(t, Migrate(t.Context(), pool, name))
	n := connect(t, NewBroker(pool, &Options{Schema: name}))
	n.follow(t, "news")
	n.publish(t, "news", "1")
	n.eventually(t, "delivery", func() bool { return len(n.published["news"]) == 1 })

	_, err := pool.Exec(t.Context(), schema.Qualify("INSERT INTO penstock.schema_version (version) VALUES (1000)", name))
	require.NoError(t, err)
	require.NoError(t, Migrate(t.Context(), pool, name), "a newer version is compatible")
}

// TestMigrate_UpgradesFromFirstVersion stores with the tables of the first version, and then with
// those of the newest one.
func TestMigrate_UpgradesFromFirstVersion(t *testing.T) {
	t.Parallel()
	pool, name := newSchema(t)
	_, err := pool.Exec(t.Context(), "DROP SCHEMA "+name+" CASCADE")
	require.NoError(t, err)
	_, err = pool.Exec(t.Context(), schema.Migrations(name)[0].SQL)
	require.NoError(t, err)
	n := connect(t, NewBroker(pool, &Options{Schema: name}))
	first := n.publish(t, "news", "1")
	require.NoError(t, Migrate(t.Context(), pool, name))
	second := n.publish(t, "news", "2")
	assert.Equal(t, first.Position.Epoch, second.Position.Epoch)
	assert.EqualValues(t, 2, second.Position.Offset)
}

// TestMigrate_PrintedSchemaIsTheSame applies what other tools apply.
func TestMigrate_PrintedSchemaIsTheSame(t *testing.T) {
	t.Parallel()
	pool, name := newSchema(t)
	printed := name + "_printed"
	conn, err := pool.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	_, err = conn.Conn().PgConn().Exec(t.Context(), schema.SQL(printed, 0)).ReadAll()
	require.NoError(t, err)
	t.Cleanup(func() { _, _ = pool.Exec(context.Background(), "DROP SCHEMA "+printed+" CASCADE") })
	columns := func(name string) (text string) {
		require.NoError(t, pool.QueryRow(t.Context(), `SELECT string_agg(format('%s.%s %s %s', table_name, column_name, data_type, column_default), E'\n' ORDER BY table_name, column_name)
			FROM information_schema.columns WHERE table_schema = $1`, name).Scan(&text))
		return strings.ReplaceAll(text, name, "")
	}
	assert.Equal(t, columns(name), columns(printed))
	assert.Contains(t, columns(name), "outbox.idempotency_key bytea")
	require.NoError(t, Migrate(t.Context(), pool, printed), "it has the newest version")
	assert.Empty(t, schema.SQL(printed, len(schema.Migrations(printed))))
}

// TestMigrations_FilesAreNumbered keeps versions and names in step.
func TestMigrations_FilesAreNumbered(t *testing.T) {
	t.Parallel()
	for i, m := range schema.Migrations("") {
		assert.Equal(t, i+1, m.Version)
		assert.Equal(t, i+1, int(m.Name[2]-'0')+10*int(m.Name[1]-'0'), m.Name)
	}
	files, err := os.ReadDir("schema")
	require.NoError(t, err)
	assert.Len(t, schema.Migrations(""), len(files)-1)
}
