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
	"time"

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

// users returns the sorted users of the topic go.
func (n *node) users() []string {
	var users []string
	for _, m := range n.Presence("go") {
		users = append(users, m.UserID)
	}
	slices.Sort(users)
	return users
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

func TestPresence_FollowsBroker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &recordingBroker{}
		n := newNode(b)
		changed := func(node, id, data string, joined bool) {
			b.PresenceChanged("go", broker.Member{Node: node, ID: id, Data: data}, joined)
		}
		changed("two", "1", `{"userId":"early"}`, true) // the topic does not exist
		ann := n.dial(t, "ann")
		ann.Send(Subscribe{"go"})
		synctest.Wait()
		changed("two", "1", `{"userId":"early"}`, true) // no connection of this node has joined the topic
		ann.Send(Join{"go"})
		synctest.Wait()
		changed("two", "1", `{"tenantId":"t","userId":"bob","info":"hi"}`, true)
		changed("two", "1", `{"userId":"again"}`, true)
		changed("three", "4", `{"userId":"eve"}`, true)
		changed("three", "1", `{"tenantId":"t","userId":"bob","info":"hi"}`, true) // has resumed the session
		changed("three", "1", "", false)
		changed("two", "2", `malformed`, true)
		changed("two", "2", `malformed`, false)
		changed("two", "3", `{}`, false)
		assert.Equal(t, []string{"ann", "bob", "eve"}, slices.Sorted(slices.Values(n.users())))
		assert.Contains(t, n.Presence("go"), router.Member{ConnID: "1", TenantID: "t", UserID: "bob", Info: "hi"})
		changed("three", "4", `{"userId":"eve"}`, false)
		ann.Send(Unsubscribe{"go"})
		synctest.Wait()
		changed("two", "1", "", false) // the topic was dropped
		synctest.Wait()
		assert.Equal(t, []string{"+ann@go", "+bob@go", "+eve@go", "-eve@go", "-ann@go", "-bob@go"}, n.events.all())
	})
}

func TestBroker_IgnoresMalformedPackets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &recordingBroker{}
		n := newNode(b)
		ann := n.dial(t, "ann")
		ann.Send(Join{"go"})
		synctest.Wait()
		for _, malformed := range []string{"", "\x00", "\xff?", "\x01", "\x01\xff", "\x01\x05abc"} {
			b.Receive("go", "two", []byte(malformed))
		}
		b.MessagesLost("go", 7)
		synctest.Wait()
		assert.Equal(t, []int{7}, n.lost.all())
		assert.Zero(t, ann.Pending())
	})
}

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
		a, b, late, many := onlyConnOf(t, r), onlyConnOf(t, r), onlyConnOf(t, r), onlyConnOf(t, r)
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

// onlyConnOf connects a client and returns its connection.
func onlyConnOf(t *testing.T, r *router.Router) *router.Conn {
	t.Helper()
	return dialSession(t, r, "").conn
}

// TestOnPresence_WaitingCallsAreBounded has a connection that joins and leaves 20,000 times while the
// hook runs.
func TestOnPresence_WaitingCallsAreBounded(t *testing.T) {
	calls := 0
	started, release := make(chan struct{}), make(chan struct{})
	r := router.New(&router.Options{Limits: withoutRates(router.Limits{}), OnPresence: func(router.PresenceEvent) {
		if calls++; calls == 1 {
			close(started)
			<-release
		}
	}})
	require.NoError(t, onlyConnOf(t, r).Subscribe("t", router.Present("")))
	<-started
	c := onlyConnOf(t, r)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for n := range 20_000 {
		require.NoError(t, c.Subscribe(fmt.Sprint("topic ", n%500), router.Present("")))
		c.Unsubscribe(fmt.Sprint("topic ", n%500))
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	assert.Less(t, int64(after.HeapAlloc)-int64(before.HeapAlloc), int64(1<<20))
	close(release)
	require.Eventually(t, func() bool { return len(r.Presence("t")) == 1 }, time.Minute, time.Millisecond)
}
