package inspect_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/inspect"
	"github.com/penstock-go/penstock/router/routertest"
)

// TestTopics_SubscribersOfAllNodes has one topic on two nodes, and another one on one.
func TestTopics_SubscribersOfAllNodes(t *testing.T) {
	t.Parallel()
	nodes := newCluster(t, 2, sayMessage)
	ann, bob := routertest.Dial(t, nodes[0].router, routertest.Token("acme:ann")), routertest.Dial(t, nodes[1].router, routertest.Token("acme:bob"))
	routertest.Call[Said](ann, Join{"room/a"})
	routertest.Call[Said](bob, Join{"room/a"})
	routertest.Call[Said](bob, Join{"news"})
	nodes[0].post(t, inspect.Publish, object{"topic": "room/a", "type": "SAID", "payload": object{"text": "hello"}})
	assert.JSONEq(t, `{"text":"hello"}`, routertest.Receive[Said](ann).Text)
	assert.Contains(t, nodes[0].fail(t, http.StatusBadRequest, inspect.Publish, object{"topic": "room/a", "type": "OTHER"}), "only SAID")
	nodes[0].fail(t, http.StatusBadRequest, inspect.Publish, object{"topic": "", "type": "SAID"})

	all := rows(t, nodes[0].post(t, inspect.ViewTopics, object{}))
	assert.Equal(t, []any{"news", "room/a"}, column(all, "name"))
	assert.Equal(t, []any{1.0, 2.0}, column(all, "subscribers"))
	assert.Equal(t, []any{0.0, 2.0}, column(all, "members"))
	assert.Equal(t, []any{0.0, 1.0}, column(all, "offset"))
	assert.Equal(t, []any{"", "room/{id}"}, column(all, "pattern"))
	assert.Equal(t, []any{"room/a"}, column(rows(t, nodes[0].post(t, inspect.ViewTopics, object{"prefix": "room/"})), "name"))

	topic := rows(t, nodes[0].post(t, inspect.ViewTopic, object{"name": "room/a"}))
	require.Len(t, topic, 2)
	assert.Equal(t, []any{1.0, 1.0}, column(topic, "subscribers"))
	assert.Len(t, topic[0]["present"], 2)
	assert.Empty(t, rows(t, nodes[0].post(t, inspect.ViewTopic, object{"name": "room"})))
}

// TestTopic_StoredMessages has a history of ten messages, and a topic without one.
func TestTopic_StoredMessages(t *testing.T) {
	t.Parallel()
	nodes := newCluster(t, 2)
	none := object{"messages": 0.0, "latest": 0.0, "latestBytes": 0.0}
	assert.Equal(t, none, nodes[0].post(t, inspect.ViewTopic, object{"name": "room/a"})["stored"])
	for range 12 {
		require.NoError(t, nodes[0].router.Publish("room/a", Said{strings.Repeat("x", 100)}))
		require.NoError(t, nodes[0].router.Publish("news", Said{}))
	}
	stored := nodes[1].post(t, inspect.ViewTopic, object{"name": "room/a"})["stored"].(object)
	assert.Subset(t, stored, object{"messages": 10.0, "latest": 10.0})
	assert.InDelta(t, 10*150, stored["latestBytes"], 10*50)
	assert.Equal(t, none, nodes[1].post(t, inspect.ViewTopic, object{"name": "news"})["stored"])
}

// TestTopics_PagesHaveEachTopicOnce has 250 topics, some of them on both nodes.
func TestTopics_PagesHaveEachTopicOnce(t *testing.T) {
	t.Parallel()
	nodes := newCluster(t, 2)
	var want []string
	for i, n := range nodes {
		for batch := range 2 {
			c := routertest.Dial(t, n.router, routertest.Token(fmt.Sprint(i, batch)))
			for topic := range 75 {
				name := fmt.Sprintf("t%03d", (i*2+batch)*70+topic)
				routertest.Call[Said](c, Join{name})
				want = append(want, name)
			}
		}
	}
	slices.Sort(want)
	want = slices.Compact(want)
	var got []string
	for after := ""; ; {
		page := nodes[0].post(t, inspect.ViewTopics, object{"after": after})
		for _, name := range column(rows(t, page), "name") {
			got = append(got, name.(string))
		}
		next, ok := page["next"].(string)
		if !ok {
			break
		}
		after = next
	}
	assert.Equal(t, want, got)
}
