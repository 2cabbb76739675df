package run_test

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/run"
)

// TestRun_Ends has each way in which a producer ends its run.
func TestRun_Ends(t *testing.T) {
	for name, test := range map[string]struct {
		produce func(context.Context, *run.Output[token]) error
		state   run.State
		code    errors.Code
		items   string
	}{
		"completed": {func(_ context.Context, out *run.Output[token]) error { return out.Emit(token{"a"}) }, run.Completed, "", "a"},
		"an error": {func(context.Context, *run.Output[token]) error {
			return errors.Errorf(errors.Unavailable, "the model is away")
		}, run.Failed, errors.Unavailable, ""},
		"a private error": {func(context.Context, *run.Output[token]) error { return errors.New("secret") }, run.Failed, errors.Internal, ""},
		"a panic":         {func(context.Context, *run.Output[token]) error { panic("secret") }, run.Failed, errors.Internal, ""},
		"a goexit": {func(context.Context, *run.Output[token]) error {
			runtime.Goexit()
			return nil
		}, run.Failed, errors.Internal, ""},
		"too many items": {func(_ context.Context, out *run.Output[token]) (err error) {
			for err == nil {
				err = out.Emit(token{"a"})
			}
			return nil // the cause counts
		}, run.Exhausted, errors.ResourceExhausted, "aaaaa"},
		"too many bytes": {func(_ context.Context, out *run.Output[token]) error {
			return out.Emit(token{string(make([]byte, 200))})
		}, run.Exhausted, errors.ResourceExhausted, ""},
		"too long": {wait, run.Expired, errors.DeadlineExceeded, ""},
		"too long, and it does not care": {func(context.Context, *run.Output[token]) error {
			time.Sleep(time.Hour)
			return nil
		}, run.Expired, errors.DeadlineExceeded, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rs := nodes(t, 1, run.Options[token]{Limits: run.Limits{Duration: time.Minute, Items: 5, Bytes: 200}})[0]
				info, err := rs.Start(t.Context(), "answer/1", nil, test.produce)
				require.NoError(t, err)
				text, end := read(t, rs, run.From{Run: info.ID})
				assert.Equal(t, test.items, text)
				assert.Equal(t, test.state, end.State)
				assert.Equal(t, test.code, errors.CodeOf(end.Err))
				if end.Err != nil {
					assert.NotContains(t, end.Err.Error(), "secret")
				}
				time.Sleep(2 * time.Hour) // for a producer that does not care
			})
		})
	}
}

// TestRun_KeepsDetailsOfItsError as far as they can be encoded.
func TestRun_KeepsDetailsOfItsError(t *testing.T) {
	for _, test := range []struct{ details, want any }{
		{map[string]any{"policy": "daily"}, map[string]any{"policy": "daily"}},
		{map[string]any{"policy": make(chan int)}, nil},
	} {
		synctest.Test(t, func(t *testing.T) {
			rs := nodes(t, 1, run.Options[token]{})[0]
			failed := &errors.Error{Code: errors.ResourceExhausted, Message: "none are left", Details: test.details}
			_, err := rs.Start(t.Context(), "answer/1", nil, func(context.Context, *run.Output[token]) error { return failed })
			require.NoError(t, err)
			_, end := read(t, rs, run.From{})
			assert.Equal(t, run.Failed, end.State)
			assert.Equal(t, &errors.Error{Code: errors.ResourceExhausted, Message: "none are left", Details: test.want}, end.Err)
		})
	}
}

// TestRun_ContextHasValues of the caller, and outlives it.
func TestRun_ContextOutlivesTheCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rs := nodes(t, 1, run.Options[token]{})[0]
		type key struct{}
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "value"))
		_, err := rs.Start(ctx, "answer/1", nil, func(ctx context.Context, out *run.Output[token]) error {
			time.Sleep(time.Second)
			value, _ := ctx.Value(key{}).(string)
			_, ok := ctx.Deadline()
			assert.True(t, ok)
			return errors.Join(ctx.Err(), out.Emit(token{value}))
		})
		cancel()
		require.NoError(t, err)
		text, _ := read(t, rs, run.From{})
		assert.Equal(t, "value", text)
	})
}

// TestEmit_FirstItemIsStoredAtOnce, and the next ones together.
func TestEmit_FirstItemIsStoredAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rs := nodes(t, 1, run.Options[token]{})[0]
		_, err := rs.Start(t.Context(), "answer/1", nil, func(ctx context.Context, out *run.Output[token]) error {
			for range 10 {
				if err := out.Emit(token{"a"}); err != nil {
					return err
				}
				time.Sleep(7 * time.Millisecond)
			}
			began := time.Now()
			assert.NoError(t, out.Flush())
			assert.Zero(t, time.Since(began))
			return sleep(ctx, time.Second)
		})
		require.NoError(t, err)
		r, err := rs.Attach(t.Context(), "answer/1", run.From{})
		require.NoError(t, err)
		defer r.Close()
		began := time.Now()
		var arrived []time.Duration
		for part, err := range r.Parts(t.Context()) {
			require.NoError(t, err)
			assert.Equal(t, "a", part.Item.Text)
			arrived = append(arrived, time.Since(began).Round(time.Millisecond))
		}
		ms := time.Millisecond
		assert.Equal(t, []time.Duration{0, 20 * ms, 20 * ms, 40 * ms, 40 * ms, 40 * ms, 60 * ms, 60 * ms, 60 * ms, 70 * ms}, arrived)
	})
}

// TestEmit_AfterTheProducerHasReturned: every item that Emit accepts is one of the run, whose end counts it.
func TestEmit_AfterTheProducerHasReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rs := nodes(t, 1, run.Options[token]{})[0]
		var late sync.WaitGroup
		emitted, refused := 1, 0
		_, err := rs.Start(t.Context(), "answer/1", nil, func(_ context.Context, out *run.Output[token]) error {
			late.Go(func() {
				for range 20 {
					switch err := out.Emit(token{"b"}); errors.CodeOf(err) {
					case errors.FailedPrecondition:
						refused++
					default:
						assert.NoError(t, err)
						emitted++
					}
					time.Sleep(time.Millisecond)
				}
			})
			time.Sleep(10 * time.Millisecond)
			return out.Emit(token{"a"})
		})
		require.NoError(t, err)
		text, info := read(t, rs, run.From{})
		late.Wait()
		assert.Len(t, text, emitted)
		assert.EqualValues(t, emitted, info.Items)
		assert.NotZero(t, refused)
	})
}
