package inspect_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/inspect"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/router/routertest"
)

// say calls SAY, first as often as it is admitted, then as often as it is refused.
func say(t *testing.T, c *routertest.Conn, admitted, refused int) {
	t.Helper()
	for range admitted {
		routertest.Call[Said](c, Say{})
	}
	for range refused {
		require.NotNil(t, routertest.CallError(c, Say{}))
	}
}

// TestNodes_SeriesOfEachNode sends messages to one of two nodes, and asks the other one.
func TestNodes_SeriesOfEachNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.NewBroker()
		nodes := []*testNode{newNode(t, b), newNode(t, b, func(o *inspect.Options) { o.Timeout = time.Second })}
		ann := routertest.Dial(t, nodes[1].router, routertest.Token("ann"))
		say(t, ann, 3, 2)
		routertest.Refused(t, nodes[1].router, routertest.Token("banned"))
		time.Sleep(5 * time.Second)
		synctest.Wait()
		all := rows(t, nodes[0].post(t, inspect.ViewNodes, object{"series": true}))
		require.Len(t, all, 2)
		idle, busy := all[0]["series"].(object), all[1]["series"].(object)
		assert.Empty(t, idle["types"])
		assert.Equal(t, []any{object{"type": "SAY", "messages": []any{5.0}, "refused": []any{2.0}}}, busy["types"])
		columns := busy["columns"].(object)
		assert.Equal(t, []any{1.0}, columns["conns"])
		assert.Equal(t, []any{1.0}, columns["refusedRequests"])
		assert.Equal(t, idle["number"], busy["number"], "samples of all nodes fit together")

		after := object{nodes[0].router.NodeID(): idle["number"], nodes[1].router.NodeID(): busy["number"]}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		all = rows(t, nodes[0].post(t, inspect.ViewNodes, object{"series": true, "after": after}))
		assert.Equal(t, []any{1.0, 1.0}, all[1]["series"].(object)["columns"].(object)["conns"])
		assert.NotContains(t, rows(t, nodes[0].post(t, inspect.ViewNodes, nil))[0], "series")

		silent := b.Connect(broker.Callbacks{})
		result := nodes[1].post(t, inspect.ViewNodes, object{"series": true})
		assert.Equal(t, []any{object{"node": silent.Name(), "error": "the node has not answered in time"}}, result["nodes"].(object)["missing"])
		require.NoError(t, silent.Close(t.Context()))

		require.NoError(t, nodes[1].router.Shutdown(t.Context()))
		number := func() any {
			return rows(t, nodes[1].post(t, inspect.ViewNodes, object{"series": true}))[0]["series"].(object)["number"]
		}
		ended := number()
		time.Sleep(time.Minute)
		assert.Equal(t, ended, number(), "a router that was shut down counts nothing")
	})
}

// TestRefusals_KeysThatAreDeniedMost refuses two users on two nodes, one of them more often.
func TestRefusals_KeysThatAreDeniedMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newCluster(t, 2)
		denied := func() []object {
			return rows(t, nodes[0].post(t, inspect.ViewRefusals, object{"keys": true}))
		}
		assert.Empty(t, denied())
		ann, bob := routertest.Dial(t, nodes[0].router, routertest.Token("acme:ann")), routertest.Dial(t, nodes[1].router, routertest.Token("acme:bob"))
		say(t, ann, 3, 0)
		say(t, bob, 3, 0)
		for range 3 {
			say(t, bob, 0, 2) // one of which is reported
			time.Sleep(time.Second)
		}
		say(t, ann, 0, 1)
		routertest.Refused(t, nodes[1].router, routertest.Token("banned")) // by no limit
		synctest.Wait()
		found := denied()
		assert.Equal(t, []any{"bob", "ann"}, column(found, "user"))
		assert.Equal(t, []any{3.0, 1.0}, column(found, "refusals"))
		assert.Equal(t, []any{"say", "say"}, column(found, "name"))
		assert.Equal(t, []any{[]any{"user", "acme", "bob", ""}, []any{"user", "acme", "ann", ""}}, column(found, "key"))
		assert.Equal(t, []any{nodes[1].router.NodeID(), nodes[0].router.NodeID()}, column(found, "node"))
		assert.Equal(t, []any{3.0, 3.0}, column(found, "limit"))
		assert.Equal(t, []any{0.0, 0.0}, column(found, "remaining"))
		assert.EqualValues(t, 3*20*60*1000-3000, found[0]["resetAfterMs"], "until it is full")
		assert.EqualValues(t, 20*60*1000-3000, found[0]["retryAfterMs"])

		time.Sleep(15*time.Minute - 3*time.Second)
		assert.Equal(t, []any{3.0, 1.0}, column(denied(), "refusals"))
		time.Sleep(3 * time.Second)
		assert.Equal(t, []any{"ann"}, column(denied(), "user"))
		time.Sleep(time.Second)
		assert.Empty(t, denied(), "15 minutes ago")
	})
}

// TestTopics_HotOnesAreCountedWhileAnOperatorAsks publishes on two topics, one of which has subscribers on both nodes.
func TestTopics_HotOnesAreCountedWhileAnOperatorAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newCluster(t, 2)
		for _, n := range nodes {
			for range 2 {
				routertest.Call[Said](routertest.Dial(t, n.router, routertest.Token("ann")), Join{"news"})
			}
		}
		routertest.Call[Said](routertest.Dial(t, nodes[1].router, routertest.Token("ann")), Join{"room/a"})
		publish := func(topic string, n int) {
			for range n {
				require.NoError(t, nodes[0].router.Publish(topic, Said{}))
			}
			synctest.Wait()
		}
		hot := func() object { return nodes[0].post(t, inspect.ViewTopics, object{"hot": true}) }
		publish("news", 100)
		result := hot()
		assert.Equal(t, false, result["counted"], "it begins to count")
		assert.Empty(t, rows(t, result))
		publish("room/a", 20)
		publish("news", 10)
		time.Sleep(5 * time.Second)
		result = hot()
		assert.Equal(t, true, result["counted"])
		want := []object{
			{"name": "news", "subscribers": 4.0, "publicationsPerSecond": 2.0, "deliveriesPerSecond": 8.0},
			{"name": "room/a", "subscribers": 1.0, "publicationsPerSecond": 4.0, "deliveriesPerSecond": 4.0},
		}
		assert.Equal(t, want, rows(t, result))
		time.Sleep(time.Second)
		assert.Equal(t, want, rows(t, hot()), "another operator asks a second later")
		time.Sleep(5 * time.Second)
		assert.Empty(t, rows(t, hot()))
		time.Sleep(31 * time.Second)
		synctest.Wait()
		publish("news", 10)
		result = hot()
		assert.Equal(t, false, result["counted"], "nothing was counted meanwhile")
	})
}

// TestAdmission_SentenceSaysWhy asks about users with and without connections.
func TestAdmission_SentenceSaysWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newCluster(t, 2)
		verdict := func(client object) object {
			return nodes[0].post(t, inspect.ViewAdmission, client)["verdict"].(object)
		}
		ann := routertest.Dial(t, nodes[1].router, routertest.Token("ann"))
		say(t, ann, 1, 0)
		assert.Equal(t, object{
			"admitted": "yes",
			"sentence": "Yes: the next SAY of ann would be admitted. The limit with the fewest tokens is say, which has 2 of 3 left.",
		}, verdict(object{"user": "ann", "type": "SAY"}))
		say(t, ann, 2, 0)
		assert.Equal(t, object{
			"admitted": "no", // where the user is, though the other node would admit it
			"sentence": "No: say denies the next SAY of ann, because 0 of 3 tokens are left and it costs 1. It would be admitted in 20m0s.",
		}, verdict(object{"user": "ann", "type": "SAY"}))
		assert.Equal(t, "yes", verdict(object{"user": "ann", "type": "JOIN"})["admitted"])
		assert.Equal(t, object{"admitted": "no", "sentence": "No: this node has no handler for the type OTHER."}, verdict(object{"user": "ann", "type": "OTHER"}))

		again := routertest.Dial(t, nodes[0].router, routertest.Token("ann"))
		v := verdict(object{"user": "ann", "type": "SAY"})
		assert.Equal(t, "depends", v["admitted"])
		assert.Contains(t, v["sentence"], "Elsewhere it would be admitted.")
		say(t, again, 3, 0)
		assert.Equal(t, "no", verdict(object{"user": "ann", "type": "SAY"})["admitted"])

		assert.Equal(t, "Yes: the next SAY of bob would be admitted. The limit with the fewest tokens is say, which has 3 of 3 left."+
			" The user has no connection that this node knows of.", verdict(object{"user": "bob", "type": "SAY"})["sentence"])
		nodes[0].post(t, inspect.BlockKey, object{"limit": "say", "user": "bob", "seconds": 60})
		assert.Equal(t, "No: say denies the next SAY of bob, because of blocked. It would be admitted in 1m0s."+
			" The user has no connection that this node knows of.", verdict(object{"user": "bob", "type": "SAY"})["sentence"])
	})
}

// A failingLimiter has a store that does not answer.
type failingLimiter struct{ limit.Limiter }

func (failingLimiter) Take(context.Context, limit.Key, limit.Take) (limit.Decision, error) {
	return limit.Decision{}, errors.Errorf(errors.Unavailable, "the store does not answer")
}

func TestAdmission_LimiterThatFails(t *testing.T) {
	t.Parallel()
	n := newCluster(t, 1, func(o *inspect.Options) { o.Limits[0].Limiter = failingLimiter{} })[0]
	assert.Equal(t, object{"admitted": "unknown", "sentence": "Unknown: say cannot decide about the next SAY: the store does not answer."},
		n.post(t, inspect.ViewAdmission, object{"type": "SAY"})["verdict"])
}
