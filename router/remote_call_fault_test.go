package router_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/cluster"
	"github.com/penstock-go/penstock/internal/cluster/enginetest"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/observe"
	"github.com/penstock-go/penstock/router/routertest"
)

// TestCallConn_Faults makes a call while packets between two nodes are lost, repeated or late. The
// client answers after a second unless the case says otherwise.
func TestCallConn_Faults(t *testing.T) {
	for name, tt := range map[string]struct {
		caller, owner func(*enginetest.Faults) // from the beginning
		later         func(*enginetest.Faults) // of the owner, when the client has received the call
		code          errors.Code
		after         time.Duration // at least, and not more than 2 s later
		called        int           // how often
	}{
		"none":                           {code: "", after: time.Second, called: 1},
		"the request is lost":            {caller: lossy, code: errors.Unavailable, after: 5 * time.Second},
		"the first part of it is lost":   {owner: lossy, code: errors.Unavailable, after: 3 * time.Second, called: 1},
		"the answer is lost":             {later: lossy, code: errors.Unavailable, after: 3 * time.Second, called: 1},
		"the caller cannot publish":      {caller: func(f *enginetest.Faults) { f.FailPublish = true }, code: errors.Unavailable, after: 5 * time.Second},
		"packets are repeated":           {caller: duplicate, owner: duplicate, code: "", after: time.Second, called: 1},
		"packets are late":               {caller: late, owner: late, code: "", after: 3 * time.Second, called: 1},
		"the owner stops for 20 seconds": {later: func(f *enginetest.Faults) { f.FailPublish, f.Disconnect = true, true }, code: errors.Unavailable, after: 3 * time.Second, called: 1},
		"the owner is not received":      {owner: func(f *enginetest.Faults) { f.FailPublish = true }, code: errors.Unavailable, after: 3 * time.Second, called: 1},
		"the caller receives nothing":    {caller: func(f *enginetest.Faults) { f.Disconnect = true }, code: errors.Unavailable, after: 5 * time.Second, called: 1},
		"the owner does not receive it":  {owner: func(f *enginetest.Faults) { f.Disconnect = true }, code: errors.Unavailable, after: 5 * time.Second},
	} {
		runSynctest(t, name, func(t *testing.T) {
			_, nodes := netNodes(t, 2, router.Options{})
			caller, owner := nodes[0], nodes[1]
			client, c := dialUser(t, owner.Router, "ann")
			if tt.caller != nil {
				caller.update(tt.caller)
			}
			if tt.owner != nil {
				owner.update(tt.owner)
			}
			called := 0
			routertest.Handle(client, func(Confirm) (Confirmed, error) {
				called++
				if tt.later != nil {
					owner.update(tt.later)
				}
				time.Sleep(time.Second)
				return Confirmed{Yes: true}, nil
			})
			got := <-confirmByID(t.Context(), caller.Router, c.ID())
			assert.Equal(t, tt.code, errors.CodeOf(got.err), "%v", got.err)
			assert.GreaterOrEqual(t, got.after, tt.after)
			assert.LessOrEqual(t, got.after, tt.after+2*time.Second)
			if tt.code == errors.Unavailable {
				assert.ErrorContains(t, got.err, owner.Name())
			}
			synctest.Wait()
			caller.isIdle(t)
			time.Sleep(20 * time.Second)
			caller.update(healthy)
			owner.update(healthy)
			time.Sleep(time.Minute)
			assert.Equal(t, tt.called, called)
			owner.isIdle(t)
			routertest.Handle(client, func(Confirm) (Confirmed, error) { return Confirmed{Yes: true}, nil })
			require.NoError(t, (<-confirmByID(t.Context(), caller.Router, c.ID())).err, "after the fault")
		})
	}
}

func duplicate(f *enginetest.Faults) { f.Duplicate = true }

func late(f *enginetest.Faults) { f.Delay = time.Second }

// TestCallConn_OneAnswerIsLost loses the part of an answer that has the reply, after the node has
// said that it has the connection.
func TestCallConn_OneAnswerIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, nodes := netNodes(t, 2, router.Options{Timeouts: router.Timeouts{Call: 8 * time.Second}})
		client, c := dialUser(t, nodes[1].Router, "ann")
		done := confirmByID(t.Context(), nodes[0].Router, c.ID())
		call := client.Next()
		time.Sleep(time.Second)
		nodes[1].update(lossy)
		client.Answer(call, Confirmed{Yes: true})
		synctest.Wait()
		nodes[1].update(healthy)
		got := <-done
		assert.Equal(t, &errors.Error{Code: errors.DeadlineExceeded, Message: "the client has not answered in time"}, got.err)
		assert.Equal(t, 8*time.Second, got.after)
		nodes[0].isIdle(t)
		nodes[1].isIdle(t)
	})
}

// TestCallConn_NodeEnds ends the node of a client, or the node that calls, during a call.
func TestCallConn_NodeEnds(t *testing.T) {
	for name, tt := range map[string]struct {
		end    func(t *testing.T, n *netNode)
		within time.Duration
	}{
		"killed": {func(_ *testing.T, n *netNode) { n.Kill() }, 5500 * time.Millisecond},
		"closed": {func(t *testing.T, n *netNode) { require.NoError(t, n.Close(t.Context())) }, 0},
		"shut down": {func(t *testing.T, n *netNode) {
			require.NoError(t, n.Shutdown(t.Context()))
		}, 3 * time.Second}, // the client has greeted
	} {
		runSynctest(t, name+", of the client", func(t *testing.T) {
			_, nodes := netNodes(t, 2, router.Options{})
			client, c := dialUser(t, nodes[1].Router, "ann")
			client.Greet()
			done := confirmByID(t.Context(), nodes[0].Router, c.ID())
			client.Next()
			time.Sleep(time.Second)
			start := time.Now()
			tt.end(t, nodes[1])
			got := <-done
			assert.Equal(t, errors.Unavailable, errors.CodeOf(got.err), "%v", got.err)
			assert.LessOrEqual(t, time.Since(start), tt.within)
			nodes[0].isIdle(t)
			time.Sleep(time.Second) // a call that arrives before the news is UNAVAILABLE
			got = <-confirmByID(t.Context(), nodes[0].Router, c.ID())
			assert.Equal(t, errors.NotFound, errors.CodeOf(got.err), "its node has left")
		})
		runSynctest(t, name+", of the caller", func(t *testing.T) {
			_, nodes := netNodes(t, 2, router.Options{})
			client, c := dialUser(t, nodes[1].Router, "ann")
			client.Greet()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			done := confirmByID(ctx, nodes[0].Router, c.ID())
			call := client.Next()
			tt.end(t, nodes[0])
			start := time.Now()
			abort := client.Next()
			assert.Equal(t, "$ws:abort", abort.Type)
			assert.Equal(t, call.Meta.CorrelationID, abort.Meta.CorrelationID)
			assert.LessOrEqual(t, time.Since(start), tt.within)
			synctest.Wait()
			nodes[1].isIdle(t)
			if name == "shut down" {
				got := <-done
				assert.Equal(t, errors.Unavailable, errors.CodeOf(got.err))
				assert.Zero(t, got.after)
				return
			}
			cancel()
			assert.Error(t, (<-done).err)
		})
	}
}

// TestCallConn_EndsWithContext ends the caller's context, which the client of the other node
// learns.
func TestCallConn_EndsWithContext(t *testing.T) {
	cause := errors.New("the user has left the page")
	for name, tt := range map[string]struct {
		ctx  func() (context.Context, context.CancelFunc)
		want error
	}{
		"canceled": {func() (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancelCause(context.Background())
			time.AfterFunc(time.Second, func() { cancel(cause) })
			return ctx, func() {}
		}, cause},
		"deadline": {func() (context.Context, context.CancelFunc) {
			return context.WithTimeout(context.Background(), time.Second)
		}, context.DeadlineExceeded},
		"Timeouts.Call": {func() (context.Context, context.CancelFunc) {
			return context.WithCancel(context.Background())
		}, &errors.Error{Code: errors.DeadlineExceeded, Message: "the client has not answered in time"}},
	} {
		runSynctest(t, name, func(t *testing.T) {
			var codes recorder[errors.Code]
			network, nodes := netNodes(t, 1, router.Options{})
			r := newNetNode(t, network, router.Options{Timeouts: router.Timeouts{Call: 3 * time.Second}})
			r.Observe(func(e observe.Event) {
				if e.Kind == observe.ClientCall {
					codes.add(e.Code)
				}
			})
			client, c := dialUser(t, nodes[0].Router, "ann")
			client.Greet()
			time.Sleep(3 * time.Second)
			ctx, cancel := tt.ctx()
			defer cancel()
			got := <-confirmByID(ctx, r.Router, c.ID())
			assert.Equal(t, tt.want, got.err)
			ended := time.Now()
			call := client.Next()
			abort := client.Next()
			assert.Zero(t, time.Since(ended))
			assert.Equal(t, "$ws:abort", abort.Type)
			assert.Equal(t, call.Meta.CorrelationID, abort.Meta.CorrelationID)
			synctest.Wait()
			nodes[0].isIdle(t)
			r.isIdle(t)
			client.Answer(call, Confirmed{Yes: true})
			if ctx.Err() != nil {
				assert.Equal(t, tt.want, (<-confirmByID(ctx, r.Router, c.ID())).err, "nothing is sent for a context that is done")
			}
			synctest.Wait()
			assert.Zero(t, client.Pending())
			assert.NotEmpty(t, codes.all())
		})
	}
}

// A netNode is a router on a network with faults.
type netNode struct {
	*router.Router
	*cluster.Node
	network *enginetest.Network
}

// A netBroker keeps the session of its node.
type netBroker struct {
	*cluster.Broker
	session *cluster.Node
}

func (b *netBroker) Connect(h broker.Callbacks) broker.Node {
	b.session = b.Broker.Connect(h).(*cluster.Node)
	return b.session
}

// newNetNode returns a node whose users are those of their tokens.
func newNetNode(t *testing.T, network *enginetest.Network, opts router.Options) *netNode {
	t.Helper()
	b := &netBroker{Broker: cluster.New(network)}
	opts.Broker = b
	opts.Authenticate = byUser
	n := &netNode{router.New(&opts), b.session, network}
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = n.Shutdown(ctx)
		synctest.Wait()
		n.isIdle(t)
		time.Sleep(3 * time.Second) // for what is in transit
	})
	return n
}

// Close ends the session, of which the router has another method.
func (n *netNode) Close(ctx context.Context) error { return n.Node.Close(ctx) }

// update changes the faults of the node.
func (n *netNode) update(change func(*enginetest.Faults)) { n.network.Update(n.Name(), change) }

// isIdle checks that the node waits for no answer, and that none waits for it.
func (n *netNode) isIdle(t *testing.T) {
	t.Helper()
	asked, served, calls, bytes := router.OpenAsks(n.Router)
	assert.Zero(t, asked, "asks")
	assert.Zero(t, served, "asks of other nodes")
	assert.Zero(t, calls, "calls for other nodes")
	assert.Zero(t, bytes, "bytes of answers")
}

// netNodes returns nodes that know each other.
func netNodes(t *testing.T, n int, opts router.Options) (network *enginetest.Network, nodes []*netNode) {
	t.Helper()
	network = enginetest.New()
	for range n {
		nodes = append(nodes, newNetNode(t, network, opts))
	}
	time.Sleep(3 * time.Second) // heartbeats were exchanged
	return network, nodes
}

// dialUser opens a connection and returns both sides.
func dialUser(t *testing.T, r *router.Router, user string) (*routertest.Conn, *router.Conn) {
	t.Helper()
	c := dialSession(t, r, user)
	synctest.Wait()
	require.NotNil(t, c.conn, "the connection is not open")
	return c.Conn, c.conn
}

// confirmByID makes a call with CallConn on a new goroutine.
func confirmByID(ctx context.Context, r *router.Router, connID string) <-chan outcome {
	done, start := make(chan outcome, 1), time.Now()
	go func() {
		reply, err := router.CallConn[Confirmed](ctx, r, connID, Confirm{"delete?"})
		done <- outcome{reply, err, time.Since(start)}
	}()
	return done
}

// lossy loses what a node publishes.
func lossy(f *enginetest.Faults) { f.Lose = true }

// healthy ends all faults.
func healthy(f *enginetest.Faults) { *f = enginetest.Faults{} }
