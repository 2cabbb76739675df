package postgres

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/batch/batchtest"
)

// A limitServer is a schema of the server that all tests share, whose clock stands still until
// Sleep.
type limitServer struct {
	t      testing.TB
	pool   *pgxpool.Pool
	schema string
	clock  *batchtest.Clock
}

func newLimitServer(t testing.TB) *limitServer {
	pool, schema := newSchema(t)
	s := &limitServer{t, pool, schema, batchtest.NewClock()}
	s.exec("CREATE TABLE penstock.test_clock (at bigint)")
	s.exec("INSERT INTO penstock.test_clock VALUES ($1)", s.clock.Server.Load())
	s.exec("CREATE OR REPLACE FUNCTION penstock.limit_now() RETURNS bigint LANGUAGE sql VOLATILE AS $$ SELECT at FROM penstock.test_clock $$")
	return s
}

// reset forgets all records, for another case with names that were used before.
func (s *limitServer) reset() {
	s.exec("TRUNCATE penstock.limit_record, penstock.limit_permit")
	s.clock = batchtest.NewClock()
	s.setTime()
}

func (s *limitServer) exec(sql string, args ...any) {
	s.t.Helper()
	_, err := s.pool.Exec(context.Background(), inSchema(sql, s.schema), args...)
	require.NoError(s.t, err)
}

// limits returns the limits of a process.
func (s *limitServer) limits() *LimitStore {
	l := NewLimitStore(s.pool, s.schema)
	l.now = func() time.Duration { return time.Duration(s.clock.Local.Load()) }
	l.sweep.next.Store(int64(100000 * time.Hour)) // tests of it start it
	return l
}

func (s *limitServer) setTime() {
	s.exec("UPDATE penstock.test_clock SET at = $1", s.clock.Server.Load())
}

// Sleep moves both clocks forward.
func (s *limitServer) Sleep(d time.Duration) {
	s.clock.Sleep(d)
	s.setTime()
}

// Rewind moves the server's clock backwards.
func (s *limitServer) Rewind(d time.Duration) {
	s.clock.Rewind(d)
	s.setTime()
}

// lockKey holds an advisory lock until the function that it returns is called.
func lockKey(t testing.TB, pool *pgxpool.Pool, lock int64) (unlock func()) {
	t.Helper()
	tx, err := pool.Begin(context.Background())
	require.NoError(t, err)
	_, err = tx.Exec(context.Background(), "SELECT pg_advisory_xact_lock($1)", lock)
	require.NoError(t, err)
	return func() { require.NoError(t, tx.Rollback(context.Background())) }
}
