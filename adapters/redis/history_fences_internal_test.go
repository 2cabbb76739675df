package redis

import (
	"context"
	"fmt"
	"testing"
	"time"

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

// TestHistory_FailoverLosesFenceWithPublication promotes a replica that has not received the last two
// publications: the first of them has raised the fence, the second one has closed the topic.
func TestHistory_FailoverLosesFenceWithPublication(t *testing.T) {
	t.Parallel()
	master := redistest.Start(t)
	backlog := redistest.StartProxy(t, master.Addr)
	replica := startReplica(t, backlog.Addr, master)
	n := connectHistory(t, master.Client(t))
	_, err := n.appendNews(t, broker.Append{Fence: 2, Durability: onReplica})
	require.NoError(t, err)
	backlog.Cut()
	for _, a := range []broker.Append{{Fence: 3, Packet: []byte("lost")}, {Fence: 3, Last: true, Packet: []byte("lost, too")}} {
		_, err = n.appendNews(t, a)
		require.NoError(t, err)
	}
	assert.True(t, n.closed(t))
	promoted := connectHistory(t, asMaster(t, replica))
	assert.False(t, promoted.closed(t))
	_, err = promoted.appendNews(t, broker.Append{Fence: 1})
	assert.Equal(t, errors.Aborted, errors.CodeOf(err), "the fence of what was not lost remains")
	again, err := promoted.appendNews(t, broker.Append{Fence: 2})
	require.NoError(t, err)
	assert.EqualValues(t, 2, again.Position.Offset)
	page, _ := promoted.page(t)
	assert.EqualValues(t, 1, page.Previous.Offset, "readers learn that what follows is lost")
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

// BenchmarkHistory_AppendScript compares script calls with one and with 100 publications of a topic.
func BenchmarkHistory_AppendScript(b *testing.B) {
	client := redistest.Start(b).Client(b)
	for _, publications := range []int{1, 100} {
		for _, fence := range []string{"none", "same", "rising"} {
			b.Run(fmt.Sprintf("publications=%d/fence=%s", publications, fence), func(b *testing.B) {
				n := connectHistory(b, client)
				appends := make([]broker.Append, publications)
				topic := fmt.Sprint("topic ", publications, fence, time.Now().UnixNano())
				number := uint64(0)
				for b.Loop() {
					number++
					for i := range appends {
						appends[i] = broker.Append{Topic: topic, Packet: []byte("packet")}
						switch fence {
						case "same":
							appends[i].Fence = 1
						case "rising":
							appends[i].Fence = number*1000 + uint64(i)
						}
					}
					if calls := n.inOneScript(b.Context(), appends...); calls[publications-1].Err != nil {
						b.Fatal(calls[publications-1].Err)
					}
				}
			})
		}
	}
}
