package metrics_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/middleware/metrics"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/run"
	"github.com/penstock-go/penstock/run/observe"
)

// TestRun_CountsWhatRunsReport starts two runs, of which one is stopped, and refuses a third.
func TestRun_CountsWhatRunsReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		m := metrics.New(reg, nil)
		for name := range scrape(t, reg) {
			assert.False(t, strings.HasPrefix(name, "run"), "%s is there without runs", name)
		}
		r := router.New(nil)
		meter := limit.NewMeter(limit.MaxLease, memory.NewLimiter(limit.PerHour(100)))
		runs := run.New(r, "echo/{id}", &run.Options[Echo]{Observe: m.Run, Budget: meter})
		start := func(topic, request string, produce func(context.Context, *run.Output[Echo]) error) error {
			_, err := runs.Start(t.Context(), topic, &run.StartOptions{RequestID: request, Budget: &run.Budget{Keys: []limit.Key{{"ann"}}, Slice: 10}}, produce)
			return err
		}
		emit := func(_ context.Context, out *run.Output[Echo]) error { return out.Emit(Echo{N: 1}) }
		require.NoError(t, start("echo/1", "1", emit))
		require.NoError(t, start("echo/1", "1", emit))
		require.NoError(t, start("echo/2", "2", func(ctx context.Context, _ *run.Output[Echo]) error {
			<-ctx.Done()
			return nil
		}))
		require.Error(t, start("echo/2", "3", emit))
		reader, err := runs.Attach(t.Context(), "echo/2", run.From{})
		require.NoError(t, err)
		synctest.Wait()
		now := scrape(t, reg)
		assert.InDelta(t, 1, now["runs_active"], 0)
		assert.InDelta(t, 1, now["run_readers"], 0)
		for _, state := range []run.State{run.Completed, run.Failed, run.Stopped, run.Interrupted, run.Exhausted, run.Expired} {
			assert.Contains(t, now, fmt.Sprintf("runs_ended_total{state=%s}", state), "alerts see the first one")
		}
		assert.Contains(t, now, "run_fenced_total")
		assert.Contains(t, now, "run_lease_lost_total")
		reader.Close()
		_, err = runs.Stop(t.Context(), "echo/2", "", "")
		require.NoError(t, err)
		synctest.Wait()
		for name, want := range map[string]float64{
			"runs_active": 0, "run_readers": 0, "run_attach_total": 1,
			`runs_started_total{outcome=started}`: 2, `runs_started_total{outcome=repeated}`: 1,
			`runs_started_total{outcome=refused}`: 1,
			`runs_ended_total{state=completed}`:   1, `runs_ended_total{state=stopped}`: 1,
			"run_items_total": 1, "run_bytes_total": 7, "run_batches_total": 1,
			"run_first_item_seconds count": 1, "run_duration_seconds count": 2, "run_stop_seconds count": 1,
			`run_budget_tokens_total{kind=taken}`: 20, `run_budget_tokens_total{kind=used}`: 1,
		} {
			got, ok := scrape(t, reg)[name]
			assert.True(t, ok, name)
			assert.InDelta(t, want, got, 0, name)
		}
		m.Run(observe.Event{Kind: observe.Resumed})
		m.Run(observe.Event{Kind: observe.Abandoned, State: string(run.Interrupted)})
		m.Run(observe.Event{Kind: observe.Fenced})
		m.Run(observe.Event{Kind: observe.LeaseLost})
		now = scrape(t, reg)
		for _, name := range []string{
			`runs_started_total{outcome=resumed}`, `runs_ended_total{state=interrupted}`,
			"run_fenced_total", "run_lease_lost_total",
		} {
			assert.InDelta(t, 1, now[name], 0, name)
		}
		require.NoError(t, r.Shutdown(t.Context()))
	})
}
