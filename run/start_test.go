package run_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/run"
)

func nothing(context.Context, *run.Output[token]) error { return nil }

// wait runs until it is stopped.
func wait(ctx context.Context, _ *run.Output[token]) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

func TestNew_RejectsOptions(t *testing.T) {
	for name, opts := range map[string]*run.Options[token]{
		"a lease that is too short": {Lease: time.Second},
		"a negative duration":       {Limits: run.Limits{Duration: -1}},
		"a negative size":           {FlushBytes: -1},
	} {
		assert.Panics(t, func() { run.New(router.New(nil), "answer/{chat}", opts) }, name)
	}
	assert.Panics(t, func() { run.New[token](router.New(nil), "answer/{", nil) })
	r := router.New(nil)
	run.New[token](r, "answer/{chat}", nil)
	assert.Panics(t, func() { run.New[token](r, "other/{chat}", nil) }, "the types of the messages exist")
}

func TestStart_RejectsOtherTopics(t *testing.T) {
	rs := run.New[token](router.New(nil), "answer/{chat}", nil)
	for _, topic := range []string{"", "answer", "answer/1/2", "answer/\x00"} {
		_, err := rs.Start(t.Context(), topic, nil, nothing)
		assert.Equal(t, errors.InvalidArgument, errors.CodeOf(err), topic)
		_, err = rs.Attach(t.Context(), topic, run.From{})
		assert.Equal(t, errors.InvalidArgument, errors.CodeOf(err), topic)
		_, err = rs.Stop(t.Context(), topic, "", "")
		assert.Equal(t, errors.InvalidArgument, errors.CodeOf(err), topic)
	}
	_, err := rs.Attach(t.Context(), "answer/1", run.From{})
	assert.Equal(t, errors.NotFound, errors.CodeOf(err))
	_, err = rs.Stop(t.Context(), "answer/1", "", "")
	assert.Equal(t, errors.NotFound, errors.CodeOf(err))
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func TestStart_PermitsOfAUser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rs := nodes(t, 1, run.Options[token]{PerUser: memory.NewSemaphore(1)})[0]
		ann := &run.StartOptions{User: limit.Key{"ann"}}
		info, err := rs.Start(t.Context(), "answer/1", ann, wait)
		require.NoError(t, err)
		_, err = rs.Start(t.Context(), "answer/2", ann, wait)
		assert.Equal(t, errors.ResourceExhausted, errors.CodeOf(err))
		_, err = rs.Find(t.Context(), "answer/2", "")
		assert.Equal(t, errors.NotFound, errors.CodeOf(err), "nothing is left of a start that was refused")
		_, err = rs.Start(t.Context(), "answer/2", &run.StartOptions{User: limit.Key{"bob"}}, nothing)
		require.NoError(t, err)
		_, err = rs.Stop(t.Context(), "answer/1", info.ID, "")
		require.NoError(t, err)
		_, err = rs.Start(t.Context(), "answer/3", ann, nothing)
		require.NoError(t, err)
	})
}

// TestStart_SameRequestAfterTheEnd returns the run with its end, even if the record lacked the end when the reader had
// it.
func TestStart_SameRequestAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rs := nodes(t, 1, run.Options[token]{})[0]
		for i := range 100 {
			opts := &run.StartOptions{RequestID: fmt.Sprint(i)}
			info, err := rs.Start(t.Context(), "answer/1", opts, nothing)
			require.NoError(t, err)
			_, _ = read(t, rs, run.From{Run: info.ID})
			again, err := rs.Start(t.Context(), "answer/1", opts, nothing)
			require.NoError(t, err)
			require.Equal(t, info.ID, again.ID)
			require.True(t, again.Repeated)
			require.Equal(t, run.Completed, again.State)
		}
	})
}

// TestStart_ForgetsRunsAfterRetain while a later run is still active.
func TestStart_ForgetsRunsAfterRetain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rs := nodes(t, 1, run.Options[token]{Retain: time.Minute})[0]
		first, err := rs.Start(t.Context(), "answer/1", &run.StartOptions{RequestID: "a"}, nothing)
		require.NoError(t, err)
		time.Sleep(time.Second)
		_, err = rs.Start(t.Context(), "answer/1", nil, wait)
		require.NoError(t, err)
		found, err := rs.Find(t.Context(), "answer/1", first.ID)
		require.NoError(t, err)
		assert.Equal(t, first.ID, found.ID)
		time.Sleep(time.Minute)
		_, err = rs.Find(t.Context(), "answer/1", first.ID)
		assert.Equal(t, errors.NotFound, errors.CodeOf(err))
		_, err = rs.Start(t.Context(), "answer/1", &run.StartOptions{RequestID: "a"}, nothing)
		assert.Equal(t, errors.Aborted, errors.CodeOf(err), "the second run is active")
		_, err = rs.Stop(t.Context(), "answer/1", "", "ann")
		require.NoError(t, err)
	})
}
