package postgres

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/batch/batchtest"
	"github.com/penstock-go/penstock/internal/keyname"
	"github.com/penstock-go/penstock/internal/testscale"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/limittest"
)

// permitsInUse returns how many permits of a key are stored.
func permitsInUse(t testing.TB, pool *pgxpool.Pool, s *Semaphore, key limit.Key) (n int64) {
	t.Helper()
	name := keyname.Join(s.keys.prefix, keyname.Parts(&key))
	require.NoError(t, pool.QueryRow(context.Background(), inSchema("SELECT count(*) FROM penstock.limit_permit WHERE key = $1", s.limits.schema), []byte(name)).Scan(&n))
	return n
}

func TestSemaphore_Contract(t *testing.T) {
	t.Parallel()
	pool, schema := newSchema(t)
	l := NewLimitStore(pool, schema)
	semaphore := l.NewSemaphore("render", 3)
	limittest.Semaphore(t, semaphore, func(key limit.Key, inUse int64) {
		require.Eventually(t, func() bool { return permitsInUse(t, pool, semaphore, key) <= inUse }, time.Minute, time.Millisecond)
	})
	assert.PanicsWithValue(t, "postgres: NewSemaphore needs a name", func() { l.NewSemaphore("", 1) })
	assert.PanicsWithValue(t, "postgres: NewSemaphore with 0 permits; it must be at least 1", func() { l.NewSemaphore("x", 0) })
}

// TestSemaphore_LeaseOfDeadProcessExpires has one process hold a permit for longer than a lease,
// while another process dies.
func TestSemaphore_LeaseOfDeadProcessExpires(t *testing.T) {
	t.Parallel()
	pool, schema := newSchema(t)
	dyingPool := openPool(t, pool.Config().ConnString())
	alive, dying := NewLimitStore(pool, schema).NewSemaphore("render", 2), NewLimitStore(dyingPool, schema).NewSemaphore("render", 2)
	alive.lease = testscale.Pick(600*time.Millisecond, 3*time.Second)
	dying.lease = alive.lease
	batchtest.DeadHolder(t, ann, alive, dying, dyingPool.Close)
	require.Eventually(t, func() bool { return permitsInUse(t, pool, alive, ann) == 0 }, time.Minute, 10*time.Millisecond)
}

// TestSemaphore_CanceledAcquireLeavesNoPermit has callers whose contexts end while the key is
// locked.
func TestSemaphore_CanceledAcquireLeavesNoPermit(t *testing.T) {
	t.Parallel()
	pool, schema := newSchema(t)
	s := NewLimitStore(pool, schema).NewSemaphore("late", 1000)
	key := limit.Key{"ann"}
	for range 5 {
		unlock := lockKey(t, pool, s.keys.call(&key, limitArgs{}).lock)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		_, err := s.Acquire(ctx, key)
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		unlock()
	}
	p, err := s.Acquire(t.Context(), key)
	require.NoError(t, err)
	p.Release()
	require.Eventually(t, func() bool { return permitsInUse(t, pool, s, key) == 0 }, time.Minute, time.Millisecond)
}

// TestSemaphore_BackwardsClockKeepsDeadHoldersForOneLease has holders that died before the clock
// went back by an hour.
func TestSemaphore_BackwardsClockKeepsDeadHoldersForOneLease(t *testing.T) {
	t.Parallel()
	server := newLimitServer(t)
	s, key := server.limits().NewSemaphore("render", 2), limit.Key{"ann"}
	args := limitArgs{limitSemaphore, opTake, s.permits, s.lease.Microseconds()}
	for holder := range int64(2) {
		args[4] = 1 + holder
		_, err := s.limits.do(t.Context(), s.keys.call(&key, args))
		require.NoError(t, err)
	}
	server.Rewind(time.Hour)
	denied, err := s.Acquire(t.Context(), key)
	require.NoError(t, err)
	assert.Nil(t, denied.Release, "a lease may still be in use")
	server.Sleep(s.lease - time.Microsecond)
	denied, err = s.Acquire(t.Context(), key)
	require.NoError(t, err)
	assert.Nil(t, denied.Release)
	server.Sleep(time.Microsecond)
	p, err := s.Acquire(t.Context(), key)
	require.NoError(t, err)
	require.NotNil(t, p.Release)
	assert.EqualValues(t, 1, p.InUse)
	p.Release()
}
