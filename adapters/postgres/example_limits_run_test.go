package postgres_test

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/postgres"
	"github.com/penstock-go/penstock/internal/postgrestest"
	"github.com/penstock-go/penstock/limit"
)

// TestExamples_LimitsDoWhatTheySay runs the examples of limits on a server, and looks at what they
// have taken.
func TestExamples_LimitsDoWhatTheySay(t *testing.T) {
	server := postgrestest.Start(t)
	t.Setenv("DATABASE_URL", server.URL())
	pool, err := pgxpool.New(t.Context(), server.URL())
	require.NoError(t, err)
	defer pool.Close()
	customer := limit.Key{"customer", "42"}
	remaining := func(policy limit.QuotaPolicy) int64 {
		d, err := limit.Inspect(t.Context(), postgres.NewLimitStore(pool, "").NewQuota(policy), customer)
		require.NoError(t, err)
		return d.Remaining
	}

	ExampleLimits()
	assert.EqualValues(t, 99_999, remaining(limit.QuotaPolicy{Name: "plan", Max: 100_000, Period: limit.Month}))

	orders := limit.QuotaPolicy{Name: "orders", Max: 100, Period: limit.Month}
	ExampleWithTx() // without the table, the order is not stored
	assert.EqualValues(t, 100, remaining(orders))
	_, err = pool.Exec(t.Context(), "CREATE TABLE orders (customer text, item text)")
	require.NoError(t, err)
	ExampleWithTx()
	assert.EqualValues(t, 99, remaining(orders))

	ExampleLimitStore_NewSemaphore()
	var permits int
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT count(*) FROM penstock.limit_record WHERE key = 'semaphore:reports:customer:42'").Scan(&permits))
	assert.Equal(t, 1, permits)
}
