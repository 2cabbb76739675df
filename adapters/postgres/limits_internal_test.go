package postgres

import (
	"context"
	"fmt"
	"math"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/batch/batchtest"
	"github.com/penstock-go/penstock/internal/postgrestest"
	"github.com/penstock-go/penstock/internal/redistest"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/adapter"
	"github.com/penstock-go/penstock/limit/limittest"
	"github.com/penstock-go/penstock/limit/mode"
)

func TestLimits_WithoutSchemaOrPrivilegesErrorsSayWhatIsNeeded(t *testing.T) {
	t.Parallel()
	pool, schema := newSchema(t)
	_, err := limit.Consume(t.Context(), NewLimitStore(pool, "nowhere").NewLimiter(limit.PerHour(1)), ann, 1)
	require.ErrorContains(t, err, `postgres: limiter: the schema "nowhere" has no limits; call postgres.Migrate`)

	grants := limitGuideSQL(t)
	role := schema + "_limits"
	exec := func(sql string) {
		sql = strings.ReplaceAll(strings.ReplaceAll(sql, "SCHEMA penstock", "SCHEMA "+schema), "app_limits", role)
		_, err := pool.Exec(t.Context(), inSchema(sql, schema))
		require.NoError(t, err)
	}
	exec(grants[0])
	t.Cleanup(func() {
		_, _ = pool.Exec(context.Background(), "DROP OWNED BY "+role)
		_, _ = pool.Exec(context.Background(), "DROP ROLE "+role)
	})
	app := openPool(t, strings.Replace(pool.Config().ConnString(), "postgres@", role+"@", 1))
	l := NewLimitStore(app, schema).NewLimiter(limit.PerHour(5))
	_, err = limit.Consume(t.Context(), l, ann, 1)
	require.ErrorContains(t, err, "the role needs USAGE on the schema")
	exec(grants[1])
	_, err = limit.Consume(t.Context(), l, ann, 1)
	require.ErrorContains(t, err, "and EXECUTE on its functions", "PUBLIC may not decide")
	exec(grants[2])
	d, err := limit.Consume(t.Context(), l, ann, 1)
	require.NoError(t, err)
	assert.EqualValues(t, 4, d.Remaining)
	_, err = app.Exec(t.Context(), inSchema("DELETE FROM penstock.limit_record", schema))
	require.ErrorContains(t, err, "permission denied")
}

// limitGuideSQL returns the three statements of the guide that create a role.
func limitGuideSQL(t testing.TB) []string {
	text, err := os.ReadFile("../../docs/guides/limiters-without-the-router.md")
	require.NoError(t, err)
	block := regexp.MustCompile("(?s)```sql\n(.*?)```").FindSubmatch(text)
	require.NotNil(t, block)
	statements := strings.Split(strings.TrimSpace(string(block[1])), "\n")
	require.Len(t, statements, 3)
	return statements
}

func TestNewLimits_InvalidArgumentsPanic(t *testing.T) {
	t.Parallel()
	assert.PanicsWithValue(t, "postgres: NewLimitStore needs a pool", func() { NewLimitStore(nil, "") })
	pool, err := pgxpool.New(t.Context(), "postgres://127.0.0.1:1/x") // connects at the first call
	require.NoError(t, err)
	defer pool.Close()
	l := NewLimitStore(pool, "")
	assert.Panics(t, func() { l.NewLimiter(limit.Policy{}) })
	assert.Panics(t, func() { l.NewQuota(limit.QuotaPolicy{}) })
	assert.Panics(t, func() { l.NewSlidingLog(limit.WindowPolicy{Max: adapter.MaxLog + 1, Window: time.Hour}) })
	assert.Panics(t, func() { l.NewSlidingCounter(limit.WindowPolicy{}) })
	assert.Panics(t, func() { l.NewCooldown(limit.CooldownPolicy{}, nil) })
	_, err = limit.Consume(t.Context(), l.NewLimiter(limit.PerHour(1)), ann, 1)
	assert.Error(t, err)
}

func TestLimiter_IntervalBound(t *testing.T) {
	t.Parallel()
	pool, schema := newSchema(t)
	policy := limittest.IntervalBoundPolicy().Named("interval")
	one, another := NewLimitStore(pool, schema), NewLimitStore(openPool(t, pool.Config().ConnString()), schema)
	limittest.IntervalBound(t, one.NewLimiter(policy), another.NewLimiter(policy))
}

// A queryCounter counts the statements of a pool.
type queryCounter struct{ n atomic.Int64 }

func (c *queryCounter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	if strings.Contains(d.SQL, ".limit_each(") || strings.Contains(d.SQL, ".limit_all(") {
		c.n.Add(1)
	}
	return ctx
}

func (c *queryCounter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func countingLimits(t *testing.T) (*LimitStore, *atomic.Int64) {
	pool, schema := newSchema(t)
	config, counter := pool.Config(), &queryCounter{}
	config.ConnConfig.Tracer = counter
	counting, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(counting.Close)
	return NewLimitStore(counting, schema), &counter.n
}

func TestLimits_ConcurrentCallsShareStatements(t *testing.T) {
	t.Parallel()
	l, statements := countingLimits(t)
	limiters := []limit.Limiter{
		l.NewLimiter(limit.PerHour(1000)), l.NewQuota(limit.QuotaPolicy{Max: 1000}), l.NewSlidingCounter(limit.WindowPolicy{Max: 1000, Window: time.Hour}),
	}
	var wg sync.WaitGroup
	for n := range 300 {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			d, err := limit.Consume(ctx, limiters[n%3], limit.Key{fmt.Sprint(n)}, 1)
			assert.NoError(t, err)
			assert.EqualValues(t, 999, d.Remaining)
		})
	}
	wg.Wait()
	assert.LessOrEqual(t, statements.Load(), int64(60))
}

func TestLimits_DeniedFloodCausesFewStatements(t *testing.T) {
	t.Parallel()
	l, statements := countingLimits(t)
	bucket, quota := l.NewLimiter(limit.PerHour(2).Named("b")), l.NewQuota(limit.QuotaPolicy{Name: "q", Max: 2, Period: limit.Month})
	for _, flooded := range []limit.Limiter{
		bucket, quota, l.NewCooldown(limit.CooldownPolicy{Max: 2, Window: time.Hour, Penalty: time.Hour}, nil),
		l.NewSlidingLog(limit.WindowPolicy{Max: 2, Window: time.Hour}), limit.AllOf(bucket, quota),
	} {
		began, before := time.Now(), statements.Load()
		for range 500 {
			_, err := limit.Consume(t.Context(), flooded, ann, 1)
			require.NoError(t, err)
		}
		assert.LessOrEqual(t, statements.Load()-before, 5+int64(2*time.Since(began)/time.Second))
	}
}

// TestLimits_DenialWritesNothing compares the row and its locks before and after denials and looks
// of processes that remember nothing.
func TestLimits_DenialWritesNothing(t *testing.T) {
	t.Parallel()
	pool, schema := newSchema(t)
	for _, kind := range []func(*LimitStore) limit.Limiter{
		func(l *LimitStore) limit.Limiter { return l.NewLimiter(limit.PerHour(2)) },
		func(l *LimitStore) limit.Limiter { return l.NewQuota(limit.QuotaPolicy{Max: 2, Period: limit.Month}) },
		func(l *LimitStore) limit.Limiter {
			return l.NewSlidingLog(limit.WindowPolicy{Max: 2, Window: time.Hour})
		},
		func(l *LimitStore) limit.Limiter {
			return l.NewSlidingCounter(limit.WindowPolicy{Max: 2, Window: 1000 * time.Hour})
		},
	} {
		row := func() (text string) {
			require.NoError(t, pool.QueryRow(t.Context(), inSchema("SELECT string_agg(format('%s %s %s', ctid, xmin, xmax), ',' ORDER BY key) FROM penstock.limit_record", schema)).Scan(&text))
			return text
		}
		_, err := limit.Consume(t.Context(), kind(NewLimitStore(pool, schema)), ann, 2)
		require.NoError(t, err)
		before := row()
		for _, take := range []limit.Take{{Cost: 1}, {Mode: mode.Looking, Cost: 1}, {}, {Cost: 3}} {
			d, err := kind(NewLimitStore(pool, schema)).Take(t.Context(), ann, take)
			require.NoError(t, err)
			assert.Equal(t, take.Cost == 0, d.Allowed)
		}
		assert.Equal(t, before, row())
	}
}

// TestLimits_SettingsEndWithTheStatement looks at the settings of a connection after statements of
// its own and in transactions of the application.
func TestLimits_SettingsEndWithTheStatement(t *testing.T) {
	t.Parallel()
	pool, schema := newSchema(t)
	config := pool.Config()
	config.MaxConns = 1
	one, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(one.Close)
	l := NewLimitStore(one, schema)
	l.sweep.next.Store(math.MaxInt64)
	bucket := l.NewLimiter(limit.PerHour(5))
	settings := func(q pgxQuerier) (text string) {
		rows, err := q.Query(t.Context(), "SELECT current_setting('synchronous_commit') || ' ' || current_setting('lock_timeout')")
		require.NoError(t, err)
		text, err = pgx.CollectExactlyOneRow(rows, pgx.RowTo[string])
		require.NoError(t, err)
		return text
	}
	want := settings(one)
	_, err = limit.Consume(t.Context(), bucket, ann, 1)
	require.NoError(t, err)
	assert.Equal(t, want, settings(one))
	tx, err := one.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	_, err = limit.Consume(t.Context(), WithTx(tx, bucket), ann, 1)
	require.NoError(t, err)
	assert.Equal(t, want, settings(tx), "the commit of the application waits for the disk")
	var inOwn string // what the commit of a statement of its own sees
	require.NoError(t, tx.QueryRow(t.Context(), inSchema("SELECT current_setting('synchronous_commit') FROM penstock.limit_each(0, '{1}', '{a}', $1)", schema), append([]int64{limitBucket, opReset}, make([]int64, 14)...)).Scan(&inOwn))
	assert.Equal(t, "off", inOwn)
}

// TestLimits_RoleWithHigherIsolation decides with a role whose transactions are serializable by
// default.
func TestLimits_RoleWithHigherIsolation(t *testing.T) {
	t.Parallel()
	pool, schema := newSchema(t)
	serializable := openPool(t, pool.Config().ConnString()+"&default_transaction_isolation=serializable")
	l := NewLimitStore(serializable, schema)
	bucket := l.NewLimiter(limit.PerHour(100))
	var granted atomic.Int64
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for range 10 {
				d, err := limit.Consume(t.Context(), bucket, ann, 1)
				if assert.NoError(t, err) && d.Allowed {
					granted.Add(1)
				}
			}
		})
	}
	wg.Wait()
	assert.True(t, l.needsLevel.Load())
	assert.EqualValues(t, 100, granted.Load())
}

// TestLimits_ThroughPgBouncer uses a pooler in transaction mode, without prepared statements.
func TestLimits_ThroughPgBouncer(t *testing.T) {
	t.Parallel()
	pool, schema := newSchema(t)
	bouncer := postgrestest.StartPgBouncer(t, pool.Config().ConnString())
	var granted atomic.Int64
	var wg sync.WaitGroup
	for range 3 {
		through := openPool(t, bouncer.URL()+"&default_query_exec_mode=exec")
		l := NewLimitStore(through, schema)
		bucket, quota, semaphore := l.NewLimiter(limit.PerHour(100).Named("b")), l.NewQuota(limit.QuotaPolicy{Max: 1000}), l.NewSemaphore("s", 1000)
		for range 8 {
			wg.Go(func() {
				for range 10 {
					d, err := limit.Consume(t.Context(), limit.AllOf(bucket, quota), ann, 1)
					if assert.NoError(t, err) && d.Allowed {
						granted.Add(1)
					}
					p, err := semaphore.Acquire(t.Context(), ann)
					if assert.NoError(t, err) && assert.NotNil(t, p.Release) {
						p.Release()
					}
					assert.NoError(t, pgx.BeginFunc(t.Context(), through, func(tx pgx.Tx) error {
						_, err := limit.Consume(t.Context(), WithTx(tx, quota), limit.Key{"bob"}, 1)
						return err
					}))
				}
			})
		}
	}
	wg.Wait()
	assert.EqualValues(t, 100, granted.Load())
	assert.EqualValues(t, 1000-3*8*10, remaining(t, NewLimitStore(pool, schema).NewQuota(limit.QuotaPolicy{Max: 1000}), limit.Key{"bob"}))
	require.Eventually(t, func() bool {
		var locks int
		err := pool.QueryRow(t.Context(), "SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE l.locktype = 'advisory' AND a.query LIKE '%'||$1||'%'", schema).Scan(&locks)
		return err == nil && locks == 0
	}, time.Minute, 10*time.Millisecond, "no lock belongs to a session")
}

// TestLimits_NeverChargesTwice closes connections while calls are in progress.
func TestLimits_NeverChargesTwice(t *testing.T) {
	t.Parallel()
	pool, schema := newSchema(t)
	server := postgrestest.Addr(pool.Config().ConnString())
	proxy := redistest.StartProxy(t, server)
	through := openPool(t, strings.Replace(pool.Config().ConnString(), server, proxy.Addr, 1)+"&connect_timeout=1")
	policy := limit.PerHour(1).Burst(50_000).Named("twice")
	batchtest.NeverChargesTwice(t, NewLimitStore(through, schema).NewLimiter(policy), NewLimitStore(pool, schema).NewLimiter(policy), func() {
		proxy.Cut()
		proxy.Restore()
	})
}

// TestLimits_ServerCrashKeepsTransactionsOfTheApplication kills the server, and starts it again.
func TestLimits_ServerCrashKeepsTransactionsOfTheApplication(t *testing.T) {
	t.Parallel()
	server := postgrestest.Start(t, "fsync=on")
	pool := openPool(t, server.URL())
	require.NoError(t, Migrate(t.Context(), pool, ""))
	l := NewLimitStore(pool, "")
	quota := l.NewQuota(limit.QuotaPolicy{Name: "orders", Max: 1000, Period: limit.Month})
	for range 50 {
		require.NoError(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			_, err := limit.Consume(t.Context(), WithTx(tx, quota), ann, 1)
			return err
		}))
		_, err := limit.Consume(t.Context(), quota, limit.Key{"other"}, 1)
		require.NoError(t, err)
	}
	server.Kill()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	_, err := limit.Consume(ctx, quota, ann, 1)
	cancel()
	require.Error(t, err)
	server.Restart()
	require.Eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := limit.Inspect(ctx, quota, ann)
		return err == nil
	}, time.Minute, 10*time.Millisecond)
	assert.EqualValues(t, 950, remaining(t, quota, ann))
	assert.GreaterOrEqual(t, remaining(t, quota, limit.Key{"other"}), int64(950), "what commits did not wait for may be forgotten")
}

func TestLimits_StandbyDecidesNothing(t *testing.T) {
	t.Parallel()
	server := postgrestest.Start(t)
	pool := openPool(t, server.URL())
	require.NoError(t, Migrate(t.Context(), pool, ""))
	_, err := limit.Consume(t.Context(), NewLimitStore(pool, "").NewLimiter(limit.PerHour(1)), ann, 1)
	require.NoError(t, err)
	replica := server.StartReplica("replica")
	standby := NewLimitStore(openPool(t, replica.URL()), "").NewLimiter(limit.PerHour(1))
	_, err = limit.Consume(t.Context(), standby, ann, 1)
	require.ErrorContains(t, err, "this server is a standby; limits need the primary")
	server.Kill()
	replica.Promote()
	_, err = limit.Consume(t.Context(), standby, limit.Key{"bob"}, 1)
	require.NoError(t, err)
}
