package postgres_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/postgres"
	"github.com/penstock-go/penstock/adapters/redis"
	"github.com/penstock-go/penstock/internal/postgrestest"
	"github.com/penstock-go/penstock/internal/redistest"
	"github.com/penstock-go/penstock/limit"
)

// decisions has the results of all runs, which -count repeats.
var decisions = speedTable{columns: []string{"keys × callers", "bucket, 10000 × 1", "bucket, 10000 × 64", "bucket, 1 × 64", "bucket and quota, 10000 × 64", "quota in a transaction, 10000 × 16"}}

// BenchmarkLimiter compares limiters on PostgreSQL, which flushes to the disk, with those on Redis,
// which does not. Compare ratios: both servers and the callers share a machine.
//
//	go test -run '^$' -bench Limiter -benchtime 1s -count 3 . -speed.update README.md
func BenchmarkLimiter(b *testing.B) {
	pool := benchPool(b)
	limits := postgres.NewLimitStore(pool, "")
	client := redistest.Start(b).Client(b)
	perSecond, perMonth := limit.PerSecond(1000).Burst(1_000_000_000).Named("p"), limit.QuotaPolicy{Name: "q", Max: 1 << 50, Period: limit.Month}
	onPostgres, onRedis := limits.NewLimiter(perSecond), redis.NewLimiter(client, perSecond)
	quota := limits.NewQuota(perMonth)
	bothOnPostgres, bothOnRedis := limit.AllOf(onPostgres, quota), limit.AllOf(onRedis, redis.NewQuota(client, perMonth))
	for i, bb := range []struct {
		keys, callers   int64
		postgres, redis limit.Limiter
	}{
		{10_000, 1, onPostgres, onRedis},
		{10_000, 64, onPostgres, onRedis},
		{1, 64, onPostgres, onRedis},
		{10_000, 64, bothOnPostgres, bothOnRedis},
	} {
		decide := func(limiter limit.Limiter) func(n int64) error {
			return func(n int64) error {
				_, err := limit.Consume(b.Context(), limiter, limit.Key{"user", fmt.Sprint(n * 7919 % bb.keys)}, 1)
				return err
			}
		}
		benchDecisions(b, "PostgreSQL", i, bb.callers, decide(bb.postgres))
		benchDecisions(b, "Redis", i, bb.callers, decide(bb.redis))
	}
	benchDecisions(b, "PostgreSQL", 4, 16, func(n int64) error {
		return pgx.BeginFunc(b.Context(), pool, func(tx pgx.Tx) error {
			_, err := limit.Consume(b.Context(), postgres.WithTx(tx, quota), limit.Key{"user", fmt.Sprint(n * 7919 % 10_000)}, 1)
			return err
		})
	})
	if *updateSpeed != "" {
		require.NoError(b, replaceSpeed(*updateSpeed, "decisions", decisions.format("%.0f/s")))
	}
}

// benchDecisions runs a benchmark whose result becomes a cell of the table of decisions.
func benchDecisions(b *testing.B, store string, column int, callers int64, decide func(n int64) error) {
	var perSecond float64
	b.Run(fmt.Sprintf("%s, %s", decisions.columns[column+1], store), func(b *testing.B) {
		benchCalls(b, callers, decide)
		perSecond = float64(b.N) / b.Elapsed().Seconds()
	})
	decisions.add(store, column, perSecond)
}

// benchPool returns a pool for a server with settings of production, in which the schema exists.
func benchPool(b *testing.B) *pgxpool.Pool {
	server := postgrestest.Start(b, "fsync=on")
	pool, err := pgxpool.New(b.Context(), server.URL()+"&pool_max_conns=16")
	require.NoError(b, err)
	b.Cleanup(pool.Close)
	require.NoError(b, postgres.Migrate(b.Context(), pool, ""))
	return pool
}

// benchCalls makes calls from that many goroutines, numbered from 1.
func benchCalls(b *testing.B, callers int64, call func(n int64) error) {
	var next atomic.Int64
	done := make(chan error, callers)
	b.ResetTimer()
	for range callers {
		go func() {
			for n := next.Add(1); n <= int64(b.N); n = next.Add(1) {
				if err := call(n); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	for range callers {
		require.NoError(b, <-done)
	}
}
