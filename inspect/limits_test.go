package inspect_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/inspect"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/router/routertest"
)

// TestAdmission_DecidesAndTakesNothing asks before and after a bucket is empty.
func TestAdmission_DecidesAndTakesNothing(t *testing.T) {
	t.Parallel()
	nodes := newCluster(t, 2)
	ask := func() []object {
		return rows(t, nodes[0].post(t, inspect.ViewAdmission, object{"tenant": "acme", "user": "ann", "type": "SAY", "ip": "192.0.2.7"}))
	}
	for range 5 {
		assert.Equal(t, []any{3.0, 3.0}, column(ask(), "remaining"))
	}
	ann := routertest.Dial(t, nodes[1].router, routertest.Token("acme:ann"))
	for range 3 {
		routertest.Call[Said](ann, Say{})
	}
	decisions := ask()
	assert.Equal(t, []any{nodes[0].router.NodeID(), nodes[1].router.NodeID()}, column(decisions, "node"))
	assert.Equal(t, []any{true, false}, column(decisions, "allowed"))
	assert.Equal(t, "no_tokens", decisions[1]["reason"])
	assert.Greater(t, decisions[1]["retryAfterMs"], 0.0)
	assert.Equal(t, []any{"user", "acme", "ann", ""}, decisions[1]["key"])
	assert.Empty(t, rows(t, nodes[0].post(t, inspect.ViewAdmission, object{"user": "ann", "type": "JOIN"})), "the limit does not apply")
	nodes[0].fail(t, http.StatusBadRequest, inspect.ViewAdmission, object{"ip": "x"})
}

// TestBucket_ResetAndBlockOnAllNodes changes the bucket of a user by the client and by the key.
func TestBucket_ResetAndBlockOnAllNodes(t *testing.T) {
	t.Parallel()
	nodes := newCluster(t, 2)
	key := limit.Key{"user", "", "ann"}
	for _, n := range nodes {
		_, err := limit.Consume(t.Context(), n.limiter, key, 2)
		require.NoError(t, err)
	}
	target := object{"limit": "say", "key": []string{"user", "", "ann"}}
	remaining := func() []any { return column(rows(t, nodes[1].post(t, inspect.ViewBucket, target)), "remaining") }
	assert.Equal(t, []any{1.0, 1.0}, remaining())
	nodes[0].post(t, inspect.ResetKey, object{"limit": "say", "user": "ann"})
	assert.Equal(t, []any{3.0, 3.0}, remaining())
	nodes[0].post(t, inspect.BlockKey, object{"limit": "say", "user": "ann", "seconds": 60})
	assert.Equal(t, []any{"blocked", "blocked"}, column(rows(t, nodes[1].post(t, inspect.ViewBucket, target)), "reason"))
	nodes[0].post(t, inspect.ResetKey, target)
	assert.Equal(t, []any{3.0, 3.0}, remaining())

	for _, wrong := range []object{
		{"limit": "say", "user": "ann", "seconds": 0},
		{"limit": "say", "user": "ann", "seconds": 366 * 24 * 3600},
		{"limit": "say", "seconds": 5},
		{"limit": "say", "seconds": 5, "key": []string{"1", "2", "3", "4", "5"}},
	} {
		nodes[0].fail(t, http.StatusBadRequest, inspect.BlockKey, wrong)
	}
	nodes[0].fail(t, http.StatusNotFound, inspect.BlockKey, object{"limit": "none", "user": "ann", "seconds": 5})
}

// policies returns the policy of the limit on each node.
func policies(t *testing.T, n *testNode) (texts []any) {
	t.Helper()
	for _, row := range rows(t, n.post(t, inspect.ViewLimits, nil)) {
		texts = append(texts, row["policies"].([]any)...)
	}
	return texts
}

// TestPolicy_ReturnsUnlessConfirmed applies a policy on two nodes: it returns by time, by request,
// and not after a confirmation.
func TestPolicy_ReturnsUnlessConfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newCluster(t, 2)
		before := policies(t, nodes[0])
		require.Equal(t, []any{"say: 3/h", "say: 3/h"}, before)
		apply := func() string {
			return nodes[0].post(t, inspect.ApplyPolicy, object{"limit": "say", "policy": "5/s burst 9", "minutes": 2})["id"].(string)
		}
		after := []any{"say: 5/s burst 9", "say: 5/s burst 9"}
		id := apply()
		assert.Equal(t, after, policies(t, nodes[1]))
		assert.Contains(t, nodes[1].fail(t, http.StatusConflict, inspect.ApplyPolicy, object{"limit": "say", "policy": "6/s", "minutes": 2}), "waits for its confirmation")
		time.Sleep(2*time.Minute - time.Millisecond)
		assert.Equal(t, after, policies(t, nodes[1]))
		time.Sleep(time.Millisecond)
		synctest.Wait()
		assert.Equal(t, before, policies(t, nodes[1]))
		assert.Contains(t, nodes[0].fail(t, http.StatusNotFound, inspect.ConfirmPolicy, object{"limit": "say", "id": id}), "has returned")

		id = apply()
		nodes[1].post(t, inspect.ReturnPolicy, object{"limit": "say", "id": id})
		assert.Equal(t, before, policies(t, nodes[0]))

		apply()
		require.NoError(t, nodes[0].limiter.SetPolicy(limit.PerMinute(7).Named("say"))) // as a file does
		time.Sleep(time.Hour)
		assert.ElementsMatch(t, []any{"say: 7/m", "say: 3/h"}, policies(t, nodes[0]), "no return to a policy that is out of date")
		require.NoError(t, nodes[0].limiter.SetPolicy(limit.PerHour(3).Named("say")))

		id = apply()
		nodes[1].post(t, inspect.ConfirmPolicy, object{"limit": "say", "id": id})
		time.Sleep(time.Hour)
		assert.Equal(t, after, policies(t, nodes[0]))
	})
}

// TestPolicy_InvalidChangesNothing has policies that no node may apply.
func TestPolicy_InvalidChangesNothing(t *testing.T) {
	t.Parallel()
	n := newCluster(t, 1, func(o *inspect.Options) {
		o.Limits = append(o.Limits, inspect.Limit{Name: "log", Limiter: memory.NewSlidingLog(limit.WindowPolicy{Max: 3, Window: time.Minute})})
	})[0]
	before := policies(t, n)
	for _, action := range []inspect.Action{inspect.ApplyPolicy, inspect.PreviewPolicy} {
		for _, wrong := range []object{
			{"limit": "say", "policy": "0/s", "minutes": 1},
			{"limit": "say", "policy": "other: 3/s", "minutes": 1},
			{"limit": "say", "policy": "5/s", "minutes": 0},
			{"limit": "say", "policy": "5/s", "minutes": 61},
		} {
			n.fail(t, http.StatusBadRequest, action, wrong)
		}
		n.fail(t, http.StatusConflict, action, object{"limit": "log", "policy": "3/s", "minutes": 1})
		n.fail(t, http.StatusNotFound, action, object{"limit": "none", "policy": "3/s", "minutes": 1})
	}
	assert.Equal(t, before, policies(t, n))
}

// TestPreview_CountsWhatASimulationDenies sends messages while a preview counts, and compares with
// limiters that decide about the same messages. The preview denies nothing itself.
func TestPreview_CountsWhatASimulationDenies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newCluster(t, 1)[0]
		n.post(t, inspect.PreviewPolicy, object{"limit": "say", "policy": "1/m", "minutes": 5})
		now, proposed := memory.NewLimiter(limit.PerHour(3)), memory.NewLimiter(limit.PerMinute(1))
		deniedNow, deniedProposed := 0.0, 0.0
		clients := map[string]*routertest.Conn{}
		for _, user := range []string{"ann", "bob"} {
			clients[user] = routertest.Dial(t, n.router, routertest.Token(user))
		}
		count := func(l limit.Limiter, user string, denied *float64) bool {
			d, err := limit.Consume(t.Context(), l, limit.Key{user}, 1)
			require.NoError(t, err)
			if !d.Allowed {
				*denied++
			}
			return d.Allowed
		}
		for i := range 10 {
			user := []string{"ann", "bob", "ann"}[i%3]
			count(proposed, user, &deniedProposed)
			if count(now, user, &deniedNow) {
				routertest.Call[Said](clients[user], Say{})
			} else {
				assert.NotNil(t, routertest.CallError(clients[user], Say{}))
			}
			routertest.Call[Said](clients[user], Join{"room/a"}) // costs nothing
			time.Sleep(20 * time.Second)
		}
		row := rows(t, n.post(t, inspect.ViewLimits, nil))[0]["preview"].(object)
		assert.Equal(t, object{
			"policy": "say: 1/m", "until": row["until"], "messages": 10.0, "deniedNow": deniedNow, "deniedProposed": deniedProposed,
			"stepMs": 5000.0, "series": row["series"],
		}, row)
		series := row["series"].([]any)
		require.Len(t, series, 9*4+1, "until the last message")
		for step, counts := range series {
			assert.EqualValues(t, map[bool]float64{true: 1}[step%4 == 0], counts.(object)["messages"], step)
		}
		assert.Equal(t, object{"messages": 1.0, "deniedNow": 0.0, "deniedProposed": 0.0}, series[0])
		assert.Positive(t, deniedNow)
		assert.NotEqual(t, deniedNow, deniedProposed)
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		assert.NotNil(t, routertest.CallError(clients["ann"], Say{}))
		assert.Equal(t, row, rows(t, n.post(t, inspect.ViewLimits, nil))[0]["preview"], "the preview has ended")
	})
}
