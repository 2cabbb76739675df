package runs_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/runs"
)

// TestRuns_SurvivesARecordThatComesBack lets a failover bring back the record of the run before, without its end. The node that
// ends that run again gives it the fence of the run that goes on.
func TestRuns_SurvivesARecordThatComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel(t, 1, scenario{faultless: true})
		defer m.end()
		first, second, third := m.nodes[0], m.nodes[1], m.nodes[2]
		claim := &runs.Claim{Topic: "topic", Produce: func(*runs.Owned, runs.Record) runs.Producer {
			return func(ctx context.Context) error {
				<-ctx.Done()
				return context.Cause(ctx)
			}
		}}
		before, _, err := first.runs.Start(t.Context(), claim)
		require.NoError(t, err)
		close(first.conn.dead)
		time.Sleep(2 * lease)
		kept := m.store.changes() + 1 // the record with the next fence, which comes before the end
		run, begun, err := second.runs.Start(t.Context(), claim)
		require.NoError(t, err)
		require.True(t, begun)
		time.Sleep(100 * time.Millisecond)

		m.store.failOver(m.store.changes() - kept)
		back, err := third.runs.Find(t.Context(), "topic", before.ID)
		require.NoError(t, err)
		assert.Equal(t, runs.Interrupted, back.State)
		require.Equal(t, run.Fence, back.Fence)
		time.Sleep(lease)
		found, err := third.runs.Find(t.Context(), "topic", run.ID)
		require.NoError(t, err)
		assert.Equal(t, runs.Running, found.State)
		found, err = third.runs.Find(t.Context(), "topic", before.ID)
		require.NoError(t, err)
		assert.Equal(t, runs.Interrupted, found.State)
	})
}

// TestRuns_LostWhileItsBeginningIsAnnounced pauses a node whose run has returned, but is still announced. Another node ends the
// run and settles its budget.
func TestRuns_LostWhileItsBeginningIsAnnounced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel(t, 1, scenario{faultless: true})
		defer m.end()
		first, second := m.nodes[0], m.nodes[1]
		announced := make(chan struct{})
		first.changed = func(runs.Record) { <-announced }
		settled := 0
		claim := &runs.Claim{Topic: "topic", Produce: func(o *runs.Owned, _ runs.Record) runs.Producer {
			o.SetSettle(func(context.Context) error { settled++; return nil })
			return func(context.Context) error { return nil }
		}}
		run, _, err := first.runs.Start(t.Context(), claim)
		require.NoError(t, err)
		time.Sleep(time.Second)
		first.conn.pause(3 * lease)
		time.Sleep(2 * lease)
		found, err := second.runs.Find(t.Context(), "topic", run.ID)
		require.NoError(t, err)
		assert.Equal(t, runs.Completed, found.State)
		time.Sleep(2 * lease)
		close(announced)
		time.Sleep(lease)
		assert.Zero(t, settled)
	})
}
