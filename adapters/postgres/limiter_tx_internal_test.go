package postgres

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/adapter"
	"github.com/penstock-go/penstock/limit/limittest"
)

// remaining returns how many tokens of key are left, without what is remembered.
func remaining(t testing.TB, l limit.Limiter, key limit.Key) int64 {
	t.Helper()
	d, err := limit.Inspect(t.Context(), l, key)
	require.NoError(t, err)
	return d.Remaining
}

var ann = limit.Key{"user", "", "ann"}

// TestWithTx_TakesIfAndOnlyIfTheTransactionCommits uses limiters of all kinds, with pgx and
// database/sql.
func TestWithTx_TakesIfAndOnlyIfTheTransactionCommits(t *testing.T) {
	t.Parallel()
	pool, schema := newSchema(t)
	l := NewLimitStore(pool, schema)
	db := stdlib.OpenDBFromPool(pool)
	defer func() { _ = db.Close() }()
	for name, limiter := range map[string]limit.Limiter{
		"bucket":   l.NewLimiter(limit.PerHour(5).Named("tx")),
		"log":      l.NewSlidingLog(limit.WindowPolicy{Name: "tx", Max: 5, Window: time.Hour}),
		"counter":  l.NewSlidingCounter(limit.WindowPolicy{Name: "tx", Max: 5, Window: time.Hour}),
		"quota":    l.NewQuota(limit.QuotaPolicy{Name: "tx", Max: 5, Period: limit.Month}),
		"cooldown": l.NewCooldown(limit.CooldownPolicy{Name: "tx", Max: 5, Window: time.Hour, Penalty: time.Hour}, nil),
	} {
		t.Run(name, func(t *testing.T) {
			for _, key := range []limit.Key{{"pgx"}, {"sql"}, {"\x00\xff\"\\{,"}} {
				take := func(commit bool) limit.Decision {
					if key[0] == "pgx" {
						return takeInPgx(t, pool.Begin, limiter, key, commit)
					}
					return takeInSQL(t, db, limiter, key, commit)
				}
				assert.EqualValues(t, 3, take(false).Remaining)
				assert.EqualValues(t, 5, remaining(t, limiter, key), "the transaction was rolled back")
				assert.EqualValues(t, 3, take(true).Remaining)
				assert.EqualValues(t, 3, remaining(t, limiter, key), "the transaction was committed")
			}
		})
	}
}

// TestWithTx_BlocksIfAndOnlyIfTheTransactionCommits blocks and resets keys in transactions.
func TestWithTx_BlocksIfAndOnlyIfTheTransactionCommits(t *testing.T) {
	t.Parallel()
	pool, schema := newSchema(t)
	l := NewLimitStore(pool, schema)
	for name, limiter := range map[string]limit.Limiter{
		"bucket": l.NewLimiter(limit.PerHour(5).Named("tx")),
		"quota":  l.NewQuota(limit.QuotaPolicy{Name: "tx", Max: 5, Period: limit.Month}),
	} {
		in := func(end func(pgx.Tx) error, change func(limit.Blocker) error) limit.Decision {
			tx, err := pool.Begin(t.Context())
			require.NoError(t, err)
			require.NoError(t, change(WithTx(tx, limiter).(limit.Blocker)))
			require.NoError(t, end(tx))
			d, err := limit.Inspect(t.Context(), limiter, ann)
			require.NoError(t, err)
			return d
		}
		commit := func(tx pgx.Tx) error { return tx.Commit(t.Context()) }
		rollback := func(tx pgx.Tx) error { return tx.Rollback(t.Context()) }
		block := func(b limit.Blocker) error { return b.Block(t.Context(), ann, time.Hour) }
		reset := func(b limit.Blocker) error { return b.Reset(t.Context(), ann) }
		assert.True(t, in(rollback, block).Allowed, name)
		assert.Equal(t, limit.Blocked, in(commit, block).Reason, name)
		assert.True(t, in(commit, reset).Allowed, name)
	}
}

func takeInPgx(t *testing.T, begin func(context.Context) (pgx.Tx, error), l limit.Limiter, key limit.Key, commit bool) limit.Decision {
	tx, err := begin(t.Context())
	require.NoError(t, err)
	d, err := limit.Consume(t.Context(), WithTx(tx, l), key, 2)
	require.NoError(t, err)
	if commit {
		require.NoError(t, tx.Commit(t.Context()))
	}
	_ = tx.Rollback(context.Background())
	return d
}

func takeInSQL(t *testing.T, db *sql.DB, l limit.Limiter, key limit.Key, commit bool) limit.Decision {
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	d, err := limit.Consume(t.Context(), WithSQLTx(tx, l), key, 2)
	require.NoError(t, err)
	if commit {
		require.NoError(t, tx.Commit())
	}
	_ = tx.Rollback()
	return d
}

// TestWithTx_Contract runs the contract with a transaction per call.
func TestWithTx_Contract(t *testing.T) {
	t.Parallel()
	s := newLimitServer(t)
	for _, c := range limittest.Cases() {
		switch c.Name {
		case "new keys are full", "all or none", "a part is granted", "undo returns what was taken", "settling returns the rest", "joint leases",
			"reservation waits", "charge takes a deficit", "refund returns tokens", "joint requests", "concurrent joint requests", "a look takes nothing", "invalid takes":
		default:
			continue // without what is remembered, and in one more statement, but with the same functions
		}
		t.Run(c.Name, func(t *testing.T) {
			s.reset()
			l := s.limits()
			c.Run(t, limittest.Harness{
				New:    func(p limit.Policy) limit.Limiter { return &eachInTx{l.NewLimiter(p), s} },
				Shared: true,
				Sleep:  s.Sleep,
				Rewind: s.Rewind,
			})
		})
	}
}

// An eachInTx executes each call in a transaction.
type eachInTx struct {
	*Limiter
	server *limitServer
}

func (e *eachInTx) Take(ctx context.Context, key limit.Key, take limit.Take) (d limit.Decision, err error) {
	err = pgx.BeginFunc(ctx, e.server.pool, func(tx pgx.Tx) error {
		d, err = WithTx(tx, e.Limiter).Take(ctx, key, take)
		return err
	})
	return d, err
}

func (e *eachInTx) BatchesWith(other limit.Limiter) bool {
	_, ok := other.(*eachInTx)
	return ok
}

func (e *eachInTx) TakeBatch(ctx context.Context, requests []limit.Request, take limit.Take) (ds []limit.Decision, err error) {
	err = pgx.BeginFunc(ctx, e.server.pool, func(tx pgx.Tx) error {
		for i := range requests {
			requests[i].Limiter = WithTx(tx, requests[i].Limiter.(*eachInTx).Limiter)
		}
		ds, err = requests[0].Limiter.(adapter.Batcher).TakeBatch(ctx, requests, take)
		return err
	})
	return ds, err
}

func (e *eachInTx) RemembersDenial(limit.Key, limit.Take) (limit.Decision, bool) {
	return limit.Decision{}, false
}

// TestWithTx_OpenTransactionDelaysItsKeyOnly keeps a transaction open that has taken tokens of a
// new key and of an old one.
func TestWithTx_OpenTransactionDelaysItsKeyOnly(t *testing.T) {
	t.Parallel()
	pool, schema := newSchema(t)
	quota := NewLimitStore(pool, schema).NewQuota(limit.QuotaPolicy{Name: "orders", Max: 1000, Period: limit.Month})
	_, err := limit.Consume(t.Context(), quota, limit.Key{"old"}, 1)
	require.NoError(t, err)
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	for _, key := range []limit.Key{{"old"}, {"new"}} {
		_, err = limit.Consume(t.Context(), WithTx(tx, quota), key, 1)
		require.NoError(t, err)
	}
	results := make(chan error, 2)
	for _, key := range []limit.Key{{"old"}, {"new"}} {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
		defer cancel()
		_, err := limit.Consume(ctx, quota, key, 1)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		go func() {
			_, err := limit.Consume(context.Background(), quota, key, 1)
			results <- err
		}()
	}
	for n := range 300 { // together with those that wait, which must not hold them up
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		d, err := limit.Consume(ctx, quota, limit.Key{"other", string(rune('a' + n%26))}, 1)
		cancel()
		require.NoError(t, err)
		require.True(t, d.Allowed)
	}
	select {
	case err := <-results:
		t.Fatalf("a call for a key that is locked has returned %v", err)
	default:
	}
	require.NoError(t, tx.Commit(t.Context()))
	require.NoError(t, <-results)
	require.NoError(t, <-results)
	assert.EqualValues(t, 997, remaining(t, quota, limit.Key{"old"}))
	assert.EqualValues(t, 998, remaining(t, quota, limit.Key{"new"}))
}

// TestWithTx_HigherIsolationFailsInsteadOfTakingTwice has a transaction with a snapshot from before
// another one has taken the last token.
func TestWithTx_HigherIsolationFailsInsteadOfTakingTwice(t *testing.T) {
	t.Parallel()
	pool, schema := newSchema(t)
	limiter := NewLimitStore(pool, schema).NewLimiter(limit.PerHour(1))
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		for _, isNew := range []bool{true, false} {
			key := limit.Key{string(level), "new"}
			if !isNew {
				key[1] = "old"
				require.NoError(t, limiter.Block(t.Context(), key, time.Hour))
				require.NoError(t, limiter.Reset(t.Context(), key)) // leaves a row
			}
			tx, err := pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: level})
			require.NoError(t, err)
			_, err = tx.Exec(t.Context(), "SELECT txid_current_snapshot()")
			require.NoError(t, err)
			d, err := limit.Consume(t.Context(), limiter, key, 1)
			require.NoError(t, err)
			require.True(t, d.Allowed)
			_, err = limit.Consume(t.Context(), WithTx(tx, limiter), key, 1)
			pgErr, ok := errors.AsType[*pgconn.PgError](err)
			require.True(t, ok, "%v", err)
			assert.Equal(t, "40001", pgErr.Code)
			require.NoError(t, tx.Rollback(t.Context()))
		}
	}
}

func TestWithTx_UncommittedDenialIsNotRemembered(t *testing.T) {
	t.Parallel()
	pool, schema := newSchema(t)
	limiter := NewLimitStore(pool, schema).NewLimiter(limit.PerHour(2))
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	for _, want := range []bool{true, true, false} {
		d, err := limit.Consume(t.Context(), WithTx(tx, limiter), ann, 1)
		require.NoError(t, err)
		assert.Equal(t, want, d.Allowed)
	}
	require.NoError(t, tx.Rollback(t.Context()))
	d, err := limit.Consume(t.Context(), limiter, ann, 2)
	require.NoError(t, err)
	assert.True(t, d.Allowed)
	assert.Panics(t, func() { WithTx(tx, limit.AllOf(limiter)) })
}
