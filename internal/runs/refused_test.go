package runs_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/runs"
)

var errRefused = errors.Errorf(errors.FailedPrecondition, "a privilege is missing")

// refusing starts a run that emits three items, "no" as the second, on a store that refuses some appends. It returns how many it
// has refused, what a late reader on another node reads, and what the producer has learned.
func refusing(t *testing.T, refuse func(*broker.Append) error) (refused int, items []any, end *runs.End, learned error) {
	t.Helper()
	m := newModel(t, 1, scenario{faultless: true})
	defer m.end()
	m.store.refuse = func(a *broker.Append) error {
		err := refuse(a)
		if err != nil {
			refused++
		}
		return err
	}
	run, _, err := m.nodes[0].runs.Start(t.Context(), &runs.Claim{Topic: "topic", Produce: func(o *runs.Owned, _ runs.Record) runs.Producer {
		return func(ctx context.Context) error {
			for _, run := range []string{"yes", "no", "yes"} {
				if learned = o.Emit([]byte(`{"run":"` + run + `"}`)); learned == nil {
					learned = o.Flush()
				}
				if learned != nil {
					assert.ErrorIs(t, o.Flush(), learned)
					assert.ErrorIs(t, context.Cause(ctx), learned)
					return learned
				}
			}
			return nil
		}
	}})
	require.NoError(t, err)
	time.Sleep(lease / 2)
	reader, err := m.nodes[1].runs.Attach(t.Context(), "topic", run.ID)
	require.NoError(t, err)
	defer reader.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 2*lease)
	defer cancel()
	for end == nil {
		var more []any
		more, end, err = reader.Next(ctx, uint64(len(items)))
		require.NoError(t, err)
		items = append(items, more...)
	}
	time.Sleep(100 * time.Millisecond) // the record has the end after the log
	found, err := m.nodes[1].runs.Find(ctx, "topic", run.ID)
	require.NoError(t, err)
	assert.Equal(t, end.State, found.State)
	return refused, items, end, learned
}

// TestRuns_EndWithAnErrorThatIsPermanent refuses an item, alone and with all that follows, even the end.
func TestRuns_EndWithAnErrorThatIsPermanent(t *testing.T) {
	for name, after := range map[string]bool{"the item": false, "all that follows": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				gone := false
				refused, items, end, learned := refusing(t, func(a *broker.Append) error {
					if gone = gone && after || strings.Contains(string(a.Packet), `"no"`); gone {
						return errRefused
					}
					return nil
				})
				require.ErrorIs(t, learned, errRefused)
				assert.LessOrEqual(t, refused, 2)
				assert.Len(t, items, 1)
				assert.Equal(t, runs.Failed, end.State)
				assert.EqualValues(t, 1, end.Items)
				assert.Equal(t, errors.FailedPrecondition, end.Error.Code)
			})
		})
	}
}

// TestRuns_WaitForAStoreThatIsFull repeats an append after waits that grow, and loses nothing.
func TestRuns_WaitForAStoreThatIsFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full := time.Time{}
		var waits []time.Duration
		last := time.Time{}
		refused, items, end, learned := refusing(t, func(a *broker.Append) error {
			if !strings.Contains(string(a.Packet), `"no"`) {
				return nil
			}
			now := time.Now()
			if full.IsZero() {
				full = now.Add(time.Second)
			} else {
				waits = append(waits, now.Sub(last))
			}
			if last = now; now.Before(full) {
				return errors.Errorf(errors.ResourceExhausted, "the store is full")
			}
			return nil
		})
		require.NoError(t, learned)
		assert.Len(t, items, 3)
		assert.Equal(t, runs.Completed, end.State)
		assert.Less(t, refused, 10)
		for i, wait := range waits {
			assert.GreaterOrEqual(t, wait, min(25*time.Millisecond<<i, time.Second), "half of what the wait is at most")
		}
	})
}
