package router_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/codec/cbor"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// newPresenceNode returns a node with a topic whose presence clients may ask for.
func newPresenceNode(broker broker.Broker) *node {
	n := newNode(broker)
	router.Topic(n.Router, "room/{id}", &router.TopicOptions{Presence: true, Authorize: permit})
	router.Topic(n.Router, "news", &router.TopicOptions{Authorize: permit})
	return n
}

// names returns the sorted users of members, each with its info.
func names(members []router.Member) []string {
	all := []string{}
	for _, m := range members {
		all = append(all, strings.TrimSuffix(m.UserID+":"+m.Info, ":"))
	}
	slices.Sort(all)
	return all
}

// settle waits until all changes have been sent.
func settle() {
	time.Sleep(time.Second)
	synctest.Wait()
}

func TestPresenceFeed_FrameHasEmptyLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newPresenceNode(nil)
		ann := n.dial(t, "ann")
		routertest.Subscribe(ann, "room/go")
		bob := n.dial(t, "bob")
		routertest.Subscribe(bob, "room/go")
		assert.Contains(t, ann.Next().Text, `"left":[]}}`)
		bob.Abort()
		assert.Contains(t, ann.Next().Text, `"payload":{"topic":"room/go","joined":[],"left":[{"connId":"`)
	})
}

// TestPresenceFeed_LargeChangesAreSentInBatches lets a node with 1,000 members leave, and asks for
// 1,000 members.
func TestPresenceFeed_LargeChangesAreSentInBatches(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := memory.NewBroker()
		one, two := newPresenceNode(b), newPresenceNode(b)
		ann := one.dial(t, "ann")
		routertest.Subscribe(ann, "room/go")
		for n := range 1000 {
			two.dial(t, fmt.Sprint(n)).Send(Subscribe{"room/go"})
		}
		settle()
		view := newView(t, nil)
		assert.LessOrEqual(t, view.receive(ann), 8)
		assert.Len(t, view.members, 1000)

		bob := one.dial(t, "bob")
		bobView := newView(t, routertest.Subscribe(bob, "room/go"))
		assert.Len(t, bobView.members, 256)
		settle()
		assert.Equal(t, 3, bobView.receive(bob))
		assert.Len(t, bobView.members, 1002)
		bobView = newView(t, routertest.Subscribe(bob, "room/go"))
		settle()
		assert.Equal(t, 3, bobView.receive(bob), "nothing but the members is sent")
		assert.Len(t, bobView.members, 1002)

		for c := range two.Conns() {
			c.Close(router.StatusGoingAway, "")
		}
		settle()
		assert.LessOrEqual(t, view.receive(ann), 8)
		assert.Len(t, view.members, 1)
		assert.LessOrEqual(t, bobView.receive(bob), 8)
		assert.Equal(t, []string{"ann", "bob"}, names(slices.Collect(maps.Values(bobView.members))))
	})
}

// TestPresenceFeed_NothingPrecedesAnswer keeps the answer waiting for a slow client while members
// join and leave.
func TestPresenceFeed_NothingPrecedesAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		authorize := make(chan struct{})
		r := router.New(discardLogs(router.Options{
			Limits: router.Limits{QueueMessages: 4}, Timeouts: patient, SlowConsumer: router.DropNewest,
			Authenticate: byUser,
		}))
		router.Topic(r, "room/{id}", &router.TopicOptions{Presence: true, Authorize: func(*router.Context, router.TopicMatch) error {
			<-authorize
			return nil
		}})
		client, conn := dialPaused(t, r)
		client.SendText(`{"type":"$ws:subscribe","meta":{"correlationId":"c"},"payload":{"topic":"room/go","presence":true}}`)
		synctest.Wait()
		for conn.QueueStats().Messages < 4 {
			require.NoError(t, conn.Send(Nothing{}))
		}
		close(authorize)
		settle()
		assert.Len(t, r.Presence("room/go"), 1, "it is subscribed")
		for _, user := range []string{"bob", "eve"} {
			routertest.Dial(t, r, routertest.Token(user))
			synctest.Wait()
			for c := range r.Conns() {
				if c.Identity().UserID == user {
					require.NoError(t, c.Subscribe("room/go", router.Present("")))
				}
			}
			settle()
		}
		resume(client)
		for range 4 {
			routertest.Receive[Nothing](client)
		}
		assert.Contains(t, client.Next().Text, fmt.Sprintf(`"members":[{"connId":%q}]`, conn.ID()))
		change := routertest.ReceivePresence(client)
		assert.Equal(t, []string{"bob", "eve"}, names(change.Joined))
		settle()
		assert.Zero(t, client.Pending())
	})
}

// TestPresenceFeed_SlowClientIsDisconnected fills the queue of a client: its view of the members
// must not become wrong silently, whatever the topic's policy.
func TestPresenceFeed_SlowClientIsDisconnected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := router.New(discardLogs(router.Options{Limits: router.Limits{QueueMessages: 4}, Timeouts: patient}))
		router.Topic(r, "room/{id}", &router.TopicOptions{Presence: true, Authorize: permit, SlowConsumer: router.DropOldest})
		client := routertest.Dial(t, r)
		synctest.Wait()
		conn := onlyConn(t, r)
		routertest.Subscribe(client, "room/go")
		client.Pause()
		for range 20 {
			require.NoError(t, r.Publish("room/go", Nothing{}))
			synctest.Wait()
		}
		join := func() {
			routertest.Dial(t, r)
			synctest.Wait()
			for c := range r.Conns() {
				require.NoError(t, c.Subscribe("room/go"))
			}
			settle()
		}
		join()
		require.NoError(t, conn.Context().Err(), "publications make room")
		for range 4 {
			join()
		}
		client.Resume()
		assert.Equal(t, router.StatusTryAgainLater, client.Closed().Code)
	})
}

// A view holds the members that a client knows. It fails the test if a change does not fit.
type view struct {
	t       *testing.T
	members map[string]router.Member
}

func newView(t *testing.T, members []router.Member) *view {
	v := &view{t, map[string]router.Member{}}
	for _, m := range members {
		v.members[m.ConnID] = m
	}
	require.Len(t, v.members, len(members))
	return v
}

// receive applies the changes that have arrived, and returns the number of messages.
func (v *view) receive(c *routertest.Conn) (messages int) {
	for ; c.Pending() > 0; messages++ {
		change := routertest.ReceivePresence(c)
		for _, m := range change.Left {
			require.Equal(v.t, v.members[m.ConnID], m, "only members leave")
			delete(v.members, m.ConnID)
		}
		for _, m := range change.Joined {
			require.NotContains(v.t, v.members, m.ConnID, "only others join")
			v.members[m.ConnID] = m
		}
	}
	return messages
}

// TestPresenceFeed_ClientsOfAllFormatsGetJSON subscribes clients with and without a codec.
func TestPresenceFeed_ClientsOfAllFormatsGetJSON(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		codec := cbor.New(nil)
		r := router.New(&router.Options{Codecs: []router.Codec{codec}})
		router.Topic(r, "room/{id}", &router.TopicOptions{Presence: true, Authorize: permit})
		var clients []*routertest.Conn
		for range 2 { // two of each format share a message
			clients = append(clients, routertest.Dial(t, r, routertest.Codec(codec)), routertest.Dial(t, r))
		}
		for _, c := range clients {
			v := newView(t, routertest.Subscribe(c, "room/go"))
			settle()
			v.receive(c)
		}
		for _, c := range clients {
			newView(t, nil).receive(c) // the later ones
		}
		collect(r)[0].Unsubscribe("room/go")
		settle()
		received := 0
		for i, c := range clients {
			if c.Pending() == 0 {
				continue // the one that has left
			}
			received++
			frame := c.Next()
			assert.Equal(t, "$ws:presence", frame.Type)
			assert.Equal(t, i%2 == 0, frame.Binary)
			assert.Contains(t, string(frame.Payload), `{"topic":"room/go","joined":[],"left":[{"connId":"`)
		}
		assert.Equal(t, 3, received)
	})
}

// TestDevelopment_ExplainsPresenceThatATopicDoesNotHave for clients that have greeted, as those of the libraries do: package
// routertest always asks for it.
func TestDevelopment_ExplainsPresenceThatATopicDoesNotHave(t *testing.T) {
	opts, records := developing(router.Options{})
	r := router.New(opts)
	router.Topic(r, "news", &router.TopicOptions{Authorize: permit})
	router.Topic(r, "room", &router.TopicOptions{Authorize: permit, Presence: true})
	conn := routertest.Dial(t, r)
	conn.Greet()
	for range 2 {
		routertest.Subscribe(conn, "news")
		routertest.Subscribe(conn, "room")
	}
	checkHint(t, logRecord{
		Msg: "presence requested: the pattern has none", Topic: "news", Remedy: "set TopicOptions.Presence of the pattern registered at ",
	}, records())
}
