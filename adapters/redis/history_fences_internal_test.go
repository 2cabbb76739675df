package redis

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/redistest"
)

// appendNews appends a publication to the topic news.
func (n *observedNode) appendNews(t *testing.T, a broker.Append) (broker.Appended, error) {
	t.Helper()
	a.Topic, a.Retention = "news", retention
	return n.Append(t.Context(), a)
}

// inOneScript appends publications with one script call.
func (n *observedNode) inOneScript(ctx context.Context, appends ...broker.Append) (calls []*appendCall) {
	for _, a := range appends {
		a.Retention = retention
		calls = append(calls, &appendCall{Append: a, Keys: n.keysOf(a.Topic)})
	}
	n.append(ctx, []*appendBatch{{Partition: calls[0].Keys.channel.Partition, Calls: calls}})
	return calls
}

// TestHistory_ScriptDecidesInOrder has all cases of a topic in one script call.
func TestHistory_ScriptDecidesInOrder(t *testing.T) {
	t.Parallel()
	n := connectHistory(t, redistest.Start(t).Client(t))
	type outcome struct {
		offset    uint64
		duplicate bool
		code      errors.Code
		message   string
	}
	cases := []struct {
		append broker.Append
		want   outcome
	}{
		{broker.Append{Fence: 1, StateKey: "kept"}, outcome{offset: 1}},
		{broker.Append{Fence: 9, IdempotencyKey: "a", StateKey: "s"}, outcome{offset: 2}},
		{broker.Append{Fence: 8, StateKey: "s"}, outcome{code: errors.Aborted, message: `ABORTED: the publication was not stored: the topic "news" has the fence 9, and the publication 8`}},
		{broker.Append{}, outcome{code: errors.Aborted, message: `ABORTED: the publication was not stored: the topic "news" has the fence 9, and the publication 0`}},
		{broker.Append{IdempotencyKey: "a"}, outcome{offset: 2, duplicate: true}},
		{broker.Append{Fence: 10, StateKey: "s", Removed: true}, outcome{offset: 3}},
		{broker.Append{Fence: 9, Last: true, IdempotencyKey: "b"}, outcome{code: errors.Aborted, message: `ABORTED: the publication was not stored: the topic "news" has the fence 10, and the publication 9`}},
		{broker.Append{Fence: 10, Last: true, IdempotencyKey: "b"}, outcome{offset: 4}},
		{broker.Append{Fence: 11}, outcome{code: errors.FailedPrecondition, message: `FAILED_PRECONDITION: the publication was not stored: the topic "news" is closed`}},
		{broker.Append{Fence: 9}, outcome{code: errors.FailedPrecondition, message: `FAILED_PRECONDITION: the publication was not stored: the topic "news" is closed`}},
		{broker.Append{Fence: 1, IdempotencyKey: "b"}, outcome{offset: 4, duplicate: true}},
	}
	appends := make([]broker.Append, len(cases))
	for i, c := range cases {
		appends[i] = c.append
		appends[i].Topic = "news"
	}
	for i, c := range n.inOneScript(t.Context(), appends...) {
		want := cases[i].want
		got := outcome{offset: c.Result.Position.Offset, duplicate: c.Result.Duplicate, code: errors.CodeOf(c.Err)}
		if c.Err != nil {
			got.message = c.Err.Error()
		}
		assert.Equal(t, want, got, "publication %d", i)
	}
	state, err := n.ReadState(t.Context(), broker.StateQuery{Topic: "news", Retention: retention})
	require.NoError(t, err)
	require.Len(t, state.Publications, 1)
	assert.Equal(t, "kept", state.Publications[0].StateKey)
}

// TestHistory_FencesCostFewCommands counts what the server executes for a publication.
func TestHistory_FencesCostFewCommands(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	n := connectHistory(t, server.Client(t))
	commands := func(a broker.Append) (counts [3]int64) {
		server.ResetStats(t)
		_, err := n.appendNews(t, a)
		require.NoError(t, err)
		stats := server.CommandStats(t)
		return [3]int64{stats["hmget"], stats["xadd"], stats["hset"]}
	}
	n.publish(t, "begins the topic")
	usual := [3]int64{1, 1, 1}
	assert.Equal(t, usual, commands(broker.Append{}), "without a fence")
	assert.Equal(t, [3]int64{1, 1, 2}, commands(broker.Append{Fence: 1}), "with a higher fence")
	assert.Equal(t, usual, commands(broker.Append{Fence: 1}), "with the same fence")
	assert.Equal(t, [3]int64{1, 1, 2}, commands(broker.Append{Fence: 1, Last: true}), "the last publication")
}

// TestHistory_EpochKeepsFence restarts a server, so that an Append, a Read or a ReadAll begins an epoch.
func TestHistory_EpochKeepsFence(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]func(*testing.T, *observedNode){
		"append": func(*testing.T, *observedNode) {},
		"read":   func(t *testing.T, n *observedNode) { assert.False(t, n.closed(t)) },
		"batch":  func(t *testing.T, n *observedNode) { assert.False(t, n.closedInBatch(t)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			n := connectHistory(t, server.Client(t))
			first, err := n.appendNews(t, broker.Append{Fence: 2})
			require.NoError(t, err)
			require.NoError(t, server.Client(t).Save(t.Context()).Err())
			server.Restart()
			begin(t, n)
			_, err = n.appendNews(t, broker.Append{Fence: 1})
			assert.Equal(t, errors.Aborted, errors.CodeOf(err))
			last, err := n.appendNews(t, broker.Append{Fence: 2, Last: true})
			require.NoError(t, err)
			assert.NotEqual(t, first.Position.Epoch, last.Position.Epoch)
			require.NoError(t, server.Client(t).Save(t.Context()).Err())
			server.Restart()
			_, err = n.appendNews(t, broker.Append{Fence: 3})
			assert.Equal(t, errors.FailedPrecondition, errors.CodeOf(err))
			assert.True(t, n.closed(t))
			assert.True(t, n.closedInBatch(t))
		})
	}
}

func (n *observedNode) closed(t *testing.T) bool {
	t.Helper()
	page, _ := n.page(t)
	return page.Closed
}

func (n *observedNode) closedInBatch(t *testing.T) bool {
	t.Helper()
	pages, err := n.ReadAll(t.Context(), broker.Batch{Topics: []broker.TopicQuery{{Topic: "news", Retention: retention}}})
	require.NoError(t, err)
	require.NoError(t, pages[0].Err)
	return pages[0].Closed
}

// TestHistory_LostMetadataHasNoFence removes the metadata of a topic, as its expiry does.
func TestHistory_LostMetadataHasNoFence(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	n := connectHistory(t, server.Client(t))
	_, err := n.appendNews(t, broker.Append{Fence: 2, Last: true})
	require.NoError(t, err)
	require.NoError(t, server.Client(t).Del(t.Context(), n.keysOf("news").channel.Name).Err())
	assert.False(t, n.closed(t))
	assert.False(t, n.closedInBatch(t))
	assert.EqualValues(t, 1, n.publish(t, "first").Position.Offset)
}
