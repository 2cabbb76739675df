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
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/run"
)

type token struct {
	Text string `json:"text"`
}

func (token) MessageType() string { return "token" }

func concat(a, b token) (token, bool) { return token{a.Text + b.Text}, true }

// nodes returns routers with runs that share a store.
func nodes(t *testing.T, n int, opts run.Options[token]) []*run.Runs[token] {
	b := memory.NewBroker()
	all := make([]*run.Runs[token], n)
	for i := range all {
		r := router.New(&router.Options{Broker: b})
		all[i] = run.New(r, "answer/{chat}", &opts)
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			assert.NoError(t, r.Shutdown(ctx))
		})
	}
	return all
}

func read(t *testing.T, rs *run.Runs[token], from run.From) (text string, info run.Info) {
	r, err := rs.Attach(t.Context(), "answer/1", from)
	require.NoError(t, err)
	defer r.Close()
	next := from.Item
	for part, err := range r.Parts(t.Context()) {
		require.NoError(t, err)
		assert.Equal(t, next, part.Number)
		next = part.Next()
		text += part.Item.Text
	}
	return text, r.Info()
}

func TestRun_ReachesReadersOnAllNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := nodes(t, 3, run.Options[token]{Merge: concat})
		want := ""
		info, err := all[0].Start(t.Context(), "answer/1", nil, func(ctx context.Context, out *run.Output[token]) error {
			for i := range 500 {
				time.Sleep(2 * time.Millisecond)
				if err := out.Emit(token{fmt.Sprint(i, " ")}); err != nil {
					return err
				}
			}
			return nil
		})
		require.NoError(t, err)
		for i := range 500 {
			want += fmt.Sprint(i, " ")
		}
		for _, rs := range all {
			time.Sleep(200 * time.Millisecond)
			text, end := read(t, rs, run.From{Run: info.ID})
			assert.Equal(t, want, text)
			assert.Equal(t, run.Completed, end.State)
			assert.EqualValues(t, 500, end.Items)
		}
	})
}

func TestRun_StopsOnAnotherNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := nodes(t, 2, run.Options[token]{})
		info, err := all[0].Start(t.Context(), "answer/1", nil, func(ctx context.Context, out *run.Output[token]) error {
			_ = out.Emit(token{"a"})
			<-ctx.Done()
			return context.Cause(ctx)
		})
		require.NoError(t, err)
		_, err = all[1].Start(t.Context(), "answer/1", nil, func(context.Context, *run.Output[token]) error { return nil })
		assert.Equal(t, errors.Aborted, errors.CodeOf(err))
		synctest.Wait()
		began := time.Now()
		end, err := all[1].Stop(t.Context(), "answer/1", info.ID, "ann")
		require.NoError(t, err)
		assert.Less(t, time.Since(began), time.Second)
		assert.Equal(t, run.Stopped, end.State)
		assert.Equal(t, "ann", end.StoppedBy)
		text, end := read(t, all[1], run.From{})
		assert.Equal(t, "a", text)
		assert.Equal(t, run.Stopped, end.State)
		_, err = all[1].Start(t.Context(), "answer/1", nil, func(context.Context, *run.Output[token]) error { return nil })
		require.NoError(t, err)
	})
}
