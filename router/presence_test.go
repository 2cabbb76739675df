package router_test

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// A node is a chat router that records presence events and lost messages.
type node struct {
	*router.Router
	events recorder[string] // "+user@topic" or "-user@topic"
	lost   recorder[int]
}

type Join struct {
	Room string `json:"room"`
}

func (Join) MessageType() string { return "JOIN" }

func newNode(broker broker.Broker) *node {
	n := &node{}
	n.Router = router.New(&router.Options{
		Broker: broker,
		Authenticate: func(req *http.Request) (router.Identity, error) {
			return router.Identity{TenantID: "acme", UserID: router.Token(req)}, nil
		},
		OnPresence: func(e router.PresenceEvent) {
			n.events.add(map[bool]string{true: "+", false: "-"}[e.Joined] + e.Member.UserID + "@" + e.Topic)
		},
		OnMessagesLost: func(_ string, messages int) { n.lost.add(messages) },
	})
	router.On(n.Router, func(ctx *router.Context, m Subscribe) error { return ctx.Subscribe(m.Room) })
	router.On(n.Router, func(ctx *router.Context, m Join) error { return ctx.Subscribe(m.Room, router.Present("hi")) })
	router.On(n.Router, func(ctx *router.Context, m Unsubscribe) error { ctx.Unsubscribe(m.Room); return nil })
	router.On(n.Router, func(ctx *router.Context, m Say) error { return ctx.Publish(m.Room, m) })
	router.On(n.Router, func(ctx *router.Context, m SayOthers) error {
		return ctx.Publish(m.Room, Say(m), router.Except(ctx.Conn()))
	})
	return n
}

func (n *node) dial(t *testing.T, user string) *routertest.Conn {
	return routertest.Dial(t, n, routertest.Token(user))
}

// receiveTexts receives n messages.
func receiveTexts(c *routertest.Conn, n int) (texts []string) {
	for range n {
		texts = append(texts, routertest.Receive[Say](c).Text)
	}
	return texts
}

func TestJoin_InfoIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := router.New(nil)
		router.On(r, func(ctx *router.Context, m Say) error { return ctx.Subscribe(m.Room, router.Present(m.Text)) })
		conn := routertest.Dial(t, r)
		conn.Send(Say{"go", strings.Repeat("x", 1025)})
		assert.Equal(t, errors.InvalidArgument, routertest.ReceiveError(conn).Code)
		conn.Send(Say{"go", strings.Repeat("x", 1024)})
		synctest.Wait()
		assert.Len(t, r.Presence("go"), 1)
	})
}

func TestSubscribe_FromAPositionMakesPresent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSessionRouter(nil, nil)
		router.Topic(r, "club/{name}", &router.TopicOptions{Presence: true, History: router.History{Messages: 30}})
		ann := dialSession(t, r, "ann").hello()
		for _, from := range []router.SubscribeOption{router.Since(broker.Position{}, nil), router.Last(1, nil), router.CurrentState(nil)} {
			require.NoError(t, ann.conn.Subscribe("club/a", from))
			assert.Equal(t, []string{"ann"}, names(r.Presence("club/a")))
			require.NoError(t, ann.conn.Subscribe("club/a", from, router.Present("hi"), router.Hidden()))
			assert.Empty(t, r.Presence("club/a"))
			require.NoError(t, ann.conn.Subscribe("club/a", from, router.Hidden(), router.Present("hi")))
			assert.Equal(t, []string{"ann:hi"}, names(r.Presence("club/a")))
			ann.conn.Unsubscribe("club/a")
		}
	})
}

func TestBroker_NodeSubscribesOncePerTopic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := &recordingBroker{}
		n := newNode(broker)
		ann, bob := n.dial(t, "ann"), n.dial(t, "bob")
		ann.Send(Subscribe{"go"})
		bob.Send(Join{"go"})
		ann.Send(Say{"elsewhere", "hi"})
		synctest.Wait()
		ann.Send(Unsubscribe{"go"})
		synctest.Wait()
		bobID := n.Presence("go")[0].ConnID
		assert.Equal(t, []string{"+go", "track go", "join go " + bobID + ` {"tenantId":"acme","userId":"bob","info":"hi"}`}, broker.topics.all())
		bob.Abort()
		synctest.Wait()
		assert.Equal(t, []string{"-go", "leave go " + bobID, "untrack go"}, broker.topics.all()[3:])
	})
}

// A recordingBroker records what one node subscribes and publishes. The test plays the other nodes
// by calling the embedded Handler.
type recordingBroker struct {
	broker.Callbacks
	published recorder[string]
	topics    recorder[string]
}

func (b *recordingBroker) Connect(node broker.Callbacks) broker.Node {
	b.Callbacks = node
	return b
}

func (*recordingBroker) Name() string                       { return "one" }
func (*recordingBroker) Nodes() (others []string, all bool) { return nil, true }
func (b *recordingBroker) Subscribe(topic string) {
	if topic[0] != 0 { // which New subscribes to
		b.topics.add("+" + topic)
	}
}

func (b *recordingBroker) Unsubscribe(topic string) { b.topics.add("-" + topic) }
func (b *recordingBroker) Publish(_ string, packet []byte) error {
	b.published.add(string(packet))
	return nil
}

func (b *recordingBroker) Join(topic, id, data string) {
	b.topics.add("join " + topic + " " + id + " " + data)
}
func (b *recordingBroker) Leave(topic, id string)      { b.topics.add("leave " + topic + " " + id) }
func (b *recordingBroker) Track(topic string)          { b.topics.add("track " + topic) }
func (b *recordingBroker) Untrack(topic string)        { b.topics.add("untrack " + topic) }
func (b *recordingBroker) Close(context.Context) error { return nil }

// TestPresence_ConcurrentLeavesReachBroker lets all members of a topic leave at once: those that
// still leave while the last subscriber removes the topic must not stay present on other nodes.
func TestPresence_ConcurrentLeavesReachBroker(t *testing.T) {
	b := &yieldingBroker{}
	n := newNode(b)
	for range 16 {
		n.dial(t, "ann")
	}
	conns := collect(n.Router)
	for range 500 {
		for _, c := range conns {
			require.NoError(t, c.Subscribe("go", router.Present("")))
		}
		var wg sync.WaitGroup
		for _, c := range conns {
			wg.Go(func() { c.Unsubscribe("go") })
		}
		wg.Wait()
	}
	assert.EqualValues(t, 500*16, b.left.Load())
}

// A yieldingBroker counts members that leave, and lets other goroutines run meanwhile.
type yieldingBroker struct {
	recordingBroker
	left atomic.Int64
}

func (b *yieldingBroker) Connect(node broker.Callbacks) broker.Node {
	b.recordingBroker.Connect(node)
	return b
}

func (b *yieldingBroker) Leave(string, string) {
	b.left.Add(1)
	runtime.Gosched()
}

// TestOnPresence_MergesChangesIfManyWait changes members while the hook runs, before and after many
// calls wait.
func TestOnPresence_MergesChangesIfManyWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var events recorder[string]
		release := make(chan struct{})
		r := router.New(&router.Options{Limits: router.Limits{Topics: 2000}, OnPresence: func(e router.PresenceEvent) {
			events.add(fmt.Sprint(e.Topic, " ", e.Member.Info, " ", e.Joined))
			<-release
		}})
		dial := func() *router.Conn { return dialSession(t, r, "").conn }
		a, b, late, many := dial(), dial(), dial(), dial()
		require.NoError(t, a.Subscribe("t", router.Present("")))
		require.NoError(t, b.Subscribe("t", router.Present("b")))
		b.Unsubscribe("t") // few calls wait: both are reported
		synctest.Wait()
		for n := range 1022 {
			require.NoError(t, many.Subscribe(fmt.Sprint("other ", n), router.Present("")))
		}
		require.NoError(t, late.Subscribe("t", router.Present("late"))) // joins and leaves: nothing
		late.Unsubscribe("t")
		a.Unsubscribe("t") // leaves and returns as it was: nothing
		require.NoError(t, a.Subscribe("t", router.Present("")))
		require.NoError(t, a.Subscribe("t", router.Present("a"))) // another info
		close(release)
		synctest.Wait()
		reported := slices.DeleteFunc(events.all(), func(e string) bool { return strings.HasPrefix(e, "other") })
		assert.Equal(t, []string{"t  true", "t b true", "t b false", "t  false", "t a true"}, reported)
		assert.Len(t, events.all(), 1022+len(reported))
	})
}
