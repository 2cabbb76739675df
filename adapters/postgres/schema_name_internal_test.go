package postgres

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/postgrestest"
)

// TestSchema_LongNamesAreErrors has names of which PostgreSQL ignores the end.
func TestSchema_LongNamesAreErrors(t *testing.T) {
	t.Parallel()
	pool := openPool(t, postgrestest.Shared(t))
	for _, name := range []string{strings.Repeat("s", 64), "a\x00b"} {
		o := Outbox{name}
		publish := func(ctx context.Context, tx pgx.Tx) error { return o.Publish(ctx, tx, appendOf("news", "1")) }
		_, backlogErr := o.Backlog(t.Context(), pool)
		for _, err := range []error{Migrate(t.Context(), pool, name), o.InTx(t.Context(), pool, publish), pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return publish(t.Context(), tx) }), backlogErr} {
			assert.ErrorContains(t, err, "must have at most 63 bytes")
		}
		assert.Panics(t, func() { NewBroker(pool, &Options{Schema: name}) })
		assert.Panics(t, func() { NewLimitStore(pool, name) })
	}
	longest := "s" + strings.Repeat("é", 31)
	t.Cleanup(func() { _, _ = pool.Exec(context.Background(), "DROP SCHEMA "+longest+" CASCADE") })
	require.NoError(t, Migrate(t.Context(), pool, longest))
	require.NoError(t, Migrate(t.Context(), pool, longest))
}
