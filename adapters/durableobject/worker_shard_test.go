package durableobject_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/durableobject/internal/workerdtest"
	"github.com/penstock-go/penstock/limit"
)

// reshard restarts a Worker with another number of shards.
func (w *worker) reshard(shards, before int) {
	w.t.Helper()
	w.Restart(func(o *workerdtest.Options) {
		o.Variables["SHARDS"], o.Variables["SHARDS_BEFORE"] = strconv.Itoa(shards), ""
		if before > 0 {
			o.Variables["SHARDS_BEFORE"] = strconv.Itoa(before)
		}
	})
}

// numbered returns n keys.
func numbered(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprint("key ", i)
	}
	return keys
}

// each returns a call for each key.
func each(keys []string, units int64) []limitCall {
	calls := make([]limitCall, len(keys))
	for i, key := range keys {
		calls[i] = take(key, units)
	}
	return calls
}

// all returns n times the same number.
func all(n int, held int64) []int64 {
	s := make([]int64, n)
	for i := range s {
		s[i] = held
	}
	return s
}

// shardOf is the algorithm of Lamping and Veach, which must never change: another one would lose
// the state of all keys.
func shardOf(seed, key string, shards int) int {
	mac := hmac.New(sha256.New, []byte(seed))
	mac.Write([]byte(key))
	hash := binary.BigEndian.Uint64(mac.Sum(nil))
	b, j := int64(-1), int64(0)
	for j < int64(shards) {
		b = j
		hash = hash*2862933555777941757 + 1
		j = int64(float64(b+1) * (float64(int64(1)<<31) / float64((hash>>33)+1)))
	}
	return int(b)
}

func TestWorker_DistributesKeys(t *testing.T) {
	const shards = 5
	w := startWorker(t, shards)
	w.Restart(func(o *workerdtest.Options) { o.Variables["HASH_SEED"] = "seed" })
	want := make([]int, shards)
	for _, key := range numbered(64) {
		want[shardOf("seed", key, shards)]++
	}
	assert.Equal(t, all(64, perSecond.Units().Full()), w.limit(noon, perSecond, each(numbered(64), 1)...))
	for shard, n := range want {
		assert.Positive(t, n)
		assert.Equal(t, n, w.stats(shard).Records)
	}
}

func TestWorker_ReshardingKeepsDebtsAndBlocks(t *testing.T) {
	const n, year = 60, 365 * 24 * time.Hour
	w := startWorker(t, 1)
	slow := limit.Policy{Capacity: 20, Refill: 1, Per: 24 * time.Hour}
	u, now := slow.Units(), int64(noon)
	debts, blocked, reset := numbered(n), []string{"blocked", "blocked later"}, []string{"reset", "refunded"}
	left := u.Full()
	use := func() { // takes a token from each bucket
		t.Helper()
		require.Equal(t, all(n, left), w.limit(now, slow, each(debts, u.PerToken())...))
		left -= u.PerToken()
	}
	blockedFor := func(end int64) {
		t.Helper()
		require.Equal(t, all(2, -1<<52-(end-now)), w.limit(now, slow, each(blocked, 1)...))
	}
	use()
	w.block(now, "blocked", year)
	w.block(now, "blocked later", time.Hour)
	w.block(now, "reset", year)
	w.limit(now, slow, take("refunded", u.Full()))
	end := now + year.Microseconds()

	// Keys return to objects that have had them before and still have their old rows.
	for i, change := range [][2]int{{8, 1}, {3, 8}, {1, 3}, {8, 1}, {1, 8}} {
		w.reshard(change[0], change[1])
		if i == 0 {
			w.block(now, "blocked later", year)
			w.block(now, "reset", 0)
			w.limit(now, slow, limitCall{"refunded", -u.Full(), 0, 1})
		}
		blockedFor(end)
		use()
		use()
		assert.Equal(t, all(2, u.Full()), w.limit(now, slow, each(reset, 0)...), "%v", change)
		w.Restart()
		require.Equal(t, all(n, left), w.limit(now, slow, each(debts, 0)...))
		blockedFor(end)
	}
	blockedFor(end)

	// Without the variable, objects ask no other one.
	w.reshard(8, 0)
	assert.NotEqual(t, all(n, left), w.limit(now, slow, each(debts, 0)...))
}

// TestWorker_ReshardingKeepsUnusedKeys: a key that is not used with one number of shards keeps its
// row in the object that it returns to.
func TestWorker_ReshardingKeepsUnusedKeys(t *testing.T) {
	w := startWorker(t, 1)
	w.limit(noon, perSecond, each(numbered(60), 300_000)...)
	w.reshard(8, 1)
	w.reshard(1, 8)
	assert.Equal(t, all(60, 700_000), w.limit(noon, perSecond, each(numbered(60), 0)...))
}

// TestWorker_CopiedRowStaysUntilOldRowHasNoEffect: the sweep must not remove a bucket that is full
// because of a reset, a refund or a faster policy while an older row says otherwise.
func TestWorker_CopiedRowStaysUntilOldRowHasNoEffect(t *testing.T) {
	w := startWorker(t, 1)
	keys, full := numbered(60), perSecond.Units().Full() // full after a second
	w.limit(noon, perSecond, each(keys, full)...)
	w.reshard(8, 1)
	for _, key := range keys {
		w.block(noon, key, 0)
	}
	rows := func(now int64) (n int) {
		for shard := 1; shard < 8; shard++ {
			w.sweep(shard, now)
			n += w.stats(shard).Records
		}
		return n
	}
	moved := rows(noon + 999_999)
	assert.Positive(t, moved)
	assert.Equal(t, all(60, full), w.limit(noon+999_999, perSecond, each(keys, 0)...))
	assert.Equal(t, 0, rows(noon+1_000_000))
	assert.Equal(t, all(60, full), w.limit(noon+1_000_000, perSecond, each(keys, 0)...))
	assert.Equal(t, 0, rows(noon+1_000_000), "a row without effect is not copied")
}

func TestWorker_CopiesEachRowOnce(t *testing.T) {
	w := startWorker(t, 1)
	keys, full := numbered(60), perSecond.Units().Full()
	w.limit(noon, perSecond, each(keys, full)...)
	w.reshard(8, 1)
	written := func() (rows int64) {
		for shard := range 8 {
			rows += w.stats(shard).Written
		}
		return rows
	}
	assert.Equal(t, all(60, 0), w.limit(noon, perSecond, each(keys, 1)...))
	before := written()
	assert.Equal(t, all(60, 0), w.limit(noon, perSecond, each(keys, 1)...))
	assert.Equal(t, before, written(), "a denial writes no row after the copy")
}

// TestWorker_ConcurrentCallsOfMovedKey: of concurrent calls that all ask for the old row, only one
// may use the answer.
func TestWorker_ConcurrentCallsOfMovedKey(t *testing.T) {
	w := startWorker(t, 1)
	slow := limit.Policy{Capacity: 20, Refill: 1, Per: 24 * time.Hour}
	token := slow.Units().PerToken()
	keys := numbered(16)
	w.limit(noon, slow, each(keys, 5*token)...)
	w.reshard(8, 1)
	for _, key := range keys {
		var granted atomic.Int64
		var wg sync.WaitGroup
		for range 40 {
			wg.Go(func() {
				_, reply, err := w.try(limitPath, noon, limitBody(slow, take(key, token)))
				if assert.NoError(t, err) && assert.Len(t, reply.Replies, 1) && reply.Replies[0][0][0] >= token {
					granted.Add(1)
				}
			})
		}
		wg.Wait()
		assert.Equal(t, int64(15), granted.Load())
	}
}

// TestWorker_UndecidedWithoutOldRow: a key whose earlier object fails has no decision. Without the
// old row, an object does not know how long a reset must hide it, either.
func TestWorker_UndecidedWithoutOldRow(t *testing.T) {
	w := startWorker(t, 1)
	keys, full := numbered(60), perSecond.Units().Full()
	w.limit(noon, perSecond, each(keys, full)...)
	w.reshard(8, 1)
	w.operate("fail", 0)
	resets := make([][]any, len(keys))
	for i, key := range keys {
		resets[i] = []any{blockPart(key, 0)}
	}
	for _, calls := range []map[string]any{limitBody(perSecond, each(keys, full)...), body(resets...)} {
		assert.Equal(t, make([][][]int64, 60), w.do(limitPath, noon, calls).Replies)
	}
	w.operate("abort", 0)
	assert.Equal(t, all(60, 0), w.limit(noon, perSecond, each(keys, full)...))
}

func TestWorker_ReshardingKeepsLeases(t *testing.T) {
	w := startWorker(t, 1)
	keys := numbered(20)
	for _, key := range keys {
		w.permit(noon, key, "a", 2, acquire)
		w.permit(noon, key, "b", 2, acquire)
	}
	w.reshard(8, 1)
	for _, key := range keys {
		acquired, inUse := w.permit(noon, key, "c", 2, acquire)
		require.False(t, acquired)
		require.Equal(t, int64(2), inUse)
		w.permit(noon, key, "a", 2, release)
		_, inUse = w.permit(noon, key, "b", 2, release)
		require.Zero(t, inUse)
		_, inUse = w.permit(noon, key, "c", 2, acquire) // released permits do not come back
		require.Equal(t, int64(1), inUse)
	}
}

func TestWorker_AcceptsLocationHint(t *testing.T) {
	w := startWorker(t, 2)
	w.Restart(func(o *workerdtest.Options) { o.Variables["LOCATION_HINT"] = "weur" })
	assert.Equal(t, all(4, perSecond.Units().Full()), w.limit(0, perSecond, each(numbered(4), 1)...))
}
