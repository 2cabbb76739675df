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

// BenchmarkLimiter compares limiters on PostgreSQL, which flushes to the disk, with those on Redis,
// which does not. Compare ratios: both servers and the callers share a machine.
//
//	go test -run '^$' -bench Limiter -benchtime 1s -count 3 .
func BenchmarkLimiter(b *testing.B) {
	pool := benchPool(b)
	limits := postgres.NewLimits(pool, "")
	client := redistest.Start(b).Client(b)
	perSecond, perMonth := limit.PerSecond(1000).Burst(1_000_000_000).Named("p"), limit.QuotaPolicy{Name: "q", Max: 1 << 50, Period: limit.Month}
	onPostgres, onRedis := limits.NewLimiter(perSecond), redis.NewLimiter(client, perSecond)
	quota := limits.NewQuota(perMonth)
	for _, bb := range []struct {
		name          string
		keys, callers int64
		limiters      map[string]limit.Limiter
	}{
		{"bucket, 10000 keys", 10_000, 1, map[string]limit.Limiter{"postgres": onPostgres, "redis": onRedis}},
		{"bucket, 10000 keys", 10_000, 64, map[string]limit.Limiter{"postgres": onPostgres, "redis": onRedis}},
		{"bucket, 1 key", 1, 64, map[string]limit.Limiter{"postgres": onPostgres, "redis": onRedis}},
		{"bucket and quota, 10000 keys", 10_000, 64, map[string]limit.Limiter{
			"postgres": limit.AllOf(onPostgres, quota), "redis": limit.AllOf(onRedis, redis.NewQuota(client, perMonth)),
		}},
	} {
		for _, store := range []string{"postgres", "redis"} {
			b.Run(fmt.Sprintf("%s, %d callers, %s", bb.name, bb.callers, store), func(b *testing.B) {
				benchCalls(b, bb.callers, func(n int64) error {
					_, err := limit.Consume(b.Context(), bb.limiters[store], limit.Key{"user", fmt.Sprint(n * 7919 % bb.keys)}, 1)
					return err
				})
			})
		}
	}
	b.Run("quota in a transaction, 10000 keys, 16 callers, postgres", func(b *testing.B) {
		benchCalls(b, 16, func(n int64) error {
			return pgx.BeginFunc(b.Context(), pool, func(tx pgx.Tx) error {
				_, err := limit.Consume(b.Context(), postgres.WithTx(tx, quota), limit.Key{"user", fmt.Sprint(n * 7919 % 10_000)}, 1)
				return err
			})
		})
	})
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
