package durableobject_test

import (
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// hour is a window and a penalty in microseconds, and a lease.
const hour = 3600e6

// recordParts returns a part about a key for each kind but blocks. Each record has room for 3.
func recordParts(key, what string, cost int64) []any {
	return []any{
		[]any{"log", "p", key, what, 3, int64(hour), 0, cost, 0},
		[]any{"cooldown", "p", key, what, 3, int64(hour), int64(hour), cost, 0},
		[]any{"counter", "p", key, what, 3, int64(hour / 1000), cost, 0},
		[]any{"quota", "p", key, what, 3, noon - 2*hour, noon - hour, noon + hour, noon + 2*hour, noon + 3*hour, cost, 0},
	}
}

// used returns the tokens that count in each record of a key.
func (w *worker) used(now int64, key string) []int64 {
	w.t.Helper()
	var used []int64
	for _, part := range w.do(limitPath, now, body(recordParts(key, "look", 0))).Replies[0] {
		require.Len(w.t, part, 8)
		used = append(used, part[1])
	}
	return used
}

func TestWorker_ReshardingKeepsRecords(t *testing.T) {
	w := startWorker(t, 1)
	keys := numbered(20)
	lease := func(what string, numbers ...any) [][]any {
		calls := make([][]any, len(keys))
		for i, key := range keys {
			calls[i] = []any{append([]any{"bucket", "p", key, what, 1, 100_000, 10}, numbers...)}
		}
		return calls
	}
	w.do(limitPath, noon, body(lease("take", 400_000, 0, 400_000, 0, 42, int64(hour))...))
	for i, shards := range []int{8, 3, 1} {
		for _, key := range keys {
			w.do(limitPath, noon, body(recordParts(key, "take", 1)))
		}
		w.reshard(shards, []int{1, 8, 3}[i])
		for _, key := range keys {
			require.Equal(t, all(4, int64(i+1)), w.used(noon, key))
		}
	}
	for _, parts := range w.do(limitPath, noon, body(lease("take", 0, 0, 1, 0)...)).Replies {
		assert.Equal(t, [][]int64{{600_000, noon, hour, 0}}, parts, "the object has the lease")
	}
	w.do(limitPath, noon, body(lease("settle", 0, 42, -400_000, 1)...))
	assert.Equal(t, all(20, 1_000_000), w.limit(noon, perSecond, each(keys, 0)...))
	w.Clear()
	assert.Equal(t, all(4, 0), w.used(noon, keys[0]))
}

func TestWorker_DeniedRecordWritesNoRow(t *testing.T) {
	w := startWorker(t, 1)
	w.do(limitPath, noon, body([]any{blockPart("first", time.Hour)})) // sets the alarm
	written := func(rows int64, now int64, calls ...[]any) {
		t.Helper()
		before := w.stats(0).Written
		w.do(limitPath, now, body(calls...))
		assert.Equal(t, rows, w.stats(0).Written-before)
	}
	parts := recordParts("k", "take", 3)
	written(4, noon, parts)
	written(0, noon+1, parts, recordParts("k", "look", 1), recordParts("k", "take", 4))
	written(0, noon+1, parts[0:1], parts[2:3], parts[3:4])
	for _, refund := range recordParts("absent", "refund", 1) {
		written(0, noon+1, []any{refund})
	}
	written(1, noon+1, parts[1:2], parts[1:2]) // starts the penalty
	written(0, noon+2, parts[1:2])
}

// TestWorker_RestartsKeepJointCallsWhole kills the process, and restarts the object, while callers
// charge a bucket and a log together.
func TestWorker_RestartsKeepJointCallsWhole(t *testing.T) {
	const charges, callers, restarts = 600, 6, 6
	w := startWorker(t, 1)
	charge := func(bucket, log int64) map[string]any {
		return body([]any{
			[]any{"bucket", "p", "k", "take", 1, int64(24 * hour), 2 * charges, bucket * 24 * hour, 0, max(bucket*24*hour, 1), 0},
			[]any{"log", "p", "k", "take", charges, int64(24 * hour), 0, log, 0},
		})
	}
	var answered, granted atomic.Int64
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for answered.Load() < charges {
				status, reply, err := w.try(limitPath, 0, charge(1, 1))
				if err != nil || status != http.StatusOK || reply.Replies[0] == nil {
					time.Sleep(time.Millisecond) // while the process restarts
					continue
				}
				answered.Add(1)
				granted.Add(reply.Replies[0][1][6])
			}
		})
	}
	for i := range restarts {
		target := charges * int64(i+1) / (restarts + 2)
		require.Eventually(t, func() bool { return answered.Load() >= target }, time.Minute, time.Millisecond)
		if i%2 == 0 {
			w.Restart()
		} else {
			w.operate("abort", 0)
		}
	}
	wg.Wait()
	left := w.do(limitPath, 0, charge(0, 0)).Replies[0]
	used := left[1][1]
	assert.Equal(t, used, 2*charges-left[0][0]/(24*hour), "each call takes from both or from none")
	assert.LessOrEqual(t, granted.Load(), used)
	assert.Greater(t, granted.Load(), int64(charges/2))
}
