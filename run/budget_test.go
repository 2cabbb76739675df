package run_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/run"
)

// left returns how many tokens a limiter would grant.
func left(t *testing.T, l limit.Limiter) int64 {
	d, err := limit.Inspect(t.Context(), l, limit.Key{"ann"})
	require.NoError(t, err)
	return d.Remaining
}

func TestBudget_OfBucketAndQuota(t *testing.T) {
	for name, test := range map[string]struct {
		budget  run.Budget
		produce func(context.Context, *run.Output[token]) error
		state   run.State
		used    int64
	}{
		"items":                    {run.Budget{Prompt: 10, Slice: 20}, emit(50, nil), run.Completed, 60},
		"nothing":                  {run.Budget{Prompt: 10, Slice: 20}, nothing, run.Completed, 10},
		"reported by the provider": {run.Budget{Prompt: 10, Slice: 20}, emit(5, func(out *run.Output[token]) { out.Used(13) }), run.Completed, 13},
		"more than was taken":      {run.Budget{Prompt: 10, Slice: 20}, emit(5, func(out *run.Output[token]) { out.Used(130) }), run.Completed, 130},
		"exhausted":                {run.Budget{Prompt: 10, Slice: 30}, emit(1000, nil), run.Exhausted, 100},
		"failed": {run.Budget{Prompt: 10, Slice: 20}, func(ctx context.Context, out *run.Output[token]) error {
			return errors.Join(emit(7, nil)(ctx, out), errors.New("away"))
		}, run.Failed, 17},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				bucket := memory.NewLimiter(limit.Per(100, 1000*time.Hour)) // nothing returns during the test
				quota := memory.NewQuota(limit.QuotaPolicy{Max: 1000, Period: limit.Day})
				rs := nodes(t, 1, run.Options[token]{Budget: limit.NewMeter(limit.MaxLease, bucket, quota)})[0]
				test.budget.Keys = []limit.Key{{"ann"}}
				info, err := rs.Start(t.Context(), "answer/1", &run.StartOptions{Budget: &test.budget}, test.produce)
				require.NoError(t, err)
				_, end := read(t, rs, run.From{Run: info.ID})
				synctest.Wait()
				assert.Equal(t, test.state, end.State)
				assert.Equal(t, max(0, 100-test.used), left(t, bucket))
				assert.Equal(t, 1000-test.used, left(t, quota))
				if test.state == run.Exhausted {
					e, _ := errors.AsType[*errors.Error](end.Err)
					assert.Equal(t, errors.ResourceExhausted, e.Code)
					assert.Positive(t, e.RetryAfter)
				}
			})
		})
	}
}

// emit emits n items.
func emit(n int, then func(*run.Output[token])) func(context.Context, *run.Output[token]) error {
	return func(_ context.Context, out *run.Output[token]) error {
		for range n {
			if err := out.Emit(token{"a"}); err != nil {
				return err
			}
		}
		if then != nil {
			then(out)
		}
		return nil
	}
}

func TestBudget_RefusedStartTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket, quota := memory.NewLimiter(limit.PerHour(100)), memory.NewQuota(limit.QuotaPolicy{Max: 1000, Period: limit.Day})
		rs := nodes(t, 1, run.Options[token]{Budget: limit.NewMeter(limit.MaxLease, quota, bucket)})[0]
		for slice, code := range map[int64]errors.Code{101: errors.FailedPrecondition, 2000: errors.FailedPrecondition} {
			_, err := rs.Start(t.Context(), "answer/1", &run.StartOptions{RequestID: "1", Budget: &run.Budget{Keys: []limit.Key{{"ann"}}, Slice: slice}}, nothing)
			assert.Equal(t, code, errors.CodeOf(err))
			assert.IsType(t, &errors.Error{}, err, "it is the client's, and nothing to report")
			assert.EqualValues(t, 100, left(t, bucket))
			assert.EqualValues(t, 1000, left(t, quota))
		}
		_, err := rs.Start(t.Context(), "answer/1", &run.StartOptions{RequestID: "1", Budget: &run.Budget{Keys: []limit.Key{{"ann"}}, Slice: 10}}, nothing)
		require.NoError(t, err, "a start that was refused can be repeated")
	})
}

func TestBudget_SameRequestIsReservedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket := memory.NewLimiter(limit.Per(100, 1000*time.Hour))
		rs := nodes(t, 1, run.Options[token]{Budget: limit.NewMeter(limit.MaxLease, bucket)})[0]
		for range 5 {
			_, err := rs.Start(t.Context(), "answer/1", &run.StartOptions{RequestID: "1", Budget: &run.Budget{Keys: []limit.Key{{"ann"}}, Slice: 30}}, wait)
			require.NoError(t, err)
		}
		assert.EqualValues(t, 70, left(t, bucket))
	})
}

func TestBudget_RejectsMistakes(t *testing.T) {
	rs := nodes(t, 1, run.Options[token]{})[0]
	_, err := rs.Start(t.Context(), "answer/1", &run.StartOptions{Budget: &run.Budget{Slice: 1}}, nothing)
	assert.ErrorContains(t, err, "it needs Options.Budget")
	rs = nodes(t, 1, run.Options[token]{Budget: limit.NewMeter(limit.MaxLease, memory.NewLimiter(limit.PerHour(100)))})[0]
	for _, b := range []run.Budget{{}, {Prompt: -1, Slice: 1}, {Slice: 10}} {
		_, err := rs.Start(t.Context(), "answer/1", &run.StartOptions{Budget: &b}, nothing)
		assert.Error(t, err, b)
	}
}
