package guides_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/cluster"
	"github.com/penstock-go/penstock/internal/cluster/enginetest"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// A mortalBroker is the broker of a node that can fail.
type mortalBroker struct {
	broker.Broker

	node *cluster.Node
}

func (b *mortalBroker) Connect(handler broker.Handler) broker.Node {
	b.node = b.Broker.Connect(handler).(*cluster.Node)
	return b.node
}

// leavesAfter lets a node fail some time after a heartbeat, and returns how long its member stays on the other
// one.
func leavesAfter(t *testing.T, phase time.Duration) (after time.Duration) {
	engine := enginetest.New()
	fails := &mortalBroker{Broker: cluster.New(engine)}
	var left time.Time
	authenticate := func(r *http.Request) (router.Identity, error) { return router.Identity{UserID: router.Token(r)}, nil }
	one := router.New(&router.Options{Broker: fails, Authenticate: authenticate})
	two := router.New(&router.Options{
		Broker:       cluster.New(engine),
		Authenticate: authenticate,
		OnPresence: func(e router.PresenceEvent) {
			if !e.Joined && e.Member.UserID == "ann" {
				left = time.Now()
			}
		},
	})
	for _, r := range []*router.Router{one, two} {
		router.On(r, func(ctx *router.Context, _ publication) error { return ctx.Subscribe("room/go", router.Present("")) })
	}
	ann, bob := routertest.Dial(t, one, routertest.Token("ann")), routertest.Dial(t, two, routertest.Token("bob"))
	ann.Send(publication{})
	bob.Send(publication{})
	time.Sleep(10*second + phase)
	require.Len(t, two.Presence("room/go"), 2)
	fails.node.Kill()
	failed := time.Now()
	ann.Abort()
	time.Sleep(10 * second)
	synctest.Wait()
	require.Len(t, two.Presence("room/go"), 1)
	bob.Abort()
	require.NoError(t, two.Shutdown(context.Background()))
	return left.Sub(failed)
}

// nodeFailure draws what happens when one of two nodes fails.
func nodeFailure(t *testing.T) []byte {
	var least, most time.Duration
	for phase := time.Duration(0); phase < second; phase += second / 20 {
		after := leavesAfter(t, phase)
		if least == 0 || after < least {
			least = after
		}
		most = max(most, after)
	}
	// The guide says from four to six seconds, since messages take some time.
	assert.GreaterOrEqual(t, least, 4*second)
	assert.LessOrEqual(t, most, 6*second)
	first, longest := delays(1006, 0, 0)
	const ann, one, store, two, bob = "Ann", "node A", "Redis", "node B", "Bob"
	s := newSequence("A node fails", "Two nodes publish heartbeats through Redis. Node A fails. Its client connects to node B after a short random delay. "+
		"Node B receives no heartbeat of node A for four seconds, and removes its members from the presence of the topics.", ann, one, store, two, bob)
	s.say("", "Each node publishes a heartbeat every second.")
	s.send(one, store, "flow", "")
	s.send(store, two, "flow", "")
	s.say("bad", "0 s: node A fails. What it has not published yet is lost. The outcome of open calls is unknown.")
	s.lose(one, "")
	s.say("", fmt.Sprintf("%.1f–%.1f s: Ann's client connects to node B, and subscribes again.", first.Seconds(), longest.Seconds()))
	s.send(ann, two, "span", "")
	s.say("good", "With its position, it receives what it has missed of topics with a history.")
	s.send(store, two, "found", "")
	s.send(two, ann, "found", "")
	s.say("", "Bob sees Ann twice: with the connection to node A, and with that to node B.")
	s.send(two, bob, "flow", "")
	s.say("bad", "4–6 s: node A was silent for 4 s. Node B removes its members, and Bob is notified.")
	s.send(two, bob, "refused", "")
	s.say("good", "If Ann has a session, she neither leaves nor joins.")
	return s.svg()
}
