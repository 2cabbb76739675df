package router_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/cluster"
	"github.com/penstock-go/penstock/internal/cluster/enginetest"
	"github.com/penstock-go/penstock/internal/testscale"
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

		conns, err := nodes[0].UserConns(t.Context(), "", "ann")
		assert.Equal(t, errors.Unavailable, errors.CodeOf(err))
		assert.ErrorContains(t, err, old.Name())
		assert.Equal(t, []string{old.Name()}, conns.Silent)
		assert.Len(t, conns.Conns, 1)
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

// TestCallUser_ManyConnections calls a user with more connections than a node calls, which is that
// of the caller or another one.
func TestCallUser_ManyConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.NewBroker()
		opts := discardLogs(router.Options{Broker: b, Limits: router.Limits{ConnsPerIP: router.Unlimited, HandshakesPerIP: router.Rate{PerSecond: router.Unlimited}}})
		one, two := userRouter(*opts), userRouter(*opts)
		const limit = 256
		for range limit {
			answerAfter(routertest.Dial(t, one, routertest.Token("ann")), time.Second)
		}
		synctest.Wait()
		for _, caller := range []*router.Router{one, two} {
			got, _ := replies(t.Context(), caller, "ann")
			assert.Len(t, got, limit)
			for _, reply := range got {
				assert.NoError(t, reply.Err)
			}
		}
		routertest.Dial(t, one, routertest.Token("ann"))
		synctest.Wait()
		for _, caller := range []*router.Router{one, two} {
			got, _ := replies(t.Context(), caller, "ann")
			assert.Equal(t, []router.ClientReply[Confirmed]{
				{NodeID: one.NodeID(), Err: &router.LimitExceeded{Kind: router.LimitConnections, Observed: limit + 1, Limit: limit}},
			}, got)
		}
	})
}

// TestCallUser_RandomFaults calls a user whose clients are connected to several nodes, while
// packets are lost, repeated or late, nodes stop, and clients disconnect. Whatever happens, no
// client is called twice by one call, each connection has one result at most, and whatever a client
// that stays connected to a healthy node answers is a result.
func TestCallUser_RandomFaults(t *testing.T) {
	t.Parallel()
	for seed := range uint64(testscale.Tiers(20, 20, 500)) {
		runSynctest(t, fmt.Sprint("seed ", seed), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 59))
			_, nodes := netNodes(t, 4, router.Options{Timeouts: router.Timeouts{Call: 20 * time.Second}})
			clients := map[string]*calledClient{}
			for range rnd.IntN(12) {
				n := nodes[rnd.IntN(len(nodes))]
				client, c := dialUser(t, n.Router, "ann")
				clients[c.ID()] = newCalledClient(client, n, rnd)
			}
			faulty := map[string]bool{}
			for _, n := range nodes[1:] { // the caller is healthy
				if rnd.IntN(2) == 0 {
					faulty[n.Name()] = true
					fault := randomFault(rnd.IntN(5))
					time.AfterFunc(time.Duration(rnd.IntN(1500))*time.Millisecond, func() { n.update(fault) })
				}
			}
			got, after := replies(t.Context(), nodes[0].Router, "ann")
			seen := map[string]bool{}
			for i, reply := range got {
				id := cmp.Or(reply.ConnID, reply.NodeID)
				assert.False(t, seen[id], "%+v is the second result", reply)
				seen[id] = true
				assert.LessOrEqual(t, after[i], 20*time.Second)
				if reply.ConnID == "" {
					assert.True(t, faulty[reply.NodeID], "node %s is healthy", reply.NodeID)
					continue
				}
				client := clients[reply.ConnID]
				require.NotNil(t, client)
				assert.Equal(t, client.node.Name(), reply.NodeID)
				switch {
				case reply.Err == nil:
					assert.Equal(t, int32(1), client.calls.Load())
				case !faulty[reply.NodeID]:
					assert.True(t, client.leaves || client.delay > 20*time.Second, "%v", reply.Err)
				}
			}
			for id, client := range clients {
				assert.LessOrEqual(t, client.calls.Load(), int32(1))
				assert.True(t, seen[id] || faulty[client.node.Name()], "a connection has no result")
			}
			nodes[0].isIdle(t)
			time.Sleep(2 * time.Second) // all faults have begun
			for _, n := range nodes {
				n.update(healthy)
			}
			time.Sleep(time.Minute)
			for _, n := range nodes {
				n.isIdle(t)
			}
			conns, err := nodes[0].UserConns(t.Context(), "", "ann")
			require.NoError(t, err, "after the faults")
			maps.DeleteFunc(clients, func(_ string, client *calledClient) bool { return client.leaves && client.calls.Load() > 0 })
			assert.Len(t, conns.Conns, len(clients))
		})
	}
}

// A calledClient answers after some time, or not at all.
type calledClient struct {
	node   *netNode
	delay  time.Duration
	leaves bool // instead of answering
	calls  atomic.Int32
}

func newCalledClient(client *routertest.Conn, n *netNode, rnd *rand.Rand) *calledClient {
	c := &calledClient{node: n, delay: time.Duration(rnd.IntN(2000)) * time.Millisecond, leaves: rnd.IntN(5) == 0}
	if rnd.IntN(5) == 0 {
		c.delay = 30 * time.Second
	}
	routertest.Handle(client, func(Confirm) (Confirmed, error) {
		c.calls.Add(1)
		time.Sleep(c.delay)
		if c.leaves {
			client.Abort()
		}
		return Confirmed{Yes: true}, nil
	})
	return c
}

func randomFault(kind int) func(*enginetest.Faults) {
	return []func(*enginetest.Faults){
		lossy, duplicate, late,
		func(f *enginetest.Faults) { f.Disconnect = true },
		func(f *enginetest.Faults) { f.FailPublish, f.Disconnect = true, true },
	}[kind]
}
