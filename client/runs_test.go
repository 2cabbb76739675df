//go:build !js

package client_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/client"
	"github.com/penstock-go/penstock/client/runs"
	"github.com/penstock-go/penstock/codec/cbor"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/run"
)

// A token is an item of the runs of these tests.
type token struct {
	Text string `json:"text"`
}

func (token) MessageType() string { return "token" }

func concat(first, second token) (token, bool) { return token{first.Text + second.Text}, true }

// produce returns a producer of the numbers below n, with a pause after each.
func produce(n int, pause time.Duration) func(context.Context, *run.Output[token]) error {
	return func(_ context.Context, out *run.Output[token]) error {
		for i := range n {
			if err := out.Emit(token{fmt.Sprint(i, " ")}); err != nil {
				return err
			}
			time.Sleep(pause)
		}
		return nil
	}
}

// produceOne returns when the run is stopped.
func produceOne(ctx context.Context, out *run.Output[token]) error {
	if err := out.Emit(token{"a"}); err != nil {
		return err
	}
	<-ctx.Done()
	return context.Cause(ctx)
}

// items is how many items the runs of most tests have.
const items = 1000

// numbers returns the text of these items from a number on.
func numbers(from int) string {
	var s strings.Builder
	for i := from; i < items; i++ {
		fmt.Fprint(&s, i, " ")
	}
	return s.String()
}

// readAll reads a run to its end, and calls each after every part.
func readAll(ctx context.Context, t *testing.T, r *runs.Reader[token], each func(runs.Part[token])) (text string, end runs.End) {
	t.Helper()
	next := r.Next()
	for part, err := range r.Parts(ctx) {
		require.NoError(t, err)
		require.Equal(t, next, part.Number)
		next = part.Next()
		require.Equal(t, next, r.Next())
		text += part.Item.Text
		each(part)
	}
	end, ok := r.End()
	require.True(t, ok)
	return text, end
}

func ignore(runs.Part[token]) {}

// lastError reads a run until an error.
func lastError(ctx context.Context, r *runs.Reader[token], each func()) (last error) {
	for _, err := range r.Parts(ctx) {
		if last = err; err == nil {
			each()
		}
	}
	return last
}

func TestAttach_EndsWithErrors(t *testing.T) {
	inVirtualTime(t, nil, func(t *testing.T, n *network, c *client.Client, rs *run.Runs[token]) {
		for _, topic := range []string{"answer/1", "answer/secret"} {
			_, err := rs.Start(t.Context(), topic, nil, produceOne)
			require.NoError(t, err)
		}
		for _, test := range []struct{ topic, run string }{{"answer/none", ""}, {"answer/secret", ""}, {"answer/1", "x"}, {"other", ""}} {
			r := runs.Attach(c, test.topic, &runs.Options[token]{Run: test.run})
			err := lastError(t.Context(), r, func() { assert.Fail(t, "it has an item", test) })
			assert.Equal(t, errors.NotFound, errors.CodeOf(err), test)
			_, ok := r.End()
			assert.False(t, ok, test)
			_, err = runs.Stop[token](t.Context(), c, test.topic, "x")
			assert.Equal(t, errors.NotFound, errors.CodeOf(err), test)
		}
		_, err := runs.Stop[token](t.Context(), c, "answer/1", "")
		assert.Equal(t, errors.InvalidArgument, errors.CodeOf(err))

		ctx, cancel := context.WithCancel(t.Context())
		err = lastError(ctx, runs.Attach[token](c, "answer/1", nil), cancel)
		assert.Equal(t, errors.Canceled, errors.CodeOf(err))

		n.fail.Store(true)
		ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err = lastError(ctx, runs.Attach[token](c, "answer/1", nil), n.cut)
		assert.Equal(t, errors.DeadlineExceeded, errors.CodeOf(err))
		n.fail.Store(false)

		err = lastError(t.Context(), runs.Attach[token](c, "answer/1", nil), func() { assert.NoError(t, c.Close(t.Context())) })
		require.ErrorIs(t, err, client.ErrClosed)
		_, err = runs.Stop[token](t.Context(), c, "answer/1", "x")
		require.ErrorIs(t, err, client.ErrClosed)
	})
}

// TestAttach_ReceivesEachItemOnceUnderCuts loses the connection after every 50 items.
func TestAttach_ReceivesEachItemOnceUnderCuts(t *testing.T) {
	for _, merge := range []func(a, b token) (token, bool){concat, nil} {
		inVirtualTime(t, merge, func(t *testing.T, n *network, c *client.Client, rs *run.Runs[token]) {
			info, err := rs.Start(t.Context(), "answer/1", nil, produce(items, 10*time.Millisecond))
			require.NoError(t, err)
			reader, cuts := runs.Attach[token](c, "answer/1", nil), 0
			got, end := readAll(t.Context(), t, reader, func(part runs.Part[token]) {
				if int(part.Next()) > 50*(cuts+1) {
					n.cut()
					cuts++
				}
			})
			assert.Equal(t, numbers(0), got)
			assert.Greater(t, cuts, 5)
			assert.Equal(t, runs.End{Run: info.ID, State: string(run.Completed), Items: items}, end)
			assert.Equal(t, info.ID, reader.Run())
			for range reader.Parts(t.Context()) { //nolint:errcheck // none is yielded
				assert.Fail(t, "it has ended")
			}
			tail := runs.Attach(c, "answer/1", &runs.Options[token]{Run: info.ID, From: 900})
			got, end = readAll(t.Context(), t, tail, ignore)
			assert.Equal(t, numbers(900), got)
			assert.EqualValues(t, items, end.Items)
		})
	}
}

// TestAttach_SlowReaderReceivesMergedParts takes one item, and the next one when the run has ended.
// The stream begins with 64 credits: one is for the part that names the run, 63 are for items 0 to
// 62. Item 63 waits for a credit, and what follows it is merged.
func TestAttach_SlowReaderReceivesMergedParts(t *testing.T) {
	for _, test := range []struct {
		merge func(a, b token) (token, bool)
		parts int
	}{{concat, 65}, {nil, items}} {
		inVirtualTime(t, test.merge, func(t *testing.T, _ *network, c *client.Client, rs *run.Runs[token]) {
			const pause = 30 * time.Millisecond // longer than run.Options.Flush
			_, err := rs.Start(t.Context(), "answer/1", nil, produce(items, pause))
			require.NoError(t, err)
			var parts []runs.Part[token]
			got, end := readAll(t.Context(), t, runs.Attach[token](c, "answer/1", nil), func(part runs.Part[token]) {
				if parts = append(parts, part); len(parts) == 1 {
					time.Sleep(2000 * pause)
				}
			})
			assert.Equal(t, numbers(0), got)
			assert.Equal(t, "completed", end.State)
			require.Len(t, parts, test.parts)
			for i, part := range parts[:64] {
				assert.Equal(t, runs.Part[token]{Number: uint64(i), Item: &token{fmt.Sprint(i, " ")}}, part)
			}
			if test.merge != nil {
				text := token{numbers(64)}
				assert.Equal(t, runs.Part[token]{Number: 64, Count: 936, Item: &text}, parts[64])
			}
		})
	}
}

// TestAttach_MergesWithWhatItHas even if the loop was left in between, and begins another part
// where items must stay two.
func TestAttach_MergesWithWhatItHas(t *testing.T) {
	inVirtualTime(t, nil, func(t *testing.T, _ *network, c *client.Client, rs *run.Runs[token]) {
		_, err := rs.Start(t.Context(), "answer/1", nil, produce(7, 30*time.Millisecond))
		require.NoError(t, err)
		r := runs.Attach(c, "answer/1", &runs.Options[token]{From: 1, Merge: func(first, second token) (token, bool) {
			both, _ := concat(first, second)
			return both, second.Text != "4 "
		}})
		var got []string
		for r.Next() < 7 {
			for part, err := range r.Parts(t.Context()) {
				require.NoError(t, err)
				got = append(got, fmt.Sprint(part.Number, " ", max(part.Count, 1), ": ", part.Item.Text))
				break
			}
		}
		assert.Equal(t, []string{"1 1: 1 ", "1 2: 1 2 ", "1 3: 1 2 3 ", "4 1: 4 ", "4 2: 4 5 ", "4 3: 4 5 6 "}, got)
	})
}

func TestAttach_ReturnsWhyARunHasFailed(t *testing.T) {
	for _, want := range []*errors.Error{
		{Code: errors.ResourceExhausted, Message: "none are left", RetryAfter: errors.Never, Details: map[string]any{"policy": "daily"}},
		{Code: errors.ResourceExhausted, Message: "wait", RetryAfter: time.Minute},
		{Code: errors.Unavailable, Message: "the model is away"},
		{Code: errors.NotFound, Message: "there is no such model"},
	} {
		for _, codec := range []client.Codec{nil, cbor.New(nil)} {
			inVirtualTime(t, nil, func(t *testing.T, n *network, _ *client.Client, rs *run.Runs[token]) {
				_, err := rs.Start(t.Context(), "answer/1", nil, func(context.Context, *run.Output[token]) error { return want })
				require.NoError(t, err)
				c := n.connect(t, codec)
				_, end := readAll(t.Context(), t, runs.Attach[token](c, "answer/1", nil), ignore)
				assert.Equal(t, "failed", end.State)
				assert.Equal(t, want, end.Err)
			})
		}
	}
}

func TestStop_ReturnsTheEnd(t *testing.T) {
	inVirtualTime(t, nil, func(t *testing.T, _ *network, c *client.Client, rs *run.Runs[token]) {
		info, err := rs.Start(t.Context(), "answer/1", nil, produceOne)
		require.NoError(t, err)
		var stopped runs.End
		_, end := readAll(t.Context(), t, runs.Attach[token](c, "answer/1", nil), func(runs.Part[token]) {
			stopped, err = runs.Stop[token](t.Context(), c, "answer/1", info.ID)
			require.NoError(t, err)
		})
		assert.Equal(t, stopped, end)
		assert.Equal(t, "stopped", end.State)
		assert.EqualValues(t, 1, end.Items)
		again, err := runs.Stop[token](t.Context(), c, "answer/1", info.ID)
		require.NoError(t, err)
		assert.Equal(t, end, again)
	})
}
