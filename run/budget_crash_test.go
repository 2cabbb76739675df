package run_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/fakelimiter"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/run"
)

// This file lets a node die after each of its writes to the store and to the limiters, one after the other:
// between the two limiters of a reservation, before and after the record has it, before and after a slice, before
// and after the end, and between the two limiters of the settlement.

// A crash is when a node dies. The zero crash never happens.
type crash struct {
	mu    sync.Mutex
	after int // writes
	dead  bool
}

var errCrashed = &errors.Error{Code: errors.Unavailable, Message: "the node is dead"}

// write makes a write of the node, unless it is dead.
func (c *crash) write(f func() error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead {
		return errCrashed
	}
	err := f()
	if c.after--; c.after == 0 {
		c.dead = true
		return errCrashed
	}
	return err
}

func (c *crash) isDead() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dead
}

// limiter returns l as the node uses it.
func (c *crash) limiter(l limit.Limiter) limit.Limiter {
	return &fakelimiter.Limiter{Do: func(ctx context.Context, key limit.Key, take limit.Take) (d limit.Decision, err error) {
		err = c.write(func() (err error) {
			d, err = l.Take(ctx, key, take)
			return err
		})
		return d, err
	}}
}

// A crashingBroker is the broker of a node that dies.
type crashingBroker struct {
	broker.HistoryBroker

	crash *crash
}

func (b crashingBroker) ConnectHistory(h broker.Callbacks, hh broker.HistoryCallbacks) broker.HistoryNode {
	return crashingNode{b.HistoryBroker.ConnectHistory(h, hh), b.crash}
}

type crashingNode struct {
	broker.HistoryNode

	crash *crash
}

func (n crashingNode) Append(ctx context.Context, a broker.Append) (stored broker.Appended, err error) {
	err = n.crash.write(func() (err error) {
		stored, err = n.HistoryNode.Append(ctx, a)
		return err
	})
	return stored, err
}

func (n crashingNode) StoreValue(ctx context.Context, key string, data []byte, version uint64, lifetime time.Duration) (stored uint64, err error) {
	err = n.crash.write(func() (err error) {
		stored, err = n.HistoryNode.StoreValue(ctx, key, data, version, lifetime)
		return err
	})
	return stored, err
}

func (n crashingNode) LoadValue(ctx context.Context, key string) (broker.Value, error) {
	if n.crash.isDead() {
		return broker.Value{}, errCrashed
	}
	return n.HistoryNode.LoadValue(ctx, key)
}

const (
	prompt = 10
	slice  = 20
	tokens = 50 // that a run emits
	most   = 200
)

// crashAfter lets the node of a run die after some writes, and returns the run as the other node ends it. It returns
// false if the run has ended before. The limiters are those of both nodes.
func crashAfter(t *testing.T, writes int, every time.Duration, limiters []limit.Limiter) (end run.Info, crashed bool) {
	c, b := &crash{after: writes}, memory.NewBroker()
	var all []*run.Runs[token]
	for i := range 2 {
		options := &router.Options{Broker: b, Logger: slog.New(slog.DiscardHandler)}
		meter := limit.NewMeter(limit.MaxLease, limiters...)
		if i == 0 {
			options.Broker = crashingBroker{b, c}
			meter = limit.NewMeter(limit.MaxLease, c.limiter(limiters[0]), c.limiter(limiters[1]))
		}
		r := router.New(options)
		all = append(all, run.New(r, "answer/{chat}", &run.Options[token]{Budget: meter, Lease: 3 * time.Second}))
		defer func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Millisecond) // a dead node does not end
			defer cancel()
			_ = r.Shutdown(ctx)
		}()
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	opts := &run.StartOptions{Budget: &run.Budget{Keys: []limit.Key{{"ann"}}, Prompt: prompt, Slice: slice}}
	_, err := all[0].Start(ctx, "answer/1", opts, func(ctx context.Context, out *run.Output[token]) error {
		for range tokens {
			time.Sleep(every)
			if err := out.Emit(token{"a"}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		require.True(t, c.isDead(), "%v", err)
	}
	return awaitEnd(t, all[1]), c.isDead()
}

// awaitEnd returns the run when it has ended, or the zero Info if there is none.
func awaitEnd(t *testing.T, rs *run.Runs[token]) run.Info {
	for deadline := time.Now().Add(15 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		info, err := rs.Find(t.Context(), "answer/1", "")
		if errors.CodeOf(err) == errors.NotFound {
			return run.Info{}
		}
		require.NoError(t, err)
		if info.State.Ended() {
			return info
		}
	}
	require.Fail(t, "the run has no end")
	return run.Info{}
}

// checkTaken requires that a limiter has kept at least what the run has used, and at most a reservation or a slice more,
// which returns at the end of its lease.
func checkTaken(t *testing.T, taken int64, end run.Info) {
	switch {
	case end.ID == "" || end.Items == 0 && end.State == run.Interrupted: // perhaps before anything was reserved
		assert.GreaterOrEqual(t, taken, int64(0))
		assert.LessOrEqual(t, taken, int64(prompt+slice))
	default:
		used := prompt + int64(end.Items)
		assert.GreaterOrEqual(t, taken, used)
		assert.LessOrEqual(t, taken, used+slice)
	}
}

func TestBudget_CrashAtEachStep(t *testing.T) {
	crashes := 0
	for writes := 1; ; writes++ {
		crashed := false
		synctest.Test(t, func(t *testing.T) {
			bucket := memory.NewLimiter(limit.Per(most, 100_000*time.Hour)) // nothing returns during the test
			quota := memory.NewQuota(limit.QuotaPolicy{Max: most, Period: limit.Day})
			var end run.Info
			end, crashed = crashAfter(t, writes, 25*time.Millisecond, []limit.Limiter{bucket, quota})
			checkTaken(t, most-left(t, bucket), end)
			checkTaken(t, most-left(t, quota), end)
			time.Sleep(limit.MaxLease + time.Hour)
			used := most - left(t, bucket)
			if end.Items == 0 && end.State != run.Completed {
				assert.Contains(t, []int64{0, prompt}, used, "after %d writes: only the prompt stays used", writes)
			} else {
				assert.Equal(t, prompt+int64(end.Items), used, "after %d writes: what is kept returns at the end of its lease", writes)
			}
			assert.EqualValues(t, most, left(t, quota), "the next day")
		})
		if !crashed {
			break
		}
		crashes++
	}
	assert.Greater(t, crashes, 30, "after each of these writes, a node has died")
}
