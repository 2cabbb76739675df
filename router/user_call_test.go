package router_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/cluster"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// replies returns the results of CallUser, and after how long each arrived.
func replies(ctx context.Context, r *router.Router, user string) (all []router.ClientReply[Confirmed], after []time.Duration) {
	start := time.Now()
	for reply := range router.CallUser[Confirmed](ctx, r, "", user, Confirm{"delete?"}) {
		all, after = append(all, reply), append(after, time.Since(start))
	}
	return all, after
}

// answerAfter lets a client confirm after some time.
func answerAfter(client *routertest.Conn, d time.Duration) {
	routertest.Handle(client, func(Confirm) (Confirmed, error) {
		time.Sleep(d)
		return Confirmed{Yes: true}, nil
	})
}

// TestCallUser_OldNodeIsReported calls a user while a node runs a version that does not know such
// calls.
func TestCallUser_OldNodeIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network, nodes := netNodes(t, 2, router.Options{})
		old := cluster.New(network).Connect(broker.Callbacks{})
		defer func() { _ = old.Close(t.Context()) }()
		old.Subscribe("\x00users")
		time.Sleep(3 * time.Second)
		client, c := dialUser(t, nodes[1].Router, "ann")
		answerAfter(client, time.Second)
		got, after := replies(t.Context(), nodes[0].Router, "ann")
		require.Len(t, got, 2)
		assert.Equal(t, router.ClientReply[Confirmed]{ConnID: c.ID(), NodeID: nodes[1].Name(), Reply: Confirmed{Yes: true}}, got[0])
		assert.Equal(t, old.Name(), got[1].NodeID)
		assert.Empty(t, got[1].ConnID)
		assert.Equal(t, errors.Unavailable, errors.CodeOf(got[1].Err))
		assert.ErrorContains(t, got[1].Err, old.Name())
		assert.Equal(t, []time.Duration{time.Second, 5 * time.Second}, after)
	})
}

// TestCallUser_AnswersInTheirOrder calls clients of several nodes that answer at different times.
func TestCallUser_AnswersInTheirOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, nodes := netNodes(t, 3, router.Options{})
		var want []router.ClientReply[Confirmed]
		delays := []time.Duration{0, 10 * time.Millisecond, 40 * time.Millisecond, 100 * time.Millisecond, time.Second, 2 * time.Second}
		for i, delay := range delays {
			n := nodes[i%3]
			client, c := dialUser(t, n.Router, "ann")
			answerAfter(client, delay)
			want = append(want, router.ClientReply[Confirmed]{ConnID: c.ID(), NodeID: n.Name(), Reply: Confirmed{Yes: true}})
		}
		other, _ := dialUser(t, nodes[2].Router, "bob")
		got, after := replies(t.Context(), nodes[0].Router, "ann")
		assert.ElementsMatch(t, want, got)
		for i, reply := range got {
			delay := delays[slices.IndexFunc(want, func(w router.ClientReply[Confirmed]) bool { return w.ConnID == reply.ConnID })]
			assert.GreaterOrEqual(t, after[i], delay)
			assert.LessOrEqual(t, after[i], delay+50*time.Millisecond, "what is gathered")
		}
		assert.Zero(t, other.Pending())
		got, _ = replies(t.Context(), nodes[0].Router, "eve")
		assert.Empty(t, got)
		got, _ = replies(t.Context(), nodes[0].Router, "")
		assert.Empty(t, got)
	})
}

// TestCallUser_FirstAnswerIsEnough ends the loop with the first answer.
func TestCallUser_FirstAnswerIsEnough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, nodes := netNodes(t, 3, router.Options{})
		var silent []*routertest.Conn
		for _, n := range nodes {
			client, _ := dialUser(t, n.Router, "ann")
			client.Greet()
			silent = append(silent, client)
		}
		client, _ := dialUser(t, nodes[2].Router, "ann")
		answerAfter(client, time.Second)
		start := time.Now()
		for reply := range router.CallUser[Confirmed](t.Context(), nodes[0].Router, "", "ann", Confirm{}) {
			require.NoError(t, reply.Err)
			break
		}
		assert.Equal(t, time.Second, time.Since(start))
		synctest.Wait()
		for _, client := range silent {
			assert.Equal(t, "CONFIRM", client.Next().Type)
			assert.Equal(t, "$ws:abort", client.Next().Type)
		}
		for _, n := range nodes {
			n.isIdle(t)
		}
	})
}

func TestCallUser_WithoutOtherNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, opts := range []*router.Options{{}, {Broker: memory.NewBroker()}} {
			n := newNode(opts.Broker)
			one, two := n.dial(t, "ann"), n.dial(t, "ann")
			answerAfter(one, 0)
			synctest.Wait()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			var errs []error
			for reply := range router.CallUser[Confirmed](ctx, n.Router, "acme", "ann", Confirm{}) {
				assert.Equal(t, n.NodeID(), reply.NodeID)
				errs = append(errs, reply.Err)
			}
			assert.Equal(t, []error{nil, context.DeadlineExceeded}, errs)
			two.Next()
			for reply := range router.CallUser[Confirmed](ctx, n.Router, "acme", "ann", Confirm{}) {
				assert.Equal(t, router.ClientReply[Confirmed]{Err: context.DeadlineExceeded}, reply, "nothing is sent")
			}
			assert.Zero(t, two.Pending())
			asked, _, _, _ := router.OpenAsks(n.Router)
			assert.Zero(t, asked)
		}
	})
}
